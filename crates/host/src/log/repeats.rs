//! Warnings and errors that come again and again: logged once, then counted.
//!
//! A loop that tries again says why it failed each time, and what it says is the same. So a line of the
//! level `warn` or `error` with the words and fields of one within the last minute is not written but
//! counted, wherever it comes from; each minute the count is. A line about another task has other words,
//! and so has each event (its number): those are all written.
//!
//! Limit. Of more than 256 different lines within a minute the further ones are written each time.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write as _};
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lrs_core::units::BootTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Within this time the same is not logged again.
pub(super) const AGAIN: Duration = Duration::from_secs(60);

/// Lines that are remembered.
const MOST: usize = 256;

/// Lines of late.
#[derive(Debug)]
pub(super) struct Repeats(Mutex<BTreeMap<u64, Line>>);

#[derive(Debug)]
struct Line {
    at: BootTime,
    level: Level,
    words: String,
    /// How often it was left out since.
    again: u64,
}

/// How often a line was left out.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    level: Level,
    words: String,
    again: u64,
}

impl Repeats {
    /// No line yet.
    pub(super) const fn new() -> Repeats {
        Repeats(Mutex::new(BTreeMap::new()))
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<u64, Line>> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the line is to be written; one that is not is counted.
    fn is_news(&self, level: Level, line: Words, now: BootTime) -> bool {
        let mut lines = self.lines();
        let key = line.key();
        if let Some(before) = lines.get_mut(&key) {
            // A count that waits to be logged goes on: the line is before it.
            if now.since(before.at) < AGAIN || before.again > 0 {
                before.again += 1;
                return false;
            }
            before.at = now;
            return true;
        }
        if lines.len() >= MOST {
            lines.retain(|_, line| now.since(line.at) < AGAIN || line.again > 0);
        }
        if lines.len() < MOST {
            lines.insert(key, Line { at: now, level, words: line.message, again: 0 });
        }
        true
    }

    /// The counts that are due: of lines that were logged a minute ago; with `all`, every one.
    fn due(&self, now: BootTime, all: bool) -> Vec<Counted> {
        let mut counted = Vec::new();
        self.lines().retain(|_, line| {
            if !all && now.since(line.at) < AGAIN {
                return true;
            }
            if line.again == 0 {
                return false;
            }
            let again = std::mem::take(&mut line.again);
            counted.push(Counted { level: line.level, words: line.words.clone(), again });
            line.at = now;
            true
        });
        counted
    }

    /// Logs the counts that are due; with `all`, every one, for the log ends.
    pub(super) fn say(&self, now: BootTime, all: bool) {
        for Counted { level, words, again } in self.due(now, all) {
            if level == Level::ERROR {
                tracing::error!(again, "{again} times more in the last minute: {words}");
            } else {
                tracing::warn!(again, "{again} times more in the last minute: {words}");
            }
        }
    }
}

/// Lets a line through that is news.
pub(super) struct Once(pub(super) &'static Repeats);

impl<S: Subscriber> Layer<S> for Once {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN || metadata.target() == module_path!() {
            return true;
        }
        let mut words = Words::default();
        event.record(&mut words);
        self.0.is_news(*metadata.level(), words, crate::clock::boot_time())
    }
}

/// What a line says.
#[derive(Debug, Default)]
struct Words {
    message: String,
    fields: String,
}

impl Words {
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.message, &self.fields).hash(&mut hasher);
        hasher.finish()
    }
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string fails only where `value` does; then the rest has to do.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => writeln!(self.fields, "{name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(message: &str) -> Words {
        Words { message: message.to_owned(), fields: String::new() }
    }

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(seconds))
    }

    #[test]
    fn ten_a_second_are_one_line_and_a_count_each_minute() {
        let repeats = Repeats::new();
        let mut written = Vec::new();
        for tenth in 0..1500 {
            let now = BootTime(Duration::from_millis(100_000 + tenth * 100));
            for counted in repeats.due(now, false) {
                written.push((tenth, counted.again));
            }
            if repeats.is_news(Level::WARN, words("no descriptor"), now) {
                written.push((tenth, 0));
            }
        }
        assert_eq!(written, [(0, 0), (600, 599), (1200, 600)]);
        let left = repeats.due(at(251), true);
        let rest = Counted { level: Level::WARN, words: "no descriptor".into(), again: 300 };
        assert_eq!(left, [rest]);
    }

    #[test]
    fn other_words_or_fields_are_another_line() {
        let repeats = Repeats::new();
        let of_task = |task: &str| Words { fields: task.to_owned(), ..words("it failed") };
        assert!(repeats.is_news(Level::WARN, of_task("1"), at(1)));
        assert!(repeats.is_news(Level::WARN, of_task("2"), at(1)));
        assert!(!repeats.is_news(Level::WARN, of_task("1"), at(2)));
        assert!(repeats.is_news(Level::WARN, words("it failed anew"), at(2)));
    }

    #[test]
    fn what_comes_again_after_a_minute_is_reported_again() {
        let repeats = Repeats::new();
        assert!(repeats.is_news(Level::ERROR, words("a"), at(1)));
        assert!(repeats.is_news(Level::ERROR, words("a"), at(61)));
        assert!(!repeats.is_news(Level::ERROR, words("a"), at(120)));
        assert!(!repeats.is_news(Level::ERROR, words("a"), at(500)), "after its count");
        assert_eq!(repeats.due(at(500), false).len(), 1);
        assert!(repeats.due(at(600), false).is_empty());
        assert!(repeats.lines().is_empty(), "and then forgotten");
    }

    #[test]
    fn memory_is_bounded_and_what_is_beyond_is_written() {
        let repeats = Repeats::new();
        for number in 0..2 * MOST {
            assert!(repeats.is_news(Level::WARN, words(&number.to_string()), at(1)));
        }
        assert!(repeats.is_news(Level::WARN, words("beyond"), at(1)));
        assert!(repeats.is_news(Level::WARN, words("beyond"), at(1)));
        assert_eq!(repeats.lines().len(), MOST);
        assert!(repeats.is_news(Level::WARN, words("later"), at(62)));
        assert!(!repeats.is_news(Level::WARN, words("later"), at(62)), "there is room again");
    }
}
