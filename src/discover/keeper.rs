//! Keeps the thread `lrs-find` at work, and says when it is not.
//!
//! The loop shapes what is a task whatever becomes of the finders, so neither a panic nor a hang
//! of theirs ends the daemon. What panicked is started anew, after ten seconds at first and five
//! minutes at last: it reads what other users wrote, and what broke it may be gone by then. A read
//! of /proc or of a dead disk that hangs can be waited for and nothing else. Both are a line of
//! the log, a warning in status and, for a panic, a check of doctor's.
//!
//! A stop waits for what the thread had started ([`Rest`]), also when the thread itself is lost:
//! what was offered to YARN is on its way back then, and what is not taken back is said.
//!
//! Limits. A hang is told half a minute after it began.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::rest::Rest;
use super::thread::{Handle, Lost, Parts};
use crate::clock;
use crate::units::BootTime;
use crate::yarn::rm::give_back::Left;

/// How long one round of the thread may take before it counts as hanging: a listing of thousands
/// of processes takes a tenth of a second.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// Pause before the thread is started after its first panic: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Since when the thread has been at work without a rest; shared with it.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<Mutex<Option<BootTime>>>);

impl Pulse {
    /// A round begins.
    pub fn works(&self) {
        *self.lock() = Some(clock::boot_time());
    }

    /// It waits for something to do.
    pub fn rests(&self) {
        *self.lock() = None;
    }

