//! How much of one kind is logged: a bucket of tokens for each line of code that logs.
//!
//! Whoever can make the daemon log (a task, a client, a broken disk) must not be able to fill
//! the journal with it, nor to push out of it what came before. A line that finds its bucket
//! empty is counted instead; the count is said once the flood is over, and once a minute
//! while it lasts. By line of code, so that a flood of one kind hides nothing of another.
//!
//! Limits. Two tasks in trouble share the bucket of the line that says so. The count comes
//! from [`Limit::tell`], which somebody has to call now and then.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::units::BootTime;

/// How fast a bucket empties and fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    /// Lines at once.
    burst: u32,
    /// Time after which there may be one more.
    refill: Duration,
}

/// What is logged unasked: a screen of it is evidence enough, and one line in three seconds
/// shows that it goes on.
const UNASKED: Rate = Rate { burst: 20, refill: Duration::from_secs(3) };

/// Debug and trace lines, which somebody has asked for and wants to read in order. A third of
/// what journald takes of a service by its own default (journald.conf(5), RateLimitBurst=).
const ASKED_FOR: Rate = Rate { burst: 1000, refill: Duration::from_millis(10) };

/// How often a flood that goes on is mentioned.
const REMIND: Duration = Duration::from_secs(60);

/// Tokens of one line of code. Pure: time comes in.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: Rate,
    tokens: u32,
    /// When the youngest token came.
    filled: BootTime,
    /// Lines held back and not yet said.
    held_back: u64,
    /// When the first of them was.
    since: BootTime,
}

impl Bucket {
    fn full(rate: Rate, now: BootTime) -> Bucket {
        Bucket { rate, tokens: rate.burst, filled: now, held_back: 0, since: now }
    }

    fn fill(&mut self, now: BootTime) {
        let elapsed = now.since(self.filled);
        let due = elapsed.as_nanos() / self.rate.refill.as_nanos().max(1);
        let missing = self.rate.burst - self.tokens;
        if due >= u128::from(missing) {
            self.tokens = self.rate.burst;
            self.filled = now;
        } else {
            // Less than `missing`, so it fits; the rest of the time counts for the next token.
            self.tokens += due as u32;
            self.filled = self.filled.after(self.rate.refill * due as u32);
        }
    }

    /// Whether a line may pass now; one that may not is counted.
    fn take(&mut self, now: BootTime) -> bool {
        self.fill(now);
        if self.tokens > 0 {
            self.tokens -= 1;
            return true;
        }
        if self.held_back == 0 {
            self.since = now;
        }
        self.held_back += 1;
        false
    }

    /// The lines held back, if it is time to say so: the next line would pass, or nobody has
    /// heard of them for [`REMIND`].
    fn due(&mut self, now: BootTime) -> Option<u64> {
        self.fill(now);
        if self.held_back == 0 || (self.tokens == 0 && now.since(self.since) < REMIND) {
            return None;
        }
        Some(std::mem::take(&mut self.held_back))
    }
}

/// Where a line comes from, as it is said.
#[derive(Clone, Copy, Debug)]
struct Origin {
    level: Level,
    file: Option<&'static str>,
    line: Option<u32>,
    target: &'static str,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}"),
            _ => f.write_str(self.target),
        }
    }
}

/// The buckets of all lines of code that have logged.
pub struct Limit {
    clock: fn() -> BootTime,
    buckets: Mutex<HashMap<Identifier, (Origin, Bucket)>>,
}

impl Limit {
    /// Full buckets; `clock` is read once a line.
    pub fn new(clock: fn() -> BootTime) -> Limit {
        Limit { clock, buckets: Mutex::default() }
    }

    /// Logs how many lines were held back, of each line of code for which it is time. Call it
    /// about once a second.
    pub fn tell(&self) {
        let now = (self.clock)();
        self.say(|bucket| bucket.due(now));
    }

    /// Logs how many lines were held back, all of them: nobody will do it later.
    pub fn tell_all(&self) {
        self.say(|bucket| Some(std::mem::take(&mut bucket.held_back)).filter(|count| *count > 0));
    }

