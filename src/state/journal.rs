//! The history on disk: one JSON event a line, appended before any client has its answer.
//!
//! A segment starts with the totals as they were then ([`HistoryState`]), so that older segments
//! may go: two are kept. Events of tasks that run do not go with them: a new segment begins with those
//! that are in neither of the two. An event is one `write` of one line; a daemon killed in the middle
//! leaves at most a torn last line, which is dropped with a warning. Nothing is synced to the disk:
//! the runtime directory lives in memory and has to outlive the daemon, not the machine.
//!
//! Limits. Over a restart a flood of one user leaves of ended tasks only what the two segments have; a
//! running task has the last event of each kind, and nothing says that others were there.
//!
//! When an append fails (a full disk), the event stays in the totals and in the history in
//! memory; the next append starts a new segment with those totals, so that no count is lost and
//! only the text of the events in between is. Where that fails too, each cycle tries again.
//!
//! Every line has a [`checksum`]. Of a segment with lines that do not fit theirs the others are kept and
//! written anew, and the file as it was is set aside.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use lrs_host::files::at;

use super::checksum::{self, Checked};
use super::{Damage, FORMAT, StateError, aside, record};
use crate::core::event::Event;
use crate::core::history::{KeptEvents, Packed};
use crate::core::history_state::HistoryState;

/// Events kept in memory for `events --since` and `why`.
pub const EVENTS_KEPT: usize = 4096;

/// A segment is closed after this many events. Two are kept, so that the ring in memory is
/// full again after a restart.
const SEGMENT_EVENTS: usize = EVENTS_KEPT;

/// Or after so many bytes of events; ordinary ones have about 350.
const SEGMENT_BYTES: usize = 4 << 20;

/// No line is longer; guards recovery against a file that is something else. A segment may be of any
/// length: with 10,000 tasks that run it begins with 10 MB of their events.
const MAX_LINE: u64 = 64 << 20;

#[derive(Clone, Serialize, Deserialize)]
struct Header {
    /// The [`FORMAT`].
    journal: u32,
    standing: HistoryState,
}

impl Header {
    fn of(standing: HistoryState) -> Header {
        Header { journal: FORMAT, standing }
    }
}

