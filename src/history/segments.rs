//! Rows in files of bounded size: `<kind>-<number>`, each appended to until it is full; where all of a kind
//! have more bytes than it may, the oldest goes.
//!
//! A row is a mark, its length, a CRC-32 and its bytes, a message of the contract. The checksum begins with
//! the kind and the id of the machine, so that a row of another node fits no better than one that was changed.
//! A reader that finds something else goes on with the next row that fits: damage costs what is damaged.
//!
//! Nothing depends on a clock: a row has its time inside, and what goes first is what was written first.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lrs_host::{files, trust};

const MARK: [u8; 2] = [0xB5, 0x4C];

/// Mark, length and checksum.
const HEAD: usize = 8;

/// The longest row; an ended task with the longest labels has 1.2 KiB.
const MAX_ROW: usize = 8 << 10;

/// A file is full with so many bytes.
const SEGMENT: u64 = 1 << 20;

/// The rows of one kind.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    kind: &'static str,
    /// Most bytes of all its files.
    most: u64,
    sum: crc32fast::Hasher,
    /// Number and bytes of each file, ascending.
    files: Vec<(u64, u64)>,
    /// The last one, once it was written to.
    open: Option<File>,
}

/// Where a row begins: the number of its file times this, and the byte there.
const PLACES: u64 = 1 << 24;

impl Log {
    /// That of `kind` in `dir`, of the machine with this id.
    pub(super) fn open(
        dir: &Path,
        kind: &'static str,
        most: u64,
        machine: &str,
    ) -> io::Result<Log> {
        let mut sum = crc32fast::Hasher::new();
        sum.update(format!("lrs 1 {kind} {machine}\n").as_bytes());
        let mut log = Log { dir: dir.to_owned(), kind, most, sum, files: Vec::new(), open: None };
        log.list()?;
        Ok(log)
    }