    fn say(&self, due: impl Fn(&mut Bucket) -> Option<u64>) {
        let counts: Vec<(Origin, u64)> = self
            .buckets()
            .values_mut()
            .filter_map(|(origin, bucket)| Some((*origin, due(bucket)?)))
            .collect();
        // Not while the buckets are locked: each of these asks for them.
        for (origin, held_back) in counts {
            macro_rules! say {
                ($level:ident) => {
                    tracing::$level!(held_back, %origin, "{held_back} more lines like those from {origin} were held back: too many at once")
                };
            }
            match origin.level {
                Level::ERROR => say!(error),
                Level::WARN => say!(warn),
                Level::INFO => say!(info),
                _ => say!(debug),
            }
        }
    }

    fn lets_pass(&self, metadata: &'static Metadata<'static>) -> bool {
        if metadata.target() == module_path!() {
            return true;
        }
        let now = (self.clock)();
        let level = *metadata.level();
        let rate = if level <= Level::INFO { UNASKED } else { ASKED_FOR };
        let mut buckets = self.buckets();
        let (_, bucket) = buckets.entry(metadata.callsite()).or_insert_with(|| {
            let (file, line, target) = (metadata.file(), metadata.line(), metadata.target());
            (Origin { level, file, line, target }, Bucket::full(rate, now))
        });
        bucket.take(now)
    }

    fn buckets(&self) -> MutexGuard<'_, HashMap<Identifier, (Origin, Bucket)>> {
        // A bucket is whole between any two of its fields' changes.
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asked only for events that the filter of levels has let pass. A layer of the whole stack and
/// no `Filter` of one layer: where the only such filter refuses an event, tracing-subscriber
/// 0.3.23 keeps that for the next one.
impl<S: Subscriber> Layer<S> for &'static Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.lets_pass(event.metadata())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tracing_subscriber::prelude::*;

    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(seconds))
    }

    #[test]
    fn a_bucket_lets_a_burst_pass_and_then_one_for_each_refill() {
        let mut bucket = Bucket::full(UNASKED, at(0));
        let passed = |bucket: &mut Bucket, now, asked: usize| {
            (0..asked).filter(|_| bucket.take(at(now))).count()
        };
        assert_eq!(passed(&mut bucket, 0, 1000), 20);
        assert_eq!(passed(&mut bucket, 2, 1000), 0);
        assert_eq!(passed(&mut bucket, 4, 1000), 1, "one second of the four counts on");
        assert_eq!(passed(&mut bucket, 6, 1000), 1);
        assert_eq!(passed(&mut bucket, 66, 1000), 20);
        assert_eq!(passed(&mut bucket, 1_000_000, 1000), 20, "never more than a burst");
        assert_eq!(passed(&mut bucket, 7, 1000), 0, "a clock that runs backwards fills nothing");
    }

    #[test]
    fn held_back_lines_are_said_when_the_flood_is_over_and_once_a_minute_while_it_lasts() {
        let mut bucket = Bucket::full(UNASKED, at(0));
        assert_eq!(bucket.due(at(0)), None, "nothing to say");
        for _ in 0..25 {
            bucket.take(at(0));
        }
        assert_eq!(bucket.due(at(1)), None, "it goes on");
        assert_eq!(bucket.due(at(3)), Some(5));
        assert_eq!(bucket.due(at(4)), None, "once");
        let mut said = Vec::new();
        for second in 10..150 {
            for _ in 0..30 {
                bucket.take(at(second));
            }
            said.extend(bucket.due(at(second)).map(|_| second));
        }
        assert_eq!(said, [70, 131]);
    }

    static NOW: AtomicU64 = AtomicU64::new(0);

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_fills_no_log_and_hides_nobody_else() {
        let limit: &'static Limit =
            Box::leak(Box::new(Limit::new(|| at(NOW.load(Ordering::Relaxed)))));
        let kept = Kept::default();
        let writer = kept.clone();
        let sink = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let lines = |what: &str| {
            let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            text.lines().filter(|line| line.contains(what)).count()
        };
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(limit).with(sink),
            || {
                for number in 0..100_000 {
                    tracing::error!(target: "elsewhere", number, "flooded");
                }
                tracing::warn!(target: "elsewhere", "another");
                limit.tell();
                assert_eq!((lines("flooded"), lines("another"), lines("held back")), (20, 1, 0));
                NOW.store(3, Ordering::Relaxed);
                limit.tell();
                assert_eq!(lines("99980 more lines like those from src/log/limit.rs:"), 1);
                limit.tell_all();
                assert_eq!(lines("held back: too many"), 1, "nothing is left to say");
            },
        );
    }
}
