//! The text the tasks work on: the same bytes on every machine. It is short and read many
//! times, so that it stays in the page cache and the disk work is the tasks' own writing.

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
        let text = words(TEXT.0 as usize);
        let write = |name: &str, bytes: &[u8]| {
            let path = workdir.join(name);
            std::fs::write(&path, bytes).map_err(|error| {
                Failure::failed(format!("cannot write {}: {error}", path.display()))
                    .hint("the demo needs about 300 MB; --dir names another place")
            })?;
            Ok::<_, Failure>(path)
        };
        let part = text.get(..PART.0 as usize).unwrap_or(&text);
        let (text, part) = (write("text", &text)?, write("part", part)?);
        Ok(Data { text, part, directory: workdir.to_owned() })
    }
}

/// Lines of eight words of two to seven letters. Low numbers are drawn more often, so that few
/// words are frequent and many are rare, as in a language.
fn words(bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 8);
    let mut random: u64 = 1;
    let mut draw = || {
        // Knuth's MMIX generator; its high bits are good.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    for number in 1_usize.. {
        let octave = 1_u64 << (draw() % 14);
        let mut word = (octave | (draw() & (octave - 1))).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..2 + word % 6 {
            text.push(b'a' + (word >> 32) as u8 % 26);
            word = word.rotate_left(7);
        }
        text.push(if number.is_multiple_of(8) { b'\n' } else { b' ' });
        if text.len() >= bytes {
            break;
        }
    }
    text.truncate(bytes);
    text
}
