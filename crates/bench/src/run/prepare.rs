//! What is there before the first run: the disk, the directories, the data.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::shared::Bench;
use super::spawn::{complaint, finish};
use super::tasks::{Places, fill};
use crate::disk::Disk;
use crate::record::Outcome;
use crate::suite::template::Template;
use crate::suite::{Made, Suite};
use lrs_term::{Failure, say};
use lrs_testbed::data;
use lrs_testbed::sweep::end_processes;

/// The modelled disk, if the suite has one.
pub(super) fn disk(suite: &Suite, workdir: &Path) -> Result<Option<Disk>, Failure> {
    suite.disk.as_ref().map(|spec| Disk::make(spec, workdir)).transpose()
}

/// Makes the directories of the bench on the disk that is measured.
pub(super) fn places(measured: &Path) -> Result<Places, Failure> {
    if measured.to_str().is_none() {
        return Err(Failure::failed(format!("{} is not UTF-8", measured.display()))
            .hint("--dir names another place"));
    }
    let places = Places { data: measured.join("data"), run: measured.join("run") };
    for path in [&places.data, &places.run] {
        std::fs::create_dir(path).map_err(|error| {
            Failure::failed(format!("cannot create {}: {error}", path.display()))
        })?;
    }
    Ok(places)
}

/// Makes the data, in the order of the suite: later data may be made of earlier.
pub(super) async fn data(bench: &Bench<'_>) -> Result<(), Failure> {
    for (number, set) in (1_u64..).zip(&bench.suite.data) {
        say(format_args!("lrs-bench: making the data '{}'", set.name));
        for part in 0..set.parts {
            let out = bench.places.data.join(format!("{}-{part}", set.name));
            let cannot = |error: std::io::Error| {
                Failure::failed(format!("cannot write {}: {error}", out.display()))
                    .hint("--dir names another place")
            };
            match &set.made {
                Made::Generated(kind, size) => {
                    // `as` saturates
                    let scaled = (size.0 as f64 * bench.suite.scale) as u64;
                    let bytes = (scaled / u64::from(set.parts)).max(1);
                    let seed = bench.suite.seed ^ (number << 32) ^ u64::from(part);
                    let mut file =
                        BufWriter::with_capacity(1 << 20, File::create(&out).map_err(cannot)?);
                    let mut pieces = data::Pieces::new(*kind, bytes, seed);
                    while let Some(piece) = pieces.make() {
                        file.write_all(piece).map_err(cannot)?;
                        // so that Ctrl-C is heard
                        tokio::task::yield_now().await;
                    }
                    file.flush().map_err(cannot)?;
                }
                Made::Derived(words) => {
                    let fill = fill(bench.suite, &bench.places, (part, &out), bench.cpus);
                    let words = Template::fill_all(words, &fill);
                    let log = bench.workdir.join("log-of-data");
                    let limit = bench.suite.time_limit;
                    let how = finish(&words, &bench.places.data, &log, limit).await?;
                    if how != Outcome::Ok {
                        let name = format!("{}-{part}", set.name);
                        let keep = bench.logs.join(format!("data-{name}.log"));
                        return Err(Failure::failed(format!(
                            "cannot make the data {}; nothing was run",
                            complaint(&name, &how, &log, &keep)
                        )));
                    }
                }
            }
        }
    }
    match end_processes(&bench.kept).first() {
        None => Ok(()),
        Some(left) => Err(Failure::failed(format!(
            "{left}, which a command that makes data left behind, does not end; nothing was run"
        ))),
    }
}
