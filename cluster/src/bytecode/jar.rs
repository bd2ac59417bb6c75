//! The class files of a jar and of the jars in it, within bounds, as a version of Java reads them.
//!
//! A jar that says so in its manifest may have other files of a class for newer versions of Java
//! (`META-INF/versions/17`): the newest of those that the version knows is read. A jar in the jar is
//! opened, one in that is not.
//!
//! Sizes that a zip file declares may be wrong, so what is unpacked is counted while it is
//! unpacked. A class file that cannot be unpacked is left out and named; a file that is no zip
//! file, or exceeds a limit, is an error.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::read::DeflateDecoder;
use lrs_host::trust::open_regular;
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
    /// Bytes of all class files, which are in memory all at once, and of jars in the jar.
    pub total_bytes: u64,
    /// The version of Java that runs the job.
    pub java: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { entries: 500_000, class_bytes: 4 << 20, total_bytes: 512 << 20, java: 17 }
    }
}

/// Why a jar cannot be read.
#[derive(Debug, Error)]
pub enum Fault {
    /// The file cannot be opened or read, or is no regular file.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
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
    /// Those of jars in the jar.
    pub nested: Vec<(String, Vec<u8>)>,
    /// Class files that could not be unpacked, each with the reason.
    pub skipped: Vec<String>,
}

/// Reads the class files of a jar.
///
/// # Errors
/// See [`Fault`].
pub fn read(path: &Path, limits: &Limits) -> Result<Contents, Fault> {
    let file = open_regular(path)?;
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let archive = ZipLocator::new()
        .max_search_space(END_WITHIN)
        .locate_in_file(file, &mut buffer)
        .map_err(|(_, error)| Fault::NotAJar(error))?;
    whole(&archive, limits)
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
    whole(&ZipArchive::from(archive), limits)
}

fn whole<R: ReaderAt>(archive: &ZipArchive<R>, limits: &Limits) -> Result<Contents, Fault> {
    let mut reading = Reading { limits, seen: 0, total: 0, contents: Contents::default() };
    reading.jar(archive, "")?;
    Ok(reading.contents)
}

/// What has been read so far.
struct Reading<'a> {
    limits: &'a Limits,
    seen: u64,
    total: u64,
    contents: Contents,
}

impl Reading<'_> {
    /// One jar; `within` is the entry that it is, with a `!`, or empty.
    fn jar<R: ReaderAt>(&mut self, archive: &ZipArchive<R>, within: &str) -> Result<(), Fault> {
        let versions = self.versions(archive)?;
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let mut entries = archive.entries(&mut buffer);
        while let Some(entry) = entries.next_entry().map_err(Fault::NotAJar)? {
            let path = entry.file_path();
            let path: &[u8] = path.as_ref();
            let is_jar = path.ends_with(b".jar") && within.is_empty();
            let (version, name) = version(path);
            let is_class = path.ends_with(b".class")
                && (version > 0 || !path.starts_with(b"META-INF/"))
                && versions.get(name).copied().unwrap_or(0) == version;
            if !is_jar && !is_class {
                continue;
            }
            let left = self.limits.total_bytes - self.total;
            let room = if is_jar { left } else { self.limits.class_bytes.min(left) };
            let name = format!("{within}{}", String::from_utf8_lossy(path));
            match unpack(archive, entry.wayfinder(), entry.compression_method(), room) {
                Ok(bytes) if bytes.len() as u64 <= room => {
                    self.total += bytes.len() as u64;
                    if is_jar {
                        self.nested(&bytes, &name)?;
                    } else if within.is_empty() {
                        self.contents.classes.push((name, bytes));
                    } else {
                        self.contents.nested.push((name, bytes));
                    }
                }
                Ok(_) if room == left => return Err(Fault::TooLarge(self.limits.total_bytes)),
                Ok(_) => self.skip(&name, &format!("more than {} bytes", self.limits.class_bytes)),
                Err(reason) => self.skip(&name, &reason),
            }
        }
        Ok(())
    }

    fn nested(&mut self, bytes: &[u8], name: &str) -> Result<(), Fault> {
        let located = ZipLocator::new().max_search_space(END_WITHIN).locate_in_slice(bytes);
        let read = match located {
            Ok(archive) => self.jar(&ZipArchive::from(archive), &format!("{name}!")),
            Err((_, error)) => Err(Fault::NotAJar(error)),
        };
        match read {
            Err(fault @ Fault::NotAJar(_)) => {
                self.skip(name, &fault.to_string());
                Ok(())
            }
            read => read,
        }
    }

    /// The newest version of each class file that has some for newer versions of Java.
    fn versions<R: ReaderAt>(
        &mut self,
        archive: &ZipArchive<R>,
    ) -> Result<BTreeMap<Vec<u8>, u32>, Fault> {
        let (mut versions, mut is_multi) = (BTreeMap::new(), false);
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let mut entries = archive.entries(&mut buffer);
        while let Some(entry) = entries.next_entry().map_err(Fault::NotAJar)? {
            self.seen += 1;
            if self.seen > self.limits.entries {
                return Err(Fault::TooManyEntries(self.limits.entries));
            }
            let path = entry.file_path();
            let path: &[u8] = path.as_ref();
            if path == b"META-INF/MANIFEST.MF" {
                let room = self.limits.class_bytes;
                let method = entry.compression_method();
                let text = unpack(archive, entry.wayfinder(), method, room).unwrap_or_default();
                is_multi = String::from_utf8_lossy(&text).lines().any(|line| {
                    line.split_once(':').is_some_and(|(key, value)| {
                        key.eq_ignore_ascii_case("Multi-Release")
                            && value.trim().eq_ignore_ascii_case("true")
                    })
                });
            }
            let (version, name) = version(path);
            if (9..=self.limits.java).contains(&version) {
                let newest = versions.entry(name.to_vec()).or_insert(version);
                *newest = version.max(*newest);
            }
        }
        Ok(if is_multi { versions } else { BTreeMap::new() })
    }

    fn skip(&mut self, name: &str, reason: &str) {
        self.contents.skipped.push(format!("{name}: {reason}"));
    }
}

/// The version of Java that an entry is for, 0 for any, and its name without that.
fn version(path: &[u8]) -> (u32, &[u8]) {
    let read = || {
        let rest = path.strip_prefix(b"META-INF/versions/")?;
        let end = rest.iter().position(|byte| *byte == b'/')?;
        Some((std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?, &rest[end + 1..]))
    };
    read().unwrap_or((0, path))
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