    fn list(&mut self) -> io::Result<()> {
        self.open = None;
        self.files.clear();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_prefix(self.kind)?.strip_prefix('-'));
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                self.files.push((number, entry.metadata()?.len()));
            }
        }
        self.files.sort_unstable();
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{}-{number}", self.kind))
    }

    /// Adds a row.
    ///
    /// # Errors
    /// It was not written, nor a part of it that the next one would be taken for.
    pub(super) fn append(&mut self, row: &[u8]) -> io::Result<()> {
        let length = u16::try_from(row.len()).ok().filter(|_| row.len() <= MAX_ROW);
        let length = length.ok_or_else(|| io::Error::other("a row is too long"))?;
        let mut bytes = Vec::with_capacity(HEAD + row.len());
        bytes.extend(MARK);
        bytes.extend(length.to_le_bytes());
        bytes.extend(self.checksum(row).to_le_bytes());
        bytes.extend(row);
        let removed = |file: &File| file.metadata().is_ok_and(|found| found.nlink() == 0);
        if self.open.as_ref().is_some_and(removed) {
            self.list()?;
        }
        let written = self.file(bytes.len() as u64).and_then(|file| file.write_all(&bytes));
        match (written, self.files.last_mut()) {
            (Ok(()), Some((_, length))) => *length += bytes.len() as u64,
            (Err(error), Some((_, length))) => {
                // Where this fails too, a reader passes over the part.
                let _ = self.open.take().map(|file| file.set_len(*length));
                return Err(error);
            }
            (written, None) => return written,
        }
        Ok(())
    }

    /// The file for so many more bytes.
    fn file(&mut self, bytes: u64) -> io::Result<&mut File> {
        let last = self.files.last().copied();
        let goes_on = last.filter(|(_, length)| length + bytes <= SEGMENT);
        if self.open.is_none()
            && let Some((number, _)) = goes_on
        {
            // One that is no file of lrsd's is left alone.
            self.open = trust::open(&self.path(number), OpenOptions::new().append(true)).ok();
        }
        if goes_on.is_none() || self.open.is_none() {
            self.trim()?;
            let number = last.map_or(1, |(number, _)| number.saturating_add(1));
            let mut new = OpenOptions::new();
            self.open =
                Some(new.append(true).create_new(true).mode(0o600).open(self.path(number))?);
            self.files.push((number, 0));
        }
        self.open.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Removes the oldest files until there is room for another one. What cannot be removed is counted on.
    ///
    /// # Errors
    /// So much stays that there is more than twice what may be.
    fn trim(&mut self) -> io::Result<()> {
        let mut stays = Vec::new();
        while self.bytes() + SEGMENT > self.most
            && let Some((number, _)) = self.files.get(stays.len()).copied()
        {
            let path = self.path(number);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let what = "is over the bound of the history and cannot be removed";
                    stays.push(format!("{} {what}: {error}", path.display()));
                }
                _ => drop(self.files.remove(stays.len())),
            }
        }
        if self.bytes() > 2 * self.most
            && let Some(first) = stays.first()
        {
            return Err(io::Error::other(format!("{first}; remove it")));
        }
        for stays in stays {
            tracing::warn!("{stays}");
        }
        Ok(())
    }

    /// Gives rows to `take` from `from` on, as long as it wants the next; answers the first that it did
    /// not want, and how many bytes of which files are no rows.
    pub(super) fn read(
        &self,
        from: u64,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> (Option<u64>, Vec<(PathBuf, usize)>) {
        let (first, byte) = (from / PLACES, (from % PLACES) as usize);
        let mut damage = Vec::new();
        for (number, _) in self.files.iter().filter(|(number, _)| *number >= first) {
            let path = self.path(*number);
            let mut bytes = Vec::new();
            // A file may be larger where another program wrote to it.
            let file = files::open(&path).and_then(|file| {
                let read = file.take(2 * SEGMENT).read_to_end(&mut bytes);
                read.map_err(|error| files::at(&path, "read", error))
            });
            if let Err(error) = file {
                tracing::warn!(%error, "a part of the history is not shown: {error}");
                continue;
            }
            let mut at = if *number == first { byte } else { 0 };
            let (mut rows, begin) = (0, at);
            while let Some((row, begins)) = self.next(&bytes, at) {
                if !take(row) {
                    return (Some(number * PLACES + begins as u64), damage);
                }
                at = begins + HEAD + row.len();
                rows += HEAD + row.len();
            }
            let lost = bytes.len().saturating_sub(begin + rows);
            damage.extend((lost > 0).then_some((path, lost)));
        }
        (None, damage)
    }

    /// The next row that fits its checksum from byte `at` on, and where it begins.
    fn next<'b>(&self, bytes: &'b [u8], mut at: usize) -> Option<(&'b [u8], usize)> {
        loop {
            at += bytes.get(at..)?.windows(MARK.len()).position(|two| two == MARK)?;
            if let Some(row) = self.row(bytes.get(at..)?) {
                return Some((row, at));
            }
            at += 1;
        }
    }

    /// That with which `bytes` begins.
    fn row<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let [_, _, low, high, sum @ ..] = *head;
        let length = usize::from(u16::from_le_bytes([low, high]));
        let row = rest.get(..length).filter(|_| length <= MAX_ROW)?;
        (self.checksum(row) == u32::from_le_bytes(sum)).then_some(row)
    }

    fn checksum(&self, row: &[u8]) -> u32 {
        let mut sum = self.sum.clone();
        sum.update(row);
        sum.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path, machine: &str) -> Log {
        Log::open(dir, "rows", 3 * SEGMENT, machine).unwrap()
    }

    fn all(log: &Log) -> (Vec<String>, usize) {
        let mut rows = Vec::new();
        let (end, damage) = log.read(0, |row| {
            rows.push(String::from_utf8_lossy(row).into_owned());
            true
        });
        assert_eq!(end, None);
        (rows, damage.iter().map(|(_, lost)| lost).sum())
    }

    fn rows(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
        numbers.into_iter().map(|number| format!("row {number}")).collect()
    }

    fn filled(dir: &Path) -> Log {
        let mut log = open(dir, "a");
        rows(1..=9).iter().for_each(|row| log.append(row.as_bytes()).unwrap());
        log
    }

    #[test]
    fn rows_are_read_as_they_were_written_by_this_and_the_next() {
        let dir = tempfile::tempdir().unwrap();
        drop(filled(dir.path()));
        let mut log = open(dir.path(), "a");
        assert_eq!(all(&log), (rows(1..=9), 0));
        log.append(b"row 10").unwrap();
        assert_eq!(all(&log), (rows(1..=10), 0));
        let file = dir.path().join("rows-1").metadata().unwrap();
        assert_eq!(file.mode() & 0o7777, 0o600);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "one file goes on");
        // Page by page.
        let mut taken = 0;
        let (next, _) = log.read(0, |_| {
            taken += 1;
            taken <= 4
        });
        let mut rest = Vec::new();
        log.read(next.unwrap(), |row| {
            rest.push(String::from_utf8_lossy(row).into_owned());
            true
        });
        assert_eq!(rest, rows(5..=10));
    }

    #[test]
    fn damage_costs_what_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows-1");
        drop(filled(dir.path()));
        let whole = std::fs::read(&path).unwrap();
        let each = HEAD + "row 1".len();
        // Any byte of a row, its length included.
        for at in 4 * each..5 * each {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(all(&open(dir.path(), "a")), (rows([1, 2, 3, 4, 6, 7, 8, 9]), each), "{at}");
        }
        // Cut in a row, and gone on with.
        std::fs::write(&path, &whole[..whole.len() - 2]).unwrap();
        let mut log = open(dir.path(), "a");
        log.append(b"row 10").unwrap();
        assert_eq!(all(&log), (rows((1..=8).chain([10])), each - 2));
        // Zeros in the middle, as after a loss of power.
        let mut bytes = whole.clone();
        bytes[each + 3..4 * each].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(all(&open(dir.path(), "a")).0, rows([1, 5, 6, 7, 8, 9]));
    }

    #[test]
    fn rows_of_another_machine_are_not_shown_and_go_when_room_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        drop(filled(dir.path()));
        let mut log = open(dir.path(), "b");
        assert_eq!(all(&log).0, rows([]));
        log.append(b"row 1").unwrap();
        let (seen, lost) = all(&log);
        assert_eq!((seen, lost), (rows([1]), 9 * (HEAD + "row 1".len())));
    }

    #[test]
    fn files_are_bounded_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path(), "a");
        let row = vec![b'x'; MAX_ROW];
        for _ in 0..5 * SEGMENT as usize / MAX_ROW {
            log.append(&row).unwrap();
        }
        assert!(log.append(&vec![0; MAX_ROW + 1]).is_err());
        let files =
            dir.path().read_dir().unwrap().map(|file| file.unwrap().metadata().unwrap().len());
        let bytes: u64 = files.sum();
        assert!((2 * SEGMENT..=3 * SEGMENT).contains(&bytes), "{bytes}");
        assert!(!dir.path().join("rows-1").exists());
        assert_eq!(all(&open(dir.path(), "a")).1, 0);
    }

    #[test]
    fn a_file_that_cannot_be_removed_is_counted_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path(), "a");
        std::fs::create_dir(dir.path().join("rows-1")).unwrap();
        log.files = vec![(1, 4 * SEGMENT)];
        log.append(b"row 1").unwrap();
        assert_eq!(log.files.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
        log.files = vec![(1, 7 * SEGMENT)];
        log.open = None;
        let error = log.append(b"row 2").unwrap_err().to_string();
        assert!(error.contains("rows-1 is over the bound"), "{error}");
        assert_eq!(log.files.len(), 1);
    }

    #[test]
    fn files_that_were_removed_or_are_none_of_lrsds_are_gone_past() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = filled(dir.path());
        std::fs::remove_file(dir.path().join("rows-1")).unwrap();
        log.append(b"row 1").unwrap();
        assert_eq!(all(&log).0, rows([1]));
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("rows-7")).unwrap();
        let mut log = open(dir.path(), "a");
        log.append(b"row 2").unwrap();
        assert_eq!(all(&log).0, rows([1, 2]));
        assert!(dir.path().join("rows-8").exists());
    }
}
