//! Streaming: maps and reduces that leave the work to children.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{HeldContainers, check};
use crate::cluster::Cluster;
use crate::conf::Options;
use crate::hadoop::framework;
use crate::jobs::{Job, Words, show, text_of};
use crate::shaped::TWO;
use crate::site::Site;

const CLIENT: &str = "org.apache.hadoop.streaming.HadoopStreaming";

fn script(cluster: &mut Cluster, name: &str, text: &str) -> PathBuf {
    let path = cluster.fresh(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    path
}

/// Counts words with a map for each of their files, which is to write each word on a line of its own.
/// `libs` and `settings` are of the framework that runs it.
pub fn submit(
    cluster: &mut Cluster,
    libs: &[&Path],
    settings: &[String],
    words: &Words,
    map: &str,
    reduces: u32,
    out: &Path,
) -> Job {
    let map = script(cluster, "map", map);
    // A key without a value may end in a tab.
    let reduce = "uniq -c | sed -E 's/^ *([0-9]+) ([^\t]*)\t?$/\\2\t\\1/'";
    let reduce = script(cluster, "reduce", reduce);
    let mut line = settings.to_vec();
    line.push("-Dmapreduce.job.maps=1".to_owned());
    line.push(format!("-Dmapreduce.job.reduces={reduces}"));
    let files = ["-input", show(words.dir()), "-output", show(out), "-mapper", show(&map)];
    line.extend([&files[..], &["-reducer", show(&reduce)]].concat().into_iter().map(str::to_owned));
    let own = framework("applications/lib");
    let client = cluster.client_of(&[libs, &[own.as_path()]].concat(), CLIENT, &line);
    Job::of(client, "streaming".to_owned())
}

/// Counts words with three maps, which are held, and a reduce.
pub struct Counting {
    pub held: HeldContainers,
    words: Words,
    out: PathBuf,
}

impl Counting {
    /// `libs` and `settings` are of the framework that runs it.
    pub fn submit(cluster: &mut Cluster, libs: &[&Path], settings: &[String]) -> (Job, Counting) {
        let held = HeldContainers::new(cluster);
        let words = Words::write(&cluster.fresh("words"), 3, 500);
        let map = format!("{}\ntr -s ' ' '\\n' | sed '/^$/d'", held.command());
        let out = cluster.fresh("counts");
        let job = submit(cluster, libs, settings, &words, &map, 1, &out);
        (job, Counting { held, words, out })
    }

    pub fn is_right(&self) {
        self.words.check_counts(&text_of(&self.out));
    }
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and streaming"]
fn children_of_maps_are_with_them() {
    let options = Options { containers: 6, ..Options::default() };
    let site = &mut Site::start("streaming", options, TWO, "");
    let last = "-Dmapreduce.job.reduce.slowstart.completedmaps=1".to_owned();
    let (job, counting) = Counting::submit(&mut site.cluster, &[], &[last]);
    let application = job.application(&site.cluster);
    check(site, &application, &[("map", 3)]);
    counting.held.release(site, 3);
    job.succeeded(&site.cluster);
    counting.is_right();
    site.nothing_left();
}
