//! The class files of a jar, within bounds.
//!
//! Sizes that a zip file declares may be wrong, so what is unpacked is counted while it is
//! unpacked. A class file that cannot be unpacked is left out and named; a file that is no zip
//! file, or exceeds a limit, is an error.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::DeflateDecoder;
use rawzip::{
    CompressionMethod, RECOMMENDED_BUFFER_SIZE, ReaderAt, ZipArchive, ZipArchiveEntryWayfinder,
    ZipLocator,
};
use thiserror::Error;

/// How far before its end a zip file may have its directory's end: 22 bytes and a comment of 64 KiB.
const END_WITHIN: u64 = 22 + 65_536;

/// What is read of a jar at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries, class files or not.
    pub entries: u64,
    /// Bytes of one class file. The largest that javac makes are below 2 MB.
    pub class_bytes: u64,
    /// Bytes of all class files, which are in memory all at once.
    pub total_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { entries: 500_000, class_bytes: 4 << 20, total_bytes: 512 << 20 }
    }
}

/// Why a jar cannot be read.
#[derive(Debug, Error)]
pub enum Fault {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A directory, a device, a pipe.
    #[error("is not a regular file")]
    NotAFile,
    /// Not a zip file, or a broken one.
    #[error("is not a jar (zip file), or a broken one: {0}")]
    NotAJar(rawzip::Error),
    /// More entries than [`Limits::entries`].
    #[error("has more than {0} entries; no jar of a job has so many")]
    TooManyEntries(u64),
    /// More bytes than [`Limits::total_bytes`].
    #[error("unpacks to more than {0} bytes of classes; no jar of a job has so many")]
    TooLarge(u64),
    /// More than [`crate::bytecode::program::MAX_CODE`].
    #[error("its map and reduce methods reach more than {0} instructions; no job has so many")]
    TooMuchCode(usize),
}

/// What a jar has.
#[derive(Debug, Default)]
pub struct Contents {
    /// Class files, each with the name of its entry, unparsed, in the order of the jar.
    pub classes: Vec<(String, Vec<u8>)>,
    /// Class files that could not be unpacked, each with the reason.
    pub skipped: Vec<String>,
}

/// Reads the class files of a jar.
///
/// # Errors
/// See [`Fault`].
pub fn read(path: &Path, limits: &Limits) -> Result<Contents, Fault> {
    // Before it is opened: to open a pipe waits for whoever writes into it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(Fault::NotAFile);
    }
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Fault::NotAFile);
    }
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let archive = ZipLocator::new()
        .max_search_space(END_WITHIN)
        .locate_in_file(file, &mut buffer)
        .map_err(|(_, error)| Fault::NotAJar(error))?;
    contents(&archive, limits)
}

/// The same for a jar in memory.
///
/// # Errors
/// See [`Fault`].
pub fn read_bytes(bytes: &[u8], limits: &Limits) -> Result<Contents, Fault> {
    let archive = ZipLocator::new()
        .max_search_space(END_WITHIN)
        .locate_in_slice(bytes)
        .map_err(|(_, error)| Fault::NotAJar(error))?;
    contents(&ZipArchive::from(archive), limits)
}

fn contents<R: ReaderAt>(archive: &ZipArchive<R>, limits: &Limits) -> Result<Contents, Fault> {
    let mut contents = Contents::default();
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let mut entries = archive.entries(&mut buffer);
    let (mut seen, mut total) = (0, 0);
    while let Some(entry) = entries.next_entry().map_err(Fault::NotAJar)? {
        seen += 1;
        if seen > limits.entries {
            return Err(Fault::TooManyEntries(limits.entries));
        }
        let name = entry.file_path();
        let name: &[u8] = name.as_ref();
        // Copies for newer Java versions of classes that the jar has anyway.
        if !name.ends_with(b".class") || name.starts_with(b"META-INF/") {
            continue;
        }
        let room = limits.class_bytes.min(limits.total_bytes - total);
        match unpack(archive, entry.wayfinder(), entry.compression_method(), room) {
            Ok(bytes) if bytes.len() as u64 <= room => {
                total += bytes.len() as u64;
                contents.classes.push((String::from_utf8_lossy(name).into_owned(), bytes));
            }
            Ok(_) if room < limits.class_bytes => return Err(Fault::TooLarge(limits.total_bytes)),
            Ok(_) => contents.skip(name, &format!("more than {} bytes", limits.class_bytes)),
            Err(reason) => contents.skip(name, &reason),
        }
    }
    Ok(contents)
}

impl Contents {
    fn skip(&mut self, name: &[u8], reason: &str) {
        self.skipped.push(format!("{}: {reason}", String::from_utf8_lossy(name)));
    }
}

/// One byte more than `room` says that there is more.
fn unpack<R: ReaderAt>(
    archive: &ZipArchive<R>,
    at: ZipArchiveEntryWayfinder,
    method: CompressionMethod,
    room: u64,
) -> Result<Vec<u8>, String> {
    let entry = archive.get_entry(at).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = match method {
        CompressionMethod::STORE => {
            entry.verifying_reader(entry.reader()).take(room + 1).read_to_end(&mut bytes)
        }
        CompressionMethod::DEFLATE => {
            let inflated = DeflateDecoder::new(entry.reader());
            entry.verifying_reader(inflated).take(room + 1).read_to_end(&mut bytes)
        }
        other => return Err(format!("compressed by method {}", other.as_u16())),
    };
    read.map_err(|error| error.to_string())?;
    Ok(bytes)
}
