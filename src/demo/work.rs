//! The tasks: real programs of a plain Linux box over a generated text, mixed so that some
//! compute, some wait for the disk and some do both, as on a node that runs several jobs.
//!
//! List and order are fixed. How much one task does is fitted to the machine once ([`fit`]) and
//! then the same in every setting, so that the demo takes about as long on a laptop as on a
//! server and on a disk as on flash.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lrs_core::units::Bytes;
use lrs_term::{Failure, Output, say};
use lrs_testbed::data::{self, Pieces};

use super::stage::{Setting, run};

/// What a task does.
#[derive(Debug, PartialEq)]
pub(super) struct Kind {
    /// In names and tables.
    pub(super) word: &'static str,
    /// For the reader of the report.
    story: &'static str,
    programs: &'static [&'static str],
    /// For sh, with the file it may write, the number of units and, a unit each, inputs.
    script: &'static str,
    /// The file a unit reads; none for a kind that only writes, a block a unit.
    input: Option<&'static str>,
    unit: Bytes,
    /// Units of a first, short trial.
    trial: u32,
    /// The most units of one task: what a disk can spare and a command line can hold. Machines
    /// for which that is little have shorter tasks.
    most: u32,
}

/// The text is short and read many times, so that it stays in the page cache and the disk work
/// is the tasks' own writing.
const TEXT: Bytes = Bytes(1 << 20);

/// Part of the text for the search, which takes long over each byte.
const PART: Bytes = Bytes(128 << 10);

const SEARCH: Kind = Kind {
    word: "search",
    story: "grep -E with a back reference: CPU",
    programs: &["grep"],
    script: r#"shift 2; exec grep -c -E '([a-z]{2})[a-z]* .*\1$' "$@""#,
    input: Some("part"),
    unit: PART,
    trial: 2,
    most: 2_000,
};

const COMPRESS: Kind = Kind {
    word: "compress",
    story: "gzip | dd oflag=dsync: CPU and disk",
    programs: &["gzip", "dd"],
    script: r#"to=$1; shift 2
        gzip -6 -c "$@" | dd of="$to" bs=16k iflag=fullblock oflag=dsync status=none"#,
    input: Some("text"),
    unit: TEXT,
    trial: 2,
    most: 64,
};

const JOURNAL: Kind = Kind {
    word: "journal",
    story: "dd bs=4k oflag=dsync: disk",
    programs: &["dd"],
    script: r#"exec dd if=/dev/zero of="$1" count="$2" bs=4k oflag=dsync status=none"#,
    input: None,
    unit: Bytes(4 << 10),
    trial: 50,
    most: 16_384,
};

const SORT: Kind = Kind {
    word: "sort",
    story: "sort and sync: CPU, then disk",
    programs: &["sort", "sync"],
    // 8 MiB of memory: it merges from temporary files, and in one thread
    script: r#"to=$1; shift 2
        sort -S 8M -T "${to%/*}" -o "$to" "$@" && sync "$to""#,
    input: Some("text"),
    unit: TEXT,
    trial: 12,
    most: 64,
};

const HASH: Kind = Kind {
    word: "hash",
    story: "sha256sum: CPU",
    programs: &["sha256sum"],
    script: r#"shift 2; exec sha256sum "$@""#,
    input: Some("text"),
    unit: TEXT,
    trial: 40,
    most: 2_000,
};

/// One round, in the order of submission. The first two land on the first core each.
const ROUND: [&Kind; 6] = [&SEARCH, &COMPRESS, &JOURNAL, &SORT, &HASH, &JOURNAL];

/// What one task is to take alone.
pub(super) const TASK: Duration = Duration::from_millis(1_500);

/// How long a trial may take; a kind that needs longer for it is left out.
const TRIAL: Duration = Duration::from_secs(6);

/// A kind and how much of it one task does here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) kind: &'static Kind,
    units: u32,
}

/// One task of a stage.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) kind: &'static Kind,
    /// `search-1`
    pub(super) name: String,
    pub(super) command: Vec<OsString>,
    /// The file it writes, to be removed after it.
    pub(super) output: PathBuf,
}

