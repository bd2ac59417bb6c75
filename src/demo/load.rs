//! The tasks: real programs of a plain Linux box over the generated text, mixed so that some
//! compute, some wait for the disk and some do both, as on a node that runs several jobs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::data::Data;

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
            Kind::Search => "grep -E with a back reference, CPU",
            Kind::Compress => "gzip | dd oflag=dsync, CPU and disk",
            Kind::Journal => "dd bs=4k oflag=dsync, disk",
            Kind::Sort => "sort and sync, CPU then disk",
            Kind::Hash => "sha256sum, CPU",
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

    /// The command line; `to` is the file it may write.
    fn command(self, data: &Data, to: &Path) -> Vec<OsString> {
        let text = || data.text.clone().into_os_string();
        let word = |text: &str| OsString::from(text);
        let script = |script: &str, arguments: Vec<OsString>| {
            let mut command = vec![word("sh"), word("-c"), word(script), word("sh")];
            command.extend(arguments);
            command
        };
        let with_prefix = |prefix: &str, path: &Path| {
            let mut word = OsString::from(prefix);
            word.push(path);
            word
        };
        match self {
            Kind::Search => {
                let pattern = "([a-z]{2})[a-z]* .*\\1 $";
                let part = data.part.clone().into_os_string();
                vec![word("grep"), word("-c"), word("-E"), word(pattern), part]
            }
            Kind::Compress => script(
                "gzip -6 -c \"$1\" | dd of=\"$2\" bs=16k iflag=fullblock oflag=dsync status=none",
                vec![text(), to.into()],
            ),
            Kind::Journal => vec![
                word("dd"),
                with_prefix("if=", &data.text),
                with_prefix("of=", to),
                word("bs=4k"),
                word("count=2400"),
                word("oflag=dsync"),
                word("status=none"),
            ],
            Kind::Sort => script(
                "sort -S 8M -T \"$1\" -o \"$2\" \"$3\" \"$3\" \"$3\" && sync \"$2\"",
                vec![data.directory.clone().into(), to.into(), text()],
            ),
            Kind::Hash => {
                let mut command = vec![word("sha256sum")];
                command.extend(std::iter::repeat_with(text).take(14));
                command
            }
        }
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
pub(super) fn tasks(kinds: &[Kind], data: &Data, count: usize) -> Vec<Task> {
    kinds
        .iter()
        .cycle()
        .take(count)
        .enumerate()
        .map(|(index, &kind)| {
            let name = format!("{}-{}", kind.word(), index + 1);
            let output = data.directory.join(format!("out-{name}"));
            Task { kind, command: kind.command(data, &output), name, output }
        })
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
