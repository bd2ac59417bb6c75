//! The tasks: real programs of a plain Linux box over the generated text, mixed so that some
//! compute, some wait for the disk and some do both, as on a node that runs several jobs.
//!
//! List and order are fixed. How much one task does is fitted to the machine once
//! ([`super::size`]) and then the same in every setting.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::data::{Data, PART, TEXT};
use crate::units::Bytes;

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A search with a back reference: CPU only.
    Search,
    /// gzip into a file that is on disk before it goes on: CPU and disk.
    Compress,
    /// Small synchronous writes, as a database's log: disk only.
    Journal,
    /// Merge sort with its result forced to disk at the end.
    Sort,
    /// SHA-256: CPU only.
    Hash,
}

/// One round, in the order of submission. The first two land on the first core each.
pub(super) const ROUND: [Kind; 6] =
    [Kind::Search, Kind::Compress, Kind::Journal, Kind::Sort, Kind::Hash, Kind::Journal];

impl Kind {
    /// The word in names and tables.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Search => "search",
            Kind::Compress => "compress",
            Kind::Journal => "journal",
            Kind::Sort => "sort",
            Kind::Hash => "hash",
        }
    }

    /// What it runs, for the reader of the report.
    pub(super) fn story(self) -> &'static str {
        match self {
            Kind::Search => "grep -E with a back reference: CPU",
            Kind::Compress => "gzip | dd oflag=dsync: CPU and disk",
            Kind::Journal => "dd bs=4k oflag=dsync: disk",
            Kind::Sort => "sort and sync: CPU, then disk",
            Kind::Hash => "sha256sum: CPU",
        }
    }

    /// The bytes one unit reads, or for the journal writes.
    pub(super) fn unit(self) -> Bytes {
        match self {
            Kind::Search => PART,
            Kind::Compress | Kind::Sort | Kind::Hash => TEXT,
            Kind::Journal => Bytes(4 << 10),
        }
    }

    /// Units of a first, short trial.
    pub(super) fn trial(self) -> u32 {
        match self {
            Kind::Search | Kind::Compress => 2,
            Kind::Journal => 50,
            Kind::Sort => 12,
            Kind::Hash => 40,
        }
    }

    /// The most units of one task: what a disk can spare and a command line can hold. Machines
    /// for which that is little have shorter tasks.
    pub(super) fn most(self) -> u32 {
        match self {
            Kind::Search | Kind::Hash => 2_000,
            Kind::Compress | Kind::Sort => 64,
            Kind::Journal => 16_384,
        }
    }

    fn programs(self) -> &'static [&'static str] {
        match self {
            Kind::Search => &["grep"],
            Kind::Compress => &["sh", "gzip", "dd"],
            Kind::Journal => &["dd"],
            Kind::Sort => &["sh", "sort", "sync"],
            Kind::Hash => &["sha256sum"],
        }
    }

    /// The command line for `units` of work; `to` is the file it may write.
    pub(super) fn command(self, units: u32, data: &Data, to: &Path) -> Vec<OsString> {
        let word = |text: &str| OsString::from(text);
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let inputs = |file: &Path| std::iter::repeat_n(file.as_os_str().to_owned(), units as usize);
        let mut command;
        match self {
            Kind::Search => {
                command = words(&["grep", "-c", "-E", "([a-z]{2})[a-z]* .*\\1$"]);
                command.extend(inputs(&data.part));
            }
            Kind::Compress => {
                let script = "to=$1; shift; \
                    gzip -6 -c \"$@\" | dd of=\"$to\" bs=16k iflag=fullblock oflag=dsync status=none";
                command = words(&["sh", "-c", script, "sh"]);
                command.push(to.into());
                command.extend(inputs(&data.text));
            }
            Kind::Journal => {
                let mut of = word("of=");
                of.push(to);
                command = words(&["dd", "if=/dev/zero", "bs=4k", "oflag=dsync", "status=none"]);
                command.extend([of, word(&format!("count={units}"))]);
            }
            Kind::Sort => {
                // 8 MiB of memory: it merges from temporary files, and in one thread
                let script = "to=$1; tmp=$2; shift 2; \
                    sort -S 8M -T \"$tmp\" -o \"$to\" \"$@\" && sync \"$to\"";
                command = words(&["sh", "-c", script, "sh"]);
                command.extend([to.into(), data.directory.clone().into()]);
                command.extend(inputs(&data.text));
            }
            Kind::Hash => {
                command = words(&["sha256sum"]);
                command.extend(inputs(&data.text));
            }
        }
        command
    }
}

/// A kind and how much of it one task does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) kind: Kind,
    pub(super) units: u32,
}

impl Work {
    /// One task of it.
    pub(super) fn task(self, name: String, data: &Data) -> Task {
        let output = data.directory.join(format!("out-{name}"));
        let command = self.kind.command(self.units, data, &output);
        Task { kind: self.kind, name, command, output }
    }

    /// `dd bs=4k oflag=dsync: disk, 3.2 MiB`
    pub(super) fn story(self) -> String {
        let bytes = self.kind.unit().0.saturating_mul(u64::from(self.units));
        format!("{}, {}", self.kind.story(), Bytes(bytes))
    }
}

/// One task of a stage.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) kind: Kind,
    /// `search-1`
    pub(super) name: String,
    pub(super) command: Vec<OsString>,
    /// The file it writes, to be removed after it.
    pub(super) output: PathBuf,
}

/// The same tasks in the same order for every stage.
pub(super) fn tasks(round: &[Work], data: &Data, count: usize) -> Vec<Task> {
    let works = round.iter().cycle().take(count).enumerate();
    works
        .map(|(index, work)| work.task(format!("{}-{}", work.kind.word(), index + 1), data))
        .collect()
}

/// The round less what this machine has no program for, and the programs missing.
pub(super) fn available() -> (Vec<Kind>, Vec<&'static str>) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &&str| std::env::split_paths(&path).any(|place| place.join(program).is_file());
    let (mut kinds, mut missing) = (Vec::new(), Vec::new());
    for kind in ROUND {
        let lacks: Vec<_> = kind.programs().iter().copied().filter(|p| !is_there(p)).collect();
        if lacks.is_empty() {
            kinds.push(kind);
        }
        missing.extend(lacks);
    }
    missing.sort_unstable();
    missing.dedup();
    (kinds, missing)
}