impl Work {
    /// One task of it.
    pub(super) fn task(self, name: String, workdir: &Path) -> Task {
        let Work { kind, units } = self;
        let output = workdir.join(format!("out-{name}"));
        let mut command: Vec<OsString> = ["sh", "-c", kind.script, "sh"].map(Into::into).to_vec();
        command.extend([output.clone().into(), units.to_string().into()]);
        let input = kind.input.map(|input| workdir.join(input).into_os_string());
        command
            .extend(input.into_iter().flat_map(|file| std::iter::repeat_n(file, units as usize)));
        Task { kind, name, command, output }
    }

    /// `dd bs=4k oflag=dsync: disk, 3.2 MiB`
    pub(super) fn story(self) -> String {
        let bytes = self.kind.unit.0.saturating_mul(u64::from(self.units));
        format!("{}, {}", self.kind.story, Bytes(bytes))
    }
}

/// The same tasks in the same order for every stage.
pub(super) fn tasks(round: &[Work], workdir: &Path, count: usize) -> Vec<Task> {
    let works = (1..=count).zip(round.iter().cycle());
    works.map(|(number, work)| work.task(format!("{}-{number}", work.kind.word), workdir)).collect()
}

/// The kinds of the round, each once.
pub(super) fn kinds(round: &[Work]) -> Vec<Work> {
    let mut kinds: Vec<Work> = Vec::new();
    for work in round {
        if !kinds.iter().any(|known| known.kind == work.kind) {
            kinds.push(*work);
        }
    }
    kinds
}

/// The round with its amounts. Kinds that are too slow here, or without a program, are left
/// out with a word about it.
pub(super) async fn fit(workdir: &Path, out: &mut Output) -> Result<Vec<Work>, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &&&str| std::env::split_paths(&path).any(|place| place.join(program).is_file());
    let trials = ROUND.map(|kind| Work { kind, units: kind.trial });
    let mut fitted: Vec<Work> = Vec::new();
    for trial in kinds(&trials) {
        let Work { kind, units } = trial;
        if let Some(missing) = kind.programs.iter().find(|program| !is_there(program)) {
            say(format_args!("left out: {} needs {missing}, which is not in PATH", kind.word));
            continue;
        }
        let task = [trial.task(format!("{}-trial", kind.word), workdir)];
        let outcome = run("sizing", &task, Setting::Static(1), workdir, TRIAL, out).await?;
        if outcome.complete() {
            fitted.push(Work { kind, units: units_for(TASK, units, outcome.lasted, kind.most) });
        } else {
            let limit = TRIAL.as_secs();
            say(format_args!("left out: {} takes more than {limit} s for a trial", kind.word));
        }
    }
    if fitted.is_empty() {
        return Err(Failure::failed("none of the demo's programs can be run here"));
    }
    let of = |kind| fitted.iter().find(|work| work.kind == kind).copied();
    Ok(ROUND.into_iter().filter_map(of).collect())
}

/// Units that take `wanted`, when `units` took `taken`.
fn units_for(wanted: Duration, units: u32, taken: Duration, most: u32) -> u32 {
    let each = taken.as_secs_f64() / f64::from(units);
    // `as` saturates
    ((wanted.as_secs_f64() / each.max(1e-9)).round() as u32).clamp(1, most)
}

/// Writes the text and its part into `workdir`.
pub(super) fn write_text(workdir: &Path) -> Result<(), Failure> {
    for (name, size) in [("text", TEXT), ("part", PART)] {
        let path = workdir.join(name);
        let mut pieces = Pieces::new(data::Kind::Text, size.0, 0);
        let written = std::fs::File::create(&path).and_then(|mut file| {
            while let Some(piece) = pieces.make() {
                file.write_all(piece)?;
            }
            Ok(())
        });
        written.map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", path.display()))
                .hint("the demo needs about 300 MB; --dir names another place")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_follows_the_speed_of_the_machine() {
        let ms = Duration::from_millis;
        assert_eq!(units_for(ms(1_500), 10, ms(300), 1_000), 50);
        assert_eq!(units_for(ms(1_500), 10, ms(0), 1_000), 1_000);
        assert_eq!(units_for(ms(1_500), 1, ms(6_000), 1_000), 1);
    }
}