/// The open history.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    number: u64,
    /// `None` after a failure: the next append starts a new segment, unless that failed before.
    file: Option<File>,
    /// The last attempt to begin a segment failed. Each takes a copy of the whole history state, too much
    /// for every event of a full disk: [`Journal::begin_anew`] tries again, once a cycle.
    begin_failed: bool,
    /// Events in the present segment, and their bytes.
    filled: (usize, usize),
    /// Segments on disk before the present one.
    older: Vec<u64>,
    standing: HistoryState,
    /// Sequence number with which the present segment began.
    began: u64,
    /// Events of tasks that run.
    running: KeptEvents,
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
        let mut standing: Option<HistoryState> = None;
        let mut last_can_go_on = true;
        let (mut began, mut filled) = (0, (0, 0));
        for number in &segments {
            let path = segment_path(dir, *number);
            let segment = read_segment(&path, standing.as_ref())?;
            last_can_go_on = segment.damage.is_none();
            if let Some(what) = &segment.damage {
                let what = segment.mend(&path, what);
                replayed.damaged.push(Damage { path, what });
            }
            (began, filled) = (segment.began(), segment.filled);
            segment.fold(&mut standing, &mut replayed.events);
        }
        let mut standing = standing.unwrap_or_default();
        if standing.counters.epoch == 0 {
            standing.counters.epoch = epoch;
        }
        replayed.events.sort_by_key(|event| event.seq);
        replayed.events.dedup_by_key(|event| event.seq);
        let number = segments.pop().unwrap_or(0);
        let older = segments;
        let (dir, running) = (dir.to_owned(), KeptEvents::new(1));
        let (file, begin_failed) = (None, false);
        let mut journal =
            Journal { dir, number, file, begin_failed, filled, older, standing, began, running };
        replayed.events.iter().for_each(|event| journal.note(event));
        // A daemon restarted often must not push its own history out: a whole segment goes on.
        // A damaged one is closed.
        if number == 0 {
            journal.begin_segment()?;
        } else if last_can_go_on {
            journal.continue_segment()?;
        } else if let Err(error) = journal.begin_segment() {
            // A full disk tears lines; a daemon that does not start for it would leave the
            // tasks alone. Every cycle tries again, and says so.
            tracing::debug!(%error, "the history goes on in memory: {error}");
        }
        Ok((journal, replayed))
    }

    /// The totals.
    pub fn standing(&self) -> &HistoryState {
        &self.standing
    }

    fn note(&mut self, event: &Event) {
        if event.task.is_some() {
            self.running.push(Packed::of(event));
        }
    }

    /// Adds one event. On an error the event is in the totals but not on the disk.
    pub fn append(&mut self, event: &Event) -> Result<(), StateError> {
        self.standing.fold(event);
        self.note(event);
        if self.file.is_none() && self.begin_failed {
            let path = segment_path(&self.dir, self.number + 1);
            let again = std::io::Error::other(
                "it could not be written before, and the next cycle tries again",
            );
            return Err(at(&path, "begin", again));
        }
        if self.file.is_none() || self.filled.0 >= SEGMENT_EVENTS || self.filled.1 >= SEGMENT_BYTES
        {
            self.begin_segment()?;
        }
        let path = segment_path(&self.dir, self.number);
        let line = line_of(event)?;
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

    /// Whether the segment that is written to is the file under its name. One that was removed still
    /// takes what is written to it, and then loses it.
    pub fn is_in_place(&self) -> bool {
        let Some(open) = self.file.as_ref().and_then(|file| file.metadata().ok()) else {
            return false;
        };
        let named = segment_path(&self.dir, self.number).symlink_metadata();
        named.is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino()))
    }

    /// Begins a segment in place of one that cannot be written, or was removed.
    pub fn begin_anew(&mut self) -> Result<(), StateError> {
        self.file = None;
        self.begin_segment()
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
        let begun = self.try_to_begin_segment();
        self.begin_failed = begun.is_err();
        begun
    }

    fn try_to_begin_segment(&mut self) -> Result<(), StateError> {
        let lost_some = self.file.take().is_none();
        let number = self.number + 1;
        let path = segment_path(&self.dir, number);
        let mut text = line_of(&Header::of(self.standing.clone()))?;
        // The present segment stays, with what it has.
        let began = self.began;
        let running = self.running.of_running().filter(|event| lost_some || event.seq < began);
        for event in running.filter_map(|event| event.event()) {
            text.extend(line_of(&*event)?);
        }
        super::files::write_atomically(&path, &text)?;
        self.began = self.standing.counters.next_seq;
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

/// An object as a line of the journal.
fn line_of<T: Serialize>(object: &T) -> Result<Vec<u8>, StateError> {
    let mut line = checksum::add(serde_json::to_vec(object)?);
    line.push(b'\n');
    Ok(line)
}

/// The object in a line without its end; `None`: it is not as lrsd wrote it. A key that is not known is
/// a newer daemon's.
fn object_in<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    match checksum::check(line) {
        Checked::Fits(object) => serde_json::from_slice(&object).ok(),
        Checked::Absent | Checked::Differs => None,
    }
}

/// The format that the first line of a segment names; `None`: it names none.
fn format_of(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Head {
        journal: u64,
    }
    let object = match checksum::check(line) {
        Checked::Fits(object) => object,
        // Another format may have none.
        Checked::Absent => line.to_owned(),
        Checked::Differs => return None,
    };
    serde_json::from_slice::<Head>(&object).ok().map(|head| head.journal)
}

