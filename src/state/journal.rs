//! The history on disk: one JSON event a line, appended before anybody is told.
//!
//! A segment starts with the books as they stood then ([`Books`]), so that older segments
//! may go: two are kept. An event is one `write` of one line; a daemon killed in the middle
//! leaves at most a torn last line, which is dropped and said. Nothing is synced to the disk:
//! the runtime directory lives in memory and has to outlive the daemon, not the machine.
//!
//! When an append fails (a full disk), the event stays in the books and in the history in
//! memory; the next append starts a new segment with those books, so that no count is lost and
//! only the text of the events in between is.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use lrs_host::files::at;

use super::{Damage, StateError};
use crate::core::books::Books;
use crate::core::event::Event;

/// Format of the segments this daemon writes and reads.
const VERSION: u32 = 1;

/// Events kept in memory for `events --since` and `why`.
pub const EVENTS_KEPT: usize = 4096;

/// A segment is closed after this many events. Two are kept, so that the ring in memory is
/// full again after a restart.
const SEGMENT_EVENTS: usize = EVENTS_KEPT;

/// Or after so many bytes of events; ordinary ones have about 350.
const SEGMENT_BYTES: usize = 4 << 20;

/// No line is longer; guards recovery against a file that is something else.
const MAX_SEGMENT_READ: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Header {
    journal: u32,
    standing: Books,
}

/// The open history.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    number: u64,
    /// `None` after a failure: the next append starts a new segment.
    file: Option<File>,
    /// Events in the present segment, and their bytes.
    filled: (usize, usize),
    /// Segments on disk before the present one.
    older: Vec<u64>,
    standing: Books,
}

/// What was in the history.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Kept events, oldest first.
    pub events: Vec<Event>,
    /// Lines and files that could not be read.
    pub damaged: Vec<Damage>,
}

impl Journal {
    /// Opens the history in `dir`, or begins one with `epoch` in its ids.
    pub fn open(dir: &Path, epoch: u32) -> Result<(Journal, Replayed), StateError> {
        let mut replayed = Replayed::default();
        let mut segments = segments(dir)?;
        segments.sort_unstable();
        let mut standing: Option<Books> = None;
        let mut last_is_whole = true;
        let mut filled = (0, 0);
        for number in &segments {
            let damaged = replayed.damaged.len();
            filled = read_segment(&segment_path(dir, *number), &mut standing, &mut replayed)?;
            last_is_whole = replayed.damaged.len() == damaged;
        }
        let mut standing = standing.unwrap_or_default();
        if standing.counters.epoch == 0 {
            standing.counters.epoch = epoch;
        }
        let number = segments.pop().unwrap_or(0);
        let older = segments;
        let mut journal =
            Journal { dir: dir.to_owned(), number, file: None, filled, older, standing };
        // A daemon restarted often must not push its own history out: a whole segment goes on.
        // A torn one is closed, so that its last line stays the only one lost.
        if number == 0 {
            journal.begin_segment()?;
        } else if last_is_whole {
            journal.continue_segment()?;
        } else if let Err(error) = journal.begin_segment() {
            // A full disk tears lines; a daemon that does not start for it would leave the
            // tasks alone. Every append tries again, and says so.
            tracing::debug!(%error, "the history goes on in memory: {error}");
        }
        Ok((journal, replayed))
    }

    /// The books.
    pub fn standing(&self) -> &Books {
        &self.standing
    }

    /// Adds one event. On an error the event is in the books but not on the disk.
    pub fn append(&mut self, event: &Event) -> Result<(), StateError> {
        self.standing.fold(event);
        if self.file.is_none() || self.filled.0 >= SEGMENT_EVENTS || self.filled.1 >= SEGMENT_BYTES
        {
            self.begin_segment()?;
        }
        let path = segment_path(&self.dir, self.number);
        let mut line = serde_json::to_vec(event).map_err(|e| at(&path, "write", e.into()))?;
        line.push(b'\n');
        let Some(file) = &mut self.file else { return Ok(()) };
        match file.write_all(&line) {
            Ok(()) => {
                self.filled.0 += 1;
                self.filled.1 += line.len();
                Ok(())
            }
            Err(error) => {
                self.file = None;
                Err(at(&path, "append to", error))
            }
        }
    }

    /// Begins the segment that an append which failed made necessary.
    pub fn resume(&mut self) -> Result<(), StateError> {
        if self.file.is_some() { Ok(()) } else { self.begin_segment() }
    }

    fn continue_segment(&mut self) -> Result<(), StateError> {
        let path = segment_path(&self.dir, self.number);
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(|error| at(&path, "open", error))?;
        self.file = Some(file);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn break_for_test(&mut self) {
        self.file = None;
    }

    fn begin_segment(&mut self) -> Result<(), StateError> {
        self.file = None;
        let number = self.number + 1;
        let path = segment_path(&self.dir, number);
        let header = Header { journal: VERSION, standing: self.standing.clone() };
        let mut line = serde_json::to_vec(&header).map_err(|e| at(&path, "write", e.into()))?;
        line.push(b'\n');
        super::files::write_atomically(&path, &line)?;
        if self.number > 0 {
            self.older.push(self.number);
        }
        self.number = number;
        self.filled = (0, 0);
        self.continue_segment()?;
        while self.older.len() > 1 {
            super::files::remove(&segment_path(&self.dir, self.older[0]))?;
            self.older.remove(0);
        }
        Ok(())
    }
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("journal-{number:010}.jsonl"))
}

fn segments(dir: &Path) -> Result<Vec<u64>, StateError> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| at(dir, "list", error))? {
        let name = entry.map_err(|error| at(dir, "list", error))?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("journal-"))
            .and_then(|name| name.strip_suffix(".jsonl"))
            .and_then(|number| number.parse::<u64>().ok());
        numbers.extend(number);
    }
    Ok(numbers)
}

fn read_segment(
    path: &Path,
    standing: &mut Option<Books>,
    replayed: &mut Replayed,
) -> Result<(usize, usize), StateError> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_SEGMENT_READ).read_to_end(&mut text))
        .map_err(|error| at(path, "read", error))?;
    let mut damage = |what: String| {
        replayed.damaged.push(Damage { path: path.to_owned(), what });
    };
    let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    match lines.next().map(serde_json::from_slice::<Header>) {
        Some(Ok(header)) if header.journal == VERSION => {
            // The books of a later segment include those before; its header wins, which also
            // brings in what an append that failed could not write.
            let books = standing.get_or_insert_with(Books::default);
            if header.standing.counters.next_seq >= books.counters.next_seq {
                *books = header.standing;
            }
        }
        Some(Ok(header)) => {
            damage(format!("is of format {}, this lrsd reads {}", header.journal, VERSION));
            return Ok((0, 0));
        }
        Some(Err(error)) => damage(format!("begins with a line that is no header: {error}")),
        None => damage("is empty".into()),
    }
    let mut torn = 0u32;
    let mut filled = (0, 0);
    for line in lines {
        match serde_json::from_slice::<Event>(line) {
            Ok(event) => {
                filled.0 += 1;
                filled.1 += line.len();
                standing.get_or_insert_with(Books::default).fold(&event);
                let newest = replayed.events.last().map_or(0, |last| last.seq);
                if event.seq > newest {
                    replayed.events.push(event);
                }
            }
            Err(_) => torn += 1,
        }
    }
    if torn > 0 {
        damage(format!("has {torn} lines that are no events; they are lost"));
    } else if !text.ends_with(b"\n") {
        // The event is whole, but the next one must not be glued to it.
        damage("ends in the middle of a line".into());
    }
    Ok(filled)
}
