//! The text the tasks work on: the same bytes on every machine. It is short and read many
//! times, so that it stays in the page cache and the disk work is the tasks' own writing.

use std::path::{Path, PathBuf};

use crate::bench::data::{Kind, generate};
use crate::cli::Failure;
use crate::units::Bytes;

/// Size of the text.
pub(super) const TEXT: Bytes = Bytes(1 << 20);

/// Part of the text for the search, which takes long over each byte.
pub(super) const PART: Bytes = Bytes(128 << 10);

/// Where it is.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) text: PathBuf,
    pub(super) part: PathBuf,
    pub(super) directory: PathBuf,
}

impl Data {
    /// Writes both files into `workdir`.
    pub(super) fn generate(workdir: &Path) -> Result<Data, Failure> {
        let text = workdir.join("text");
        let part = workdir.join("part");
        write(&text, TEXT)?;
        write(&part, PART)?;
        Ok(Data { text, part, directory: workdir.to_owned() })
    }
}

fn write(path: &Path, size: Bytes) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("cannot write {}: {error}", path.display()))
            .hint("the demo needs about 300 MB; --dir names another place")
    };
    let mut file = std::fs::File::create(path).map_err(failed)?;
    generate(Kind::Text, size.0, 0, &mut file).map_err(failed)
}