/// A line without its end.
fn content(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// What can be read of one segment.
struct Segment {
    header: Header,
    events: Vec<Event>,
    /// Events of its own, without those of tasks that ran when it began, and the bytes of their lines.
    filled: (usize, usize),
    /// What is wrong with the rest.
    damage: Option<String>,
}

/// `before`: the totals of the segments before, which stand for those of a header that is damaged.
///
/// # Errors
/// It could not be read, and may be whole.
fn read_segment(path: &Path, before: Option<&HistoryState>) -> Result<Segment, StateError> {
    let header = Header::of(before.cloned().unwrap_or_default());
    let mut segment = Segment { header, events: Vec::new(), filled: (0, 0), damage: None };
    let mut file = match super::files::open(path) {
        Ok(file) => file,
        Err(error) if error.is_objection() => {
            segment.damage = Some(error.to_string());
            return Ok(segment);
        }
        Err(error) => return Err(error),
    };
    let mut next_line = || -> Result<Option<Vec<u8>>, StateError> {
        let mut line = Vec::new();
        let read = (&mut file).take(MAX_LINE).read_until(b'\n', &mut line);
        read.map_err(|error| at(path, "read", error))?;
        Ok((!line.is_empty()).then_some(line))
    };
    let mut damage = Vec::new();
    let first = next_line()?;
    let mut is_torn = first.as_ref().is_some_and(|line| !line.ends_with(b"\n"));
    match first.as_deref().map(content) {
        None => damage.push("is empty".to_owned()),
        Some(line) => match (format_of(line), object_in(line)) {
            (Some(format), _) if format != u64::from(FORMAT) => {
                segment.damage = Some(record::other_format(format));
                return Ok(segment);
            }
            (_, Some(header)) => segment.header = header,
            (_, None) => damage.push("begins with a line that is no header".to_owned()),
        },
    }
    let mut lost = 0u32;
    while let Some(line) = next_line()? {
        is_torn = !line.ends_with(b"\n");
        match object_in::<Event>(content(&line)) {
            Some(event) => {
                if event.seq >= segment.began() {
                    segment.filled.0 += 1;
                    segment.filled.1 += line.len();
                }
                segment.events.push(event);
            }
            None => lost += u32::from(!content(&line).is_empty()),
        }
    }
    if lost > 0 {
        damage.push(format!("has {lost} lines that are no events, or were changed; they are lost"));
    } else if is_torn {
        // The event is whole, but the next one must not be glued to it.
        damage.push("ends in the middle of a line".to_owned());
    }
    segment.damage = (!damage.is_empty()).then(|| damage.join(", and "));
    Ok(segment)
}

impl Segment {
    /// Sets the damaged file at `path` aside and writes what can be read of it in its place. Answers
    /// what the warning names.
    fn mend(&self, path: &Path, what: &str) -> String {
        let mended = || -> Result<(), StateError> {
            let mut text = line_of(&Header::of(self.header.standing.clone()))?;
            for event in &self.events {
                text.extend(line_of(event)?);
            }
            super::files::write_atomically(path, &text)
        };
        let aside = match aside::set(path) {
            Ok(aside) => aside,
            Err(error) => return format!("{what}; it could not be renamed: {error}"),
        };
        match mended() {
            Ok(()) => format!("{what}; kept as {}", aside.display()),
            Err(error) => {
                // A full disk: the next start finds it as it was, and tries again.
                let back = std::fs::rename(&aside, path).map_err(|error| at(path, "rename", error));
                let kept = back.map_or_else(|error| format!("; {error}"), |()| String::new());
                format!("{what}; what can be read of it could not be written anew: {error}{kept}")
            }
        }
    }

    /// Sequence number of the first event of its own.
    fn began(&self) -> u64 {
        self.header.standing.counters.next_seq
    }

    /// Adds it to the totals and to the history, where events may be out of order and twice then.
    fn fold(self, standing: &mut Option<HistoryState>, history: &mut Vec<Event>) {
        // The totals of a later segment include those before; its header wins, which also
        // brings in what an append that failed could not write.
        let history_state = standing.get_or_insert_with(HistoryState::default);
        if self.header.standing.counters.next_seq >= history_state.counters.next_seq {
            *history_state = self.header.standing;
        }
        for event in self.events {
            history_state.fold(&event);
            history.push(event);
        }
    }
}
