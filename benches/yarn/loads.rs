//! The jobs, with more maps than any setting has containers, so that their number matters.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::dfsio::Files;
use crate::jobs::{self, Ended, Job, Points, Rows, Words};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Reads and computes.
    WordCount,
    /// Reads, sorts and writes all of its data twice.
    Terasort,
    /// Computes.
    Pi,
    /// Hadoop's own benchmark of its file system, TestDFSIO -read: reads, and computes little.
    DfsioRead,
}

impl Load {
    pub const ALL: [Load; 4] = [Load::WordCount, Load::Terasort, Load::Pi, Load::DfsioRead];

    pub fn name(self) -> &'static str {
        match self {
            Load::WordCount => "word-count",
            Load::Terasort => "terasort",
            Load::Pi => "pi",
            Load::DfsioRead => "dfsio-read",
        }
    }
}

/// How large the jobs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Full,
    /// Whether it all works.
    Quick,
}

/// Reduces wait for all maps. By default they take containers from maps and wait in them, the
/// more the fewer containers there are: that would be won against, and is not what is compared.
const OPTIONS: &[&str] = &["-Dmapreduce.job.reduce.slowstart.completedmaps=1.0"];

const REDUCES: u32 = 2;

struct Size {
    maps: u32,
    /// Of eight words each, in each map.
    lines: u32,
    rows: usize,
    samples: u64,
    /// Of a file, one for each map.
    file_mib: u64,
}

const FULL: Size =
    Size { maps: 12, lines: 60_000, rows: 1_200_000, samples: 2_000_000, file_mib: 96 };
const QUICK: Size = Size { maps: 6, lines: 2_000, rows: 60_000, samples: 20_000, file_mib: 2 };

/// The data of the loads in a cluster, made when they are first needed.
pub struct Prepared {
    size: &'static Size,
    words: Option<Words>,
    rows: Option<Rows>,
    /// With how many lie in the circle.
    points: Option<(Points, usize)>,
    files: Option<Files>,
}

/// A job that runs, and where it writes.
pub struct Running {
    load: Load,
    pub job: Job,
    out: Option<PathBuf>,
}

/// One that has ended well, as far as its client says.
pub struct Done {
    load: Load,
    pub ended: Ended,
    out: Option<PathBuf>,
}

impl Running {
    pub fn succeeded(self, cluster: &Cluster) -> Done {
        Done { load: self.load, ended: self.job.succeeded(cluster), out: self.out }
    }
}

impl Prepared {
    pub fn new(effort: Effort) -> Prepared {
        let size = match effort {
            Effort::Full => &FULL,
            Effort::Quick => &QUICK,
        };
        Prepared { size, words: None, rows: None, points: None, files: None }
    }

    /// Makes the data of a load, unless it is there.
    pub fn prepare(&mut self, load: Load, cluster: &mut Cluster) {
        let size = self.size;
        match load {
            Load::WordCount => {
                self.words.get_or_insert_with(|| {
                    Words::write(&cluster.fresh("words"), size.maps, size.lines)
                });
            }
            Load::Terasort => {
                self.rows.get_or_insert_with(|| Rows::make(cluster, size.rows, size.maps));
            }
            Load::Pi => {
                self.points.get_or_insert_with(|| {
                    let points = Points { maps: size.maps.into(), samples: size.samples };
                    let inside = points.inside();
                    (points, inside)
                });
            }
            Load::DfsioRead => {
                self.files.get_or_insert_with(|| Files::write(cluster, size.maps, size.file_mib));
            }
        }
    }

    pub fn start(&self, load: Load, cluster: &mut Cluster) -> Running {
        let (job, out) = match load {
            Load::WordCount => {
                let reduces = format!("-Dmapreduce.job.reduces={REDUCES}");
                let options = [OPTIONS, &[&reduces]].concat();
                let words = self.words.as_ref().expect("prepared");
                let (job, out) = jobs::word_count_with(cluster, words, &options);
                (job, Some(out))
            }
            Load::Terasort => {
                let rows = self.rows.as_ref().expect("prepared");
                let (job, out) = rows.sort(cluster, REDUCES, OPTIONS);
                (job, Some(out))
            }
            Load::Pi => {
                let (points, _) = self.points.as_ref().expect("prepared");
                (points.start(cluster, OPTIONS), None)
            }
            Load::DfsioRead => {
                (self.files.as_ref().expect("prepared").read(cluster, OPTIONS), None)
            }
        };
        Running { load, job, out }
    }

    /// The result is right; then it is removed.
    pub fn check(&self, done: &Done, cluster: &mut Cluster) {
        let maps = done.ended.counter("Launched map tasks");
        assert_eq!(maps, Some(u64::from(self.size.maps)), "{}", done.ended.output);
        let out = || done.out.as_deref().expect("an output");
        match done.load {
            Load::WordCount => {
                self.words.as_ref().expect("prepared").check_counts(&jobs::text_of(out()));
            }
            Load::Terasort => self.rows.as_ref().expect("prepared").check_sorted(cluster, out()),
            Load::Pi => {
                let (points, inside) = self.points.as_ref().expect("prepared");
                points.check_estimate(&done.ended, *inside);
            }
            Load::DfsioRead => self.files.as_ref().expect("prepared").check_read(),
        }
        if let Some(out) = &done.out {
            std::fs::remove_dir_all(out).expect("an output to remove");
        }
    }
}
