//! Lines on their way out: in memory, bounded, so that whoever logs never waits for who reads.
//!
//! One thread writes ([`write_all`]), the only one that may wait for a terminal, a pipe or journald.
//! What does not fit, and what could not be written, is counted; once lines get out again the log says
//! how many are missing, and until then [`Queue::trouble`] does.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lrs_core::units::BootTime;

use crate::clock;

/// Bytes that may wait: some thousand lines.
const ROOM: usize = 512 << 10;

/// What a line takes beside its own bytes.
const COST: usize = 64;

/// A finished line and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Text, with its line break, to stderr.
    Text(Vec<u8>),
    /// One entry in journald's own protocol.
    Journal(Vec<u8>),
}

impl Line {
    fn cost(&self) -> usize {
        let (Line::Text(bytes) | Line::Journal(bytes)) = self;
        bytes.len() + COST
    }
}

/// The lines that wait.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
}

#[derive(Debug)]
struct State {
    lines: VecDeque<Line>,
    bytes: usize,
    /// When the writer took the line that it has in hand.
    writing: Option<BootTime>,
    /// Lines lost since the last report.
    lost: u64,
    /// Why the last line could not be written; `None`: it was.
    failed: Option<String>,
}

impl Queue {
    /// An empty one.
    pub(super) const fn new() -> Queue {
        let state =
            State { lines: VecDeque::new(), bytes: 0, writing: None, lost: 0, failed: None };
        Queue { state: Mutex::new(state), filled: Condvar::new(), emptied: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, or counts it as lost when there is no room. Never waits.
    pub(super) fn push(&self, line: Line) {
        let mut state = self.state();
        if state.bytes + line.cost() > ROOM {
            state.lost += 1;
        } else {
            self.add(state, line);
        }
    }

    /// Adds a line that must not be lost, whether or not there is room: the few that say why the
    /// daemon ends.
    pub(super) fn push_last(&self, line: Line) {
        self.add(self.state(), line);
    }

    fn add(&self, mut state: MutexGuard<'_, State>, line: Line) {
        state.bytes += line.cost();
        state.lines.push_back(line);
        drop(state);
        self.filled.notify_one();
    }

    /// The oldest line; `None` if none came `within` that time. What was taken before is done with.
    pub(super) fn take(&self, within: Duration) -> Option<Line> {
        let mut state = self.state();
        state.writing = None;
        if state.lines.is_empty() {
            self.emptied.notify_all();
            let waited =
                self.filled.wait_timeout_while(state, within, |state| state.lines.is_empty());
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let line = state.lines.pop_front()?;
        state.bytes -= line.cost();
        state.writing = Some(clock::boot_time());
        Some(line)
    }

    /// What became of the line taken last. Answers how many lines are missing before the next, if
    /// that is to be reported now: lines get out, and none waits that was there before the loss.
    fn wrote(&self, written: io::Result<()>) -> Option<u64> {
        let mut state = self.state();
        state.failed = written.err().map(|error| error.to_string());
        if state.failed.is_some() {
            state.lost += 1;
            return None;
        }
        let says = state.lines.is_empty() && state.lost > 0;
        says.then(|| std::mem::take(&mut state.lost))
    }

    /// That lines were lost, and why, until the log itself has reported it.
    pub(super) fn trouble(&self) -> Option<String> {
        let state = self.state();
        let why = match &state.failed {
            Some(error) => format!("they cannot be written ({error})"),
            None => {
                "no program reads them (a stopped terminal, a full pipe, a journald that hangs)"
                    .to_owned()
            }
        };
        (state.lost > 0).then(|| format!("{} lines of lrsd's log were lost: {why}", state.lost))
    }

    /// Waits until all lines are out, but no longer than `within`, and not at all for a line that
    /// no reader has taken in that time already. Whether they are out.
    pub(super) fn drain(&self, within: Duration) -> bool {
        let state = self.state();
        if state.writing.is_some_and(|begun| clock::boot_time().since(begun) >= within) {
            return false;
        }
        let waits = |state: &mut State| state.writing.is_some() || !state.lines.is_empty();
        let waited = self.emptied.wait_timeout_while(state, within, waits);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Writes lines as they come, for ever. `missing` is called with the number of lines that were lost
/// before those to come, `now_and_then` after `pause` without a line at the latest.
pub(super) fn write_all(
    queue: &Queue,
    mut write: impl FnMut(&Line) -> io::Result<()>,
    missing: impl Fn(u64),
    pause: Duration,
    now_and_then: impl Fn(),
) -> ! {
    loop {
        if let Some(line) = queue.take(pause)
            && let Some(lost) = queue.wrote(write(&line))
        {
            missing(lost);
        }
        now_and_then();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line::Text(text.into())
    }

    #[test]
    fn lines_without_room_are_counted_and_that_is_reported_once_the_others_are_out() {
        let queue = Queue::new();
        let long = || line(&"x".repeat(ROOM / 4));
        for _ in 0..7 {
            queue.push(long());
        }
        let trouble = queue.trouble().unwrap();
        assert!(trouble.contains("4 lines") && trouble.contains("no program reads"), "{trouble}");
        for lost in [None, None, Some(4)] {
            assert!(queue.take(Duration::ZERO).is_some());
            assert_eq!(queue.wrote(Ok(())), lost);
        }
        assert_eq!(queue.trouble(), None);
        queue.push(long());
        assert_eq!(queue.take(Duration::ZERO), Some(long()), "there is room again");
    }

    #[test]
    fn what_cannot_be_written_is_lost_until_something_can() {
        let queue = Queue::new();
        for _ in 0..3 {
            queue.push(line("a"));
        }
        let full = || Err(io::Error::from_raw_os_error(28));
        for written in [full(), full()] {
            assert!(queue.take(Duration::ZERO).is_some());
            assert_eq!(queue.wrote(written), None);
        }
        let trouble = queue.trouble().unwrap();
        assert!(trouble.contains("2 lines") && trouble.contains("No space left"), "{trouble}");
        assert!(queue.take(Duration::ZERO).is_some());
        assert_eq!(queue.wrote(Ok(())), Some(2));
    }

    #[test]
    fn the_last_lines_need_no_room() {
        let queue = Queue::new();
        queue.push(line(&"x".repeat(ROOM - COST)));
        queue.push_last(line("why it ends"));
        assert_eq!(queue.trouble(), None);
        queue.take(Duration::ZERO).unwrap();
        assert_eq!(queue.take(Duration::ZERO), Some(line("why it ends")));
    }

    #[test]
    fn a_drain_waits_for_the_line_in_hand_and_not_for_ever() {
        let queue = Queue::new();
        assert!(queue.drain(Duration::ZERO), "empty");
        queue.push(line("a"));
        assert!(!queue.drain(Duration::ZERO), "not taken");
        queue.take(Duration::ZERO).unwrap();
        assert!(!queue.drain(Duration::ZERO), "in hand");
        queue.wrote(Ok(()));
        assert_eq!(queue.take(Duration::ZERO), None);
        assert!(queue.drain(Duration::ZERO));
    }
}