    /// `None`: it waits for something to do.
    pub fn works_since(&self) -> Option<BootTime> {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<BootTime>> {
        // A panic of the holder leaves a time or none, both whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is new about the finders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// No task is found, and why: a sentence for the operator.
    Trouble(String),
    /// Tasks are found again.
    Well,
}

type Begin = Box<dyn FnMut() -> io::Result<Option<Handle>>>;

/// The thread, or its place.
pub struct Keeper {
    begin: Begin,
    state: State,
    pause: Duration,
    /// A hang was said, and not yet its end.
    hangs: bool,
}

enum State {
    /// Nothing is to be found.
    Off,
    Runs {
        handle: Handle,
        since: BootTime,
    },
    /// `rest`: what it had started.
    Lost {
        again_at: BootTime,
        rest: Rest,
    },
}

impl Keeper {
    /// Starts the thread, where something is to be found.
    ///
    /// # Errors
    /// There are no threads or descriptors left.
    pub fn start(parts: Parts) -> io::Result<Keeper> {
        Keeper::with(Box::new(move || super::thread::start(parts.clone())))
    }

    fn with(mut begin: Begin) -> io::Result<Keeper> {
        let state = match begin()? {
            Some(handle) => State::Runs { handle, since: clock::boot_time() },
            None => {
                // What it would look with is of no use: hints are refused.
                begin = Box::new(|| Ok(None));
                State::Off
            }
        };
        Ok(Keeper { begin, state, pause: FIRST_PAUSE, hangs: false })
    }

    /// To be called every second: looks after the thread, and answers what is new about it.
    pub fn look(&mut self, now: BootTime) -> Option<News> {
        match std::mem::replace(&mut self.state, State::Off) {
            State::Off => None,
            State::Runs { handle, .. } if handle.has_ended() => Some(self.lose(handle, now)),
            State::Runs { handle, since } => {
                if now.since(since) > LONGEST_PAUSE {
                    self.pause = FIRST_PAUSE;
                }
                let news = self.feel(&handle, now);
                self.state = State::Runs { handle, since };
                news
            }
            State::Lost { again_at, mut rest } => {
                // Two of a kind would send YARN different offers.
                if now < again_at || !rest.is_over() {
                    self.state = State::Lost { again_at, rest };
                    return None;
                }
                self.try_again(rest, now)
            }
        }
    }

    fn lose(&mut self, handle: Handle, now: BootTime) -> News {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        self.hangs = false;
        let (outcome, rest) = handle.join();
        self.state = State::Lost { again_at: now.after(pause), rest };
        // Nobody told it to stop; that it ended in order is no less odd.
        let lost = outcome.err().unwrap_or(Lost::FINDER);
        let trouble = format!(
            "tasks that nobody announces are not found: {lost}; those that are known are shaped, \
             and it is started again after {pause:?}"
        );
        tracing::error!("{trouble}");
        News::Trouble(trouble)
    }

    fn try_again(&mut self, rest: Rest, now: BootTime) -> Option<News> {
        // Before the next one puts it right.
        let left = rest.left();
        match (self.begin)() {
            Ok(Some(handle)) => {
                tracing::info!("the thread lrs-find runs again");
                if let Some(left) = left {
                    tracing::warn!("{left}");
                }
                self.state = State::Runs { handle, since: now };
                Some(News::Well)
            }
            Ok(None) => None,
            Err(error) => {
                let trouble = format!(
                    "tasks that nobody announces are not found: the thread lrs-find cannot be \
                     started again: {error}"
                );
                tracing::error!("{trouble}");
                self.state = State::Lost { again_at: now.after(self.pause), rest };
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                Some(News::Trouble(trouble))
            }
        }
    }

    fn feel(&mut self, handle: &Handle, now: BootTime) -> Option<News> {
        let works = handle.pulse().works_since();
        let hangs = works.is_some_and(|since| now.since(since) >= HANGS_AFTER);
        match (std::mem::replace(&mut self.hangs, hangs), hangs) {
            (false, true) => {
                let trouble = "tasks that nobody announces are not found: the thread lrs-find \
                    hangs, in a read of /proc, of Hadoop's files or of a NodeManager's directory; \
                    those that are known are shaped. Look for a dead disk or mount";
                tracing::error!("{trouble}");
                Some(News::Trouble(trouble.to_owned()))
            }
            (true, false) => {
                tracing::info!("the thread lrs-find goes on");
                Some(News::Well)
            }
            (false, false) | (true, true) => None,
        }
    }

    /// Begins to stop, at YARN too: what it was offered is taken back meanwhile.
    pub fn stop(&self) {
        if let State::Runs { handle, .. } = &self.state {
            handle.stop();
        }
    }

    /// Waits for the end of the thread and of what it had started, which is bounded, and logs what
    /// did not end as it should.
    pub fn join(self) {
        let (lost, left) = self.end();
        if let Some(lost) = lost {
            tracing::error!("{lost}");
        }
        if let Err(left) = left {
            tracing::warn!("{left}");
        }
    }

    /// What became of the thread, if it is worth an error, and what is left at YARN.
    fn end(self) -> (Option<Lost>, Result<(), Left>) {
        let begun = clock::boot_time();
        let (lost, rest) = match self.state {
            State::Off => return (None, Ok(())),
            State::Lost { rest, .. } => (None, rest),
            State::Runs { handle, .. } => {
                let pulse = handle.pulse().clone();
                match handle.join() {
                    // It waited for what it had started, and said what was left.
                    (Ok(()), _) => return (None, Ok(())),
                    // It gives that its whole time from when it came to hear of the stop, which may
                    // have been at the end of a long round. What takes its time then is a call.
                    (Err(Lost::Hangs), rest) if pulse.works_since().is_none() => (None, rest),
                    (Err(lost), rest) => (Some(lost), rest),
                }
            }
        };
        let deadline = begun.after(rest.within());
        (lost, rest.wait(deadline))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;
    use crate::config::Config;
    use crate::discover::made_up::logged;
    use crate::discover::rest::Alive;
    use crate::yarn::rm::Resource;
    use crate::yarn::rm::give_back::Witness;
    use crate::yarn::rm::ledger::{Era, Ledger, LedgerFile};

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(seconds))
    }

    /// A keeper of threads that do what `work` says, and how many it has started.
    fn keeper(work: impl Fn(usize, Pulse) + Clone + Send + 'static) -> (Keeper, Arc<AtomicUsize>) {
        let started = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&started);
        let begin = move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let work = work.clone();
            Handle::of("lrs-test", Rest::begin(Duration::ZERO, None), move |pulse, _| {
                work(number, pulse);
                Ok(())
            })
            .map(Some)
        };
        (Keeper::with(Box::new(begin)).unwrap(), started)
    }

    /// The next news at `now`, when the thread has come so far.
    fn news(keeper: &mut Keeper, now: BootTime) -> News {
        loop {
            if let Some(news) = keeper.look(now) {
                return news;
            }
            std::thread::yield_now();
        }
    }

    fn is_trouble(news: &News, word: &str) {
        match news {
            News::Trouble(text) => assert!(text.contains(word), "{text}"),
            News::Well => panic!("no trouble"),
        }
    }

    #[test]
    fn a_panic_is_said_and_the_thread_is_started_again_less_and_less_often() {
        let (mut keeper, started) = keeper(|_, _| panic!("of the test"));
        let mut now = at(1000);
        let mut pauses = Vec::new();
        for turn in 1..=7 {
            is_trouble(&news(&mut keeper, now), "panicked");
            assert_eq!(started.load(Ordering::SeqCst), turn);
            let lost = now;
            while keeper.look(now).is_none() {
                now = now.after(Duration::from_secs(1));
            }
            pauses.push(now.since(lost).as_secs());
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
    }

    /// A keeper that has lost its thread, and what that had started.
    fn lost(within: Duration, witness: Option<Witness>) -> (Keeper, Alive) {
        let (alive, rest) = Rest::begin(within, witness);
        let mut first = Some((alive.clone(), rest));
        let begin = move || {
            let both = first.take().unwrap_or_else(|| Rest::begin(Duration::ZERO, None));
            Handle::of("lrs-test", both, |_, _| panic!("of the test")).map(Some)
        };
        let mut keeper = Keeper::with(Box::new(begin)).unwrap();
        is_trouble(&news(&mut keeper, at(0)), "panicked");
        (keeper, alive)
    }

    #[test]
    fn what_it_had_started_is_waited_for() {
        let (mut keeper, alive) = lost(Duration::ZERO, None);
        assert_eq!(keeper.look(at(1000)), None, "it takes an offer back");
        drop(alive);
        assert_eq!(keeper.look(at(1000)), Some(News::Well));
    }

    /// An offer that stands, and who tells of it.
    fn offered() -> (tempfile::TempDir, LedgerFile, Witness) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let file = LedgerFile::in_runtime_dir(dir.path());
        let configured = Resource { memory_mib: 8192, vcores: 8 };
        let ledger = Ledger::new("node1:45454".parse().unwrap(), configured);
        let offer = Resource { memory_mib: 9216, vcores: 9 };
        file.write(&ledger.about_to_send(offer, Era::default())).unwrap();
        let mut config = Config::default();
        config.daemon.runtime_dir = dir.path().to_owned();
        let witness = Witness::of(&config);
        (dir, file, witness)
    }

    #[test]
    fn a_stop_waits_until_what_the_lost_thread_had_started_took_the_offer_back() {
        let (_dir, file, witness) = offered();
        let (keeper, alive) = lost(Duration::from_secs(60), Some(witness));
        let (stops, stopping) = mpsc::channel();
        let talker = std::thread::spawn(move || {
            stopping.recv().unwrap();
            let ledger = file.read().unwrap().unwrap();
            file.write(&ledger.given_back(clock::now().wall)).unwrap();
            drop(alive);
        });
        keeper.stop();
        stops.send(()).unwrap();
        keeper.end().1.unwrap();
        talker.join().unwrap();
    }

    #[test]
    fn what_the_lost_thread_leaves_standing_is_said_with_the_command() {
        let by_hand = "-updateNodeResource node1:45454 8192 8 -1";
        let (_dir, _, witness) = offered();
        let (keeper, alive) = lost(Duration::from_millis(50), Some(witness.clone()));
        let left = keeper.end().1.unwrap_err().to_string();
        assert!(left.contains("no longer than 50ms") && left.ends_with(by_hand), "{left}");
        drop(alive);

        let (keeper, alive) = lost(Duration::from_secs(60), Some(witness.clone()));
        drop(alive);
        let left = keeper.end().1.unwrap_err().to_string();
        assert!(left.contains("ended without") && left.ends_with(by_hand), "{left}");
        assert!(!left.contains("lrs-find"), "that may have been the other way round: {left}");

        let (keeper, alive) = lost(Duration::from_secs(60), Some(witness.clone()));
        alive.left("no ticket");
        drop(alive);
        let left = keeper.end().1.unwrap_err().to_string();
        assert!(left.contains("no ticket") && left.ends_with(by_hand), "{left}");

        let since = "of the test, since it was last looked at";
        let begin = move || {
            let both = Rest::begin(Duration::ZERO, Some(witness.clone()));
            Handle::of("lrs-test", both, move |_, _| panic!("{since}")).map(Some)
        };
        let left = Keeper::with(Box::new(begin)).unwrap().end().1.unwrap_err().to_string();
        assert!(left.ends_with(by_hand), "{left}");
    }

    #[test]
    fn why_an_offer_was_not_taken_back_is_said_when_the_thread_runs_again() {
        let (_dir, file, witness) = offered();
        let log_of = |witness: &Witness| {
            let (mut keeper, alive) = lost(Duration::ZERO, Some(witness.clone()));
            alive.left("no ticket");
            assert_eq!(keeper.look(at(1000)), None);
            drop(alive);
            logged(|| assert_eq!(keeper.look(at(1000)), Some(News::Well)))
        };
        let log = log_of(&witness);
        assert!(log.contains("may still stand: no ticket"), "{log}");
        let ledger = file.read().unwrap().unwrap();
        file.write(&ledger.given_back(clock::now().wall)).unwrap();
        let log = log_of(&witness);
        assert!(!log.contains("may still stand"), "nothing stands: {log}");
    }

    /// How a stop ends whose thread does `work`, and then hangs.
    fn ends_hanging(work: impl Fn(&Pulse, &Alive) + Send + 'static) -> (Option<Lost>, String) {
        let (_dir, _, witness) = offered();
        let (until_over, wait) = mpsc::channel::<()>();
        let (hangs, hanging) = mpsc::channel();
        let mut once = Some((work, hangs, wait));
        let begin = move || {
            let (work, hangs, wait) = once.take().unwrap();
            let (alive, rest) = Rest::begin(Duration::ZERO, Some(witness.clone()));
            let talker = alive.clone();
            Handle::of("lrs-test", (alive, rest), move |pulse, _| {
                work(&pulse, &talker);
                hangs.send(()).unwrap();
                let _ = wait.recv();
                Ok(())
            })
            .map(Some)
        };
        let keeper = Keeper::with(Box::new(begin)).unwrap();
        hanging.recv().unwrap();
        let (lost, left) = keeper.end();
        drop(until_over);
        (lost, left.unwrap_err().to_string())
    }

    #[test]
    fn what_hangs_is_said_for_what_it_is() {
        let by_hand = "-updateNodeResource node1:45454 8192 8 -1";
        let (lost, left) = ends_hanging(|pulse, _| pulse.works());
        assert_eq!(lost, Some(Lost::Hangs));
        assert!(left.ends_with(by_hand), "{left}");
        let (lost, left) = ends_hanging(|pulse, _| pulse.rests());
        assert_eq!(lost, None, "it waits for a call");
        assert!(left.contains("a call or a run of the command hangs"), "{left}");
        let (lost, left) = ends_hanging(|pulse, talker| {
            pulse.works();
            talker.left("no ticket");
        });
        assert_eq!(lost, Some(Lost::Hangs));
        assert!(left.contains("no ticket") && left.ends_with(by_hand), "{left}");
    }

    #[test]
    fn a_hang_is_said_once_and_so_is_its_end() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let (mut keeper, started) = keeper(move |_, pulse| {
            pulse.works();
            wait.lock().unwrap().recv().unwrap();
            pulse.rests();
            // Until the test is over.
            let _ = wait.lock().unwrap().recv();
        });
        let State::Runs { handle, .. } = &keeper.state else { panic!("it does not run") };
        let pulse = handle.pulse().clone();
        let begun = loop {
            match pulse.works_since() {
                Some(begun) => break begun,
                None => std::thread::yield_now(),
            }
        };
        let later = |seconds| begun.after(Duration::from_secs(seconds));
        assert_eq!(keeper.look(later(29)), None);
        is_trouble(&news(&mut keeper, later(30)), "hangs");
        assert_eq!(keeper.look(later(600)), None, "once");
        go.send(()).unwrap();
        assert_eq!(news(&mut keeper, later(601)), News::Well);
        assert_eq!(started.load(Ordering::SeqCst), 1, "there is no second one");
        drop(go);
        keeper.join();
    }

    #[test]
    fn where_nothing_is_to_be_found_nothing_is_said() {
        let mut keeper = Keeper::with(Box::new(|| Ok(None))).unwrap();
        assert_eq!(keeper.look(at(1)), None);
        keeper.stop();
        keeper.join();
    }
}
