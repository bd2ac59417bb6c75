//! The text the tasks work on: the same bytes on every machine. It is short and read many
//! times, so that it stays in the page cache and the disk work is the tasks' own writing.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

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
    let mut file = BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    let mut random = XorShift(0x9e37_79b9_7f4a_7c15);
    let mut line = Vec::with_capacity(64);
    let mut written = 0;
    while written < size.0 {
        line.clear();
        for _ in 0..8 {
            let mut bits = random.next();
            for _ in 0..3 + bits % 5 {
                bits /= 7;
                line.push(b'a' + (bits % 26) as u8);
            }
            line.push(b' ');
        }
        line.push(b'\n');
        file.write_all(&line).map_err(failed)?;
        written += line.len() as u64;
    }
    file.flush().map_err(failed)
}

/// Marsaglia, "Xorshift RNGs", 2003: even enough for text that neither compresses away nor
/// resists compression.
struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
