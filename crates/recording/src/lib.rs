//! Recordings of what LRS decided: how they are written, and played again.
//!
//! A recording is a zstd file of [`Entry`]s in MessagePack, each field with its name, so that a later version
//! reads what an earlier one wrote ([`lrs_core::recording`] says what is in them and why). It is a
//! row of small zstd frames: of a file that was cut all whole frames are read. zstd is that of
//! `ruzstd`, which is safe code: a file of others is read here.
//!
//! | file | job |
//! |---|---|
//! | `anonymous` | the same without names |
//! | `replay` | plays it, and compares |
//! | `figures` | what came of the decisions, in numbers |
//! | `words` | an input and a step, in words |
//!
//! Limits. No entry is larger than [`MOST_ENTRY`], no recording than [`MOST_UNPACKED`]; whatever a file
//! says of its lengths, no more is read. lrsd sends entries as they are and leaves the packing to the
//! client ([`encode`], [`Writer`]).

pub mod anonymous;
pub mod figures;
pub mod replay;
pub mod words;

use std::io::{self, BufRead as _, BufReader, Read, Write};

use lrs_core::recording::{Entry, FORMAT, Header};
use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// The most that one entry may have, in bytes: the core of a node with 20,000 tasks.
pub const MOST_ENTRY: u64 = 64 << 20;

/// The most that a recording may have unpacked, in bytes.
pub const MOST_UNPACKED: u64 = 8 << 30;

/// Bytes that are packed together.
const FRAME: usize = 256 << 10;

/// How a zstd frame begins (RFC 8878, 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Why a recording is not read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// It is something else.
    #[error("is no recording of LRS")]
    Foreign,
    /// It was written by a later version.
    #[error(
        "was written by LRS {version} in format {format}; this version reads formats up to {FORMAT}: use one \
         at least as new"
    )]
    Newer {
        /// Its format.
        format: u32,
        /// By which version.
        version: String,
    },
    /// It ends within an entry.
    #[error("is cut: it ends in the middle of an entry")]
    Cut,
    /// It has more than [`MOST_ENTRY`] in one entry, or more than [`MOST_UNPACKED`] in all.
    #[error("is too large: more than 64 MiB in one entry, or 8 GiB unpacked")]
    TooLarge,
    /// Something in it is not what it should be.
    #[error("is damaged: {0}")]
    Damaged(String),
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// An entry as it is in a recording, not packed.
///
/// # Errors
/// A name in it is no text (the path of a group may be any bytes); in words.
pub fn encode(entry: &Entry) -> Result<Vec<u8>, String> {
    rmp_serde::to_vec_named(entry).map_err(|error| error.to_string())
}

/// An entry of [`encode`].
///
/// # Errors
/// It is not one.
pub fn decode(bytes: &[u8]) -> Result<Entry, Bad> {
    rmp_serde::from_slice(bytes).map_err(|error| Bad::Damaged(error.to_string()))
}

/// What begins a recording of this version.
pub fn header() -> Entry {
    Entry::Header(Header { format: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// Packs entries into a file.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    waiting: Vec<u8>,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Into `out`.
    pub fn new(out: W) -> Writer<W> {
        Writer { out, waiting: Vec::new(), written: 0 }
    }

    /// Adds an entry of [`encode`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, entry: &[u8]) -> io::Result<()> {
        self.waiting.extend_from_slice(entry);
        if self.waiting.len() < FRAME { Ok(()) } else { self.flush() }
    }

    /// Writes all that waits.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            let packed = compress_to_vec(&*self.waiting, CompressionLevel::Fastest);
            self.waiting.clear();
            self.out.write_all(&packed)?;
            self.written += packed.len() as u64;
        }
        self.out.flush()
    }

    /// Bytes that are in the file.
    pub fn written(&self) -> u64 {
        self.written
    }
}

/// Takes entries out of a file.
pub struct Reader<R: Read>(BufReader<Frames<R>>);

