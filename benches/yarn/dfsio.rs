//! TestDFSIO, Hadoop's own benchmark of its file system: a map reads a file from its start to its
//! end, and one reduce adds up what they say.

use std::fs;
use std::path::PathBuf;

use crate::cluster::Cluster;
use crate::jobs::{Job, show};

const CLASS: &str = "org.apache.hadoop.fs.TestDFSIO";

/// Files that it wrote.
pub struct Files {
    dir: PathBuf,
    count: u32,
    mib: u64,
}

impl Files {
    /// `count` files of `mib` MiB each, below a new directory.
    pub fn write(cluster: &mut Cluster, count: u32, mib: u64) -> Files {
        let files = Files { dir: cluster.fresh("dfsio"), count, mib };
        fs::create_dir(&files.dir).expect("a directory of files");
        files.start("-write", cluster, &[]).succeeded(cluster);
        files.check("write");
        files
    }

    /// Reads all of them with a map for each.
    pub fn read(&self, cluster: &mut Cluster, options: &[&str]) -> Job {
        self.start("-read", cluster, options)
    }

    /// Every byte was read.
    pub fn check_read(&self) {
        self.check("read");
    }

    fn start(&self, what: &str, cluster: &mut Cluster, options: &[&str]) -> Job {
        let base = format!("-Dtest.build.data={}", self.dir.display());
        let (count, size) = (self.count.to_string(), format!("{}MB", self.mib));
        let results = self.results();
        let words = [what, "-nrFiles", &count, "-size", &size, "-resFile", show(&results)];
        Job::start(cluster, CLASS, &[&[base.as_str()], options, &words].concat())
    }

    /// Lines are added to it by every job.
    fn results(&self) -> PathBuf {
        self.dir.join("results")
    }

    /// Holds the results against what there is, and removes them.
    fn check(&self, what: &str) {
        let text = fs::read_to_string(self.results()).expect("results");
        let wanted = [
            ("TestDFSIO -----", what.to_owned()),
            ("Number of files", self.count.to_string()),
            ("Total MBytes processed", (u64::from(self.count) * self.mib).to_string()),
        ];
        for (name, value) in wanted {
            let found = text.lines().find(|line| line.contains(name));
            let found =
                found.and_then(|line| line.rsplit_once(": ")).map(|(_, value)| value.trim());
            assert_eq!(found, Some(value.as_str()), "{name}:\n{text}");
        }
        fs::remove_file(self.results()).expect("results to remove");
    }
}