impl<R: Read> Reader<R> {
    /// Of a file that begins at `from`.
    pub fn new(from: R) -> Reader<R> {
        Reader(BufReader::new(Frames {
            next: Some(BufReader::new(from)),
            frame: None,
            unpacked: 0,
        }))
    }

    /// The first entry, which all recordings have.
    ///
    /// # Errors
    /// It is none, one of a later version, or cut before its first entry.
    pub fn header(&mut self) -> Result<Header, Bad> {
        match self.entry() {
            Ok(Some(Entry::Header(header))) => Ok(header),
            Err(Bad::Newer { format, version }) => Err(Bad::Newer { format, version }),
            Err(Bad::Io(error)) => Err(Bad::Io(error)),
            Err(Bad::Cut) => Err(Bad::Cut),
            _ => Err(Bad::Foreign),
        }
    }

    /// The next entry; `None`: that was all.
    ///
    /// # Errors
    /// See [`Bad`]; nothing can be read behind it.
    pub fn entry(&mut self) -> Result<Option<Entry>, Bad> {
        match self.0.fill_buf() {
            Ok([]) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(bad(error)),
        }
        let mut entry = (&mut self.0).take(MOST_ENTRY);
        let read = rmp_serde::from_read(&mut entry);
        let is_over = entry.limit() == 0;
        match read {
            Ok(Entry::Header(Header { format, version })) if format > FORMAT => {
                Err(Bad::Newer { format, version })
            }
            Ok(entry) => Ok(Some(entry)),
            Err(_) if is_over => Err(Bad::TooLarge),
            Err(
                rmp_serde::decode::Error::InvalidDataRead(error)
                | rmp_serde::decode::Error::InvalidMarkerRead(error),
            ) => Err(bad(error)),
            // What serde itself skips or collects ends in one of these when the file does.
            Err(error) if matches!(self.0.fill_buf(), Ok([])) => {
                drop(error);
                Err(Bad::Cut)
            }
            Err(error) => Err(Bad::Damaged(error.to_string())),
        }
    }
}

/// What a failed read of the file says.
fn bad(error: io::Error) -> Bad {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Bad::Cut,
        io::ErrorKind::FileTooLarge => Bad::TooLarge,
        // So does the decoder, with an error of its own.
        io::ErrorKind::Other | io::ErrorKind::InvalidData => Bad::Damaged(error.to_string()),
        _ => Bad::Io(error),
    }
}

/// What is in a row of zstd frames.
struct Frames<R: Read> {
    /// Behind the present frame; `None` within one.
    next: Option<BufReader<R>>,
    frame: Option<StreamingDecoder<BufReader<R>, ruzstd::decoding::FrameDecoder>>,
    unpacked: u64,
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(mut frame) = self.frame.take() {
                let read = frame.read(to).map_err(|error| self.why(error, &mut frame))?;
                self.unpacked += read as u64;
                if self.unpacked > MOST_UNPACKED {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                if read > 0 || to.is_empty() {
                    self.frame = Some(frame);
                    return Ok(read);
                }
                self.next = Some(frame.into_inner());
            }
            let Some(mut source) = self.next.take() else { return Ok(0) };
            match source.fill_buf()? {
                [] => return Ok(0),
                begin if begin.iter().zip(MAGIC).any(|(found, magic)| *found != magic) => {
                    return Err(io::Error::other("no zstd frame where one should begin"));
                }
                _ => {}
            }
            self.frame = Some(StreamingDecoder::new(source).map_err(io::Error::other)?);
        }
    }
}

impl<R: Read> Frames<R> {
    /// The decoder says of a file that ends what it says of one that is wrong.
    fn why(
        &self,
        error: io::Error,
        frame: &mut StreamingDecoder<BufReader<R>, ruzstd::decoding::FrameDecoder>,
    ) -> io::Error {
        match frame.get_mut().fill_buf() {
            Ok([]) => io::ErrorKind::UnexpectedEof.into(),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests;
