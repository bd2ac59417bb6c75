//! What is kept of the past over a boot, in `history.directory`: the figures of the node, and the tasks
//! that ended.
//!
//! ```text
//!  snapshot ── of each cycle ──► bounded queue ──► lrs-history ──► segments
//!  servers ── a question at a time ──►                 ▲
//!                                          EventRing ──┘ ended tasks, with each cycle
//! ```
//!
//! The loop knows nothing of it: a task of the runtime hands over the status of each cycle, which is shared, and
//! never waits: where the queue is full the cycle is lost, and counted. Ended tasks are taken out of the events in memory, with each cycle those
//! with a status that is known by then; so a kill of the daemon costs none (the next one finds them in its
//! own records and knows which are here), a disk that is full or frozen costs none until they are
//! more than memory keeps, and a promotion waits for none of it.
//!
//! Our own files, not a store from the registry: those for rows that only grow (`sled`, `redb`, `fjall`)
//! bring ten thousand lines and more, sync, and keep no bound by themselves, for what takes 200 lines here
//! ([`segments`]).
//!
//! Limits. Nothing is synced: a loss of power costs what the kernel had not written. A minute that a restart
//! cuts is two rows, and `kill -9` costs its mean, not its cycles. While a write hangs in the kernel, so does the end
//! of the process: a stop gives its locks back within the time promised, and is over when the write is.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lrs_api::figures;
use prost::Message;
use tokio::sync::{Semaphore, oneshot, watch};

pub mod ended;
mod segments;
#[cfg(test)]
mod tests;

use segments::Log;

use crate::command::{CommandError, ErrorKind};
use crate::proto::{EndedTask, NodeFigures, Status, Totals};
use crate::publish::{EventRing, Snapshot};
use crate::units::WallTime;
use crate::{clock, schedule, wire};

/// Cycles that may wait for the disk: three minutes of the usual ones.
const QUEUE: usize = 64;

/// What is kept, by the name of its files, and most bytes of it. The oldest file of
/// 1 MiB goes as a whole, and a row of the node has up to 110: an hour of the shortest cycles and 13 days of minutes
/// are there at least. An ended task has about 170.
const KINDS: [(&str, u64); 3] = [("cycles", 5 << 20), ("minutes", 3 << 20), ("tasks", 8 << 20)];

/// After so long an end is kept without how it ended: that comes beside it or not at all.
const EXIT_FOLLOWS: Duration = Duration::from_secs(5);

/// Rows that are read for a page at a time, found or not, so that cycles and other clients wait for no more.
pub const MAX_READ: usize = 4_096;

/// A page ends before it gets larger than this, below the 4 MiB that a gRPC client takes by default: a task
/// with the longest labels has 1.2 KiB.
pub const MAX_PAGE_BYTES: usize = 2 << 20;

/// Tag and length of one row on a page.
pub const FRAMING_BYTES: usize = 6;

/// A client reads within this time that the disk does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A stop waits so long for the disk, of the two seconds that it may take.
const STOP_PATIENCE: Duration = Duration::from_millis(300);

/// What the thread is to do next.
type Job = Box<dyn FnOnce(&mut Keeper) + Send>;

/// The way to the thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct History {
    jobs: SyncSender<Job>,
    /// One question at a time, so that the queue is for cycles.
    asking: Arc<Semaphore>,
    news: Arc<News>,
}

/// How it stands.
#[derive(Debug, Default)]
struct News {
    lost_rows: AtomicU64,
    lost_ends: AtomicU64,
    problem: Mutex<Option<String>>,
}

/// What rows are of.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// [`NodeFigures`] of cycles.
    Cycles,
    /// The same of minutes.
    Minutes,
    /// [`EndRow`].
    Tasks,
}

/// An ended task on the disk.
#[derive(Clone, PartialEq, Message)]
pub struct EndRow {
    /// When its end was noticed, in microseconds since 1970.
    #[prost(sint64, tag = "1")]
    pub at: i64,
    /// The task.
    #[prost(message, optional, tag = "2")]
    pub task: Option<EndedTask>,
}

/// Rows that were asked for.
#[derive(Debug)]
pub struct Page<T> {
    /// In the order in which they were written.
    pub rows: Vec<T>,
    /// Where the next page begins.
    pub next: Option<u64>,
    /// The number of the first end that is not on the disk.
    pub unstored: u64,
}

impl History {
    /// Starts the thread, which opens or makes `dir`.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub fn start(
        dir: PathBuf,
        events: Arc<EventRing>,
        snapshot: watch::Receiver<Arc<Snapshot>>,
    ) -> io::Result<History> {
        let (history, jobs) = History::queue();
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let place = (dir, machine.trim().to_owned());
        let keeper = Keeper::new(place, events, snapshot, Arc::clone(&history.news));
        let thread = std::thread::Builder::new().name("lrs-history".into());
        thread.spawn(move || keeper.serve(&jobs))?;
        Ok(history)
    }

    fn queue() -> (History, Receiver<Job>) {
        let (jobs, queue) = sync_channel(QUEUE);
        let asking = Arc::new(Semaphore::new(1));
        (History { jobs, asking, news: Arc::default() }, queue)
    }

    /// Keeps each cycle that a snapshot brings, until there are none any more.
    pub async fn follow(self, mut snapshot: watch::Receiver<Arc<Snapshot>>) {
        let mut kept = None;
        while snapshot.changed().await.is_ok() {
            let status = Arc::clone(&snapshot.borrow_and_update().status);
            let sampled = status.node.as_ref().and_then(|node| node.sampled_at);
            if sampled != kept {
                kept = sampled;
                self.cycle(&status);
            }
        }
    }

    /// A cycle is over; where the disk is too slow it is lost. Does not wait.
    pub fn cycle(&self, status: &Arc<Status>) {
        let status = Arc::clone(status);
        if self.jobs.try_send(Box::new(move |keeper| keeper.cycle(&status))).is_err() {
            self.news.lost_rows.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many cycles, minutes and ended tasks were lost since the start.
    pub fn lost(&self) -> u64 {
        let News { lost_rows, lost_ends, .. } = &*self.news;
        lost_rows.load(Ordering::Relaxed).saturating_add(lost_ends.load(Ordering::Relaxed))
    }

    /// Why nothing is stored, for `status`.
    pub fn warning(&self) -> Option<String> {
        let problem = self.news.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(format!("the history is not being stored (history.directory): {problem}"))
    }

    /// What `wanted` makes of rows from `from` on (0: the first), at most `size` and at most
    /// [`MAX_PAGE_BYTES`]; without rows only where there are none up to the end, for a client takes an
    /// empty page for the last. `R` is what rows of this kind are.
    ///
    /// # Errors
    /// Unavailable: the disk does not answer.
    pub async fn page<R: Message + Default, T: Send + 'static>(
        &self,
        kind: Kind,
        mut from: u64,
        size: usize,
        wanted: impl Fn(R) -> Option<T> + Clone + Send + 'static,
    ) -> Result<Page<T>, CommandError> {
        loop {
            let page = self.part(kind, from, size, wanted.clone()).await?;
            match page.next {
                Some(next) if page.rows.is_empty() => from = next,
                _ => return Ok(page),
            }
        }
    }

    /// The same of [`MAX_READ`] rows: behind each, whoever waits has its turn.
    async fn part<R: Message + Default, T: Send + 'static>(
        &self,
        kind: Kind,
        from: u64,
        size: usize,
        wanted: impl Fn(R) -> Option<T> + Send + 'static,
    ) -> Result<Page<T>, CommandError> {
        let answer = async {
            let turn = Arc::clone(&self.asking).acquire_owned().await.ok()?;
            let (reply, answer) = oneshot::channel();
            let question = move |keeper: &mut Keeper| {
                // Whoever asked may have gone.
                let _ = reply.send(keeper.page(kind, from, size, wanted));
                drop(turn);
            };
            self.jobs.try_send(Box::new(question)).ok()?;
            answer.await.ok()
        };
        tokio::time::timeout(PATIENCE, answer).await.ok().flatten().ok_or_else(|| {
            let what =
                "the disk of the history (history.directory) does not answer; try again later";
            CommandError::new(ErrorKind::Unavailable, what)
        })
    }

    /// Stores what there is, if the disk takes it in time.
    pub fn end(&self) {
        let (done, ended) = channel();
        let end = move |keeper: &mut Keeper| {
            keeper.end_minute();
            keeper.store_ends(true);
            // A stop that has not waited knows without.
            let _ = done.send(());
        };
        let is_asked = self.jobs.try_send(Box::new(end)).is_ok();
        if !is_asked || ended.recv_timeout(STOP_PATIENCE).is_err() {
            tracing::warn!(
                "the disk of the history does not answer; what it has not taken is lost"
            );
        }
    }
}

/// What the thread has.
struct Keeper {
    /// The directory, and the id of the machine.
    place: (PathBuf, String),
    /// By [`Kind`]; `None` until the directory is there.
    logs: Option<[Log; 3]>,
    events: Arc<EventRing>,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    news: Arc<News>,
    /// When the last cycle was, and the totals then.
    last: Option<(Option<prost_types::Timestamp>, Option<Totals>)>,
    /// The cycles of the present minute.
    minute: Vec<NodeFigures>,
    /// The number of the first end that is not stored yet.
    unstored: u64,
    /// Ends that were stored, and those that were gone or stored at the start.
    done: Option<u64>,
}

impl Keeper {
    fn new(
        place: (PathBuf, String),
        events: Arc<EventRing>,
        snapshot: watch::Receiver<Arc<Snapshot>>,
        news: Arc<News>,
    ) -> Keeper {
        let (logs, last, minute, unstored, done) = (None, None, Vec::new(), 0, None);
        Keeper { place, logs, events, snapshot, news, last, minute, unstored, done }
    }

    fn serve(mut self, jobs: &Receiver<Job>) {
        // What clients ask for must not take CPU time from the loop and the servers.
        schedule::put_this_thread_last();
        let opened = self.logs().map(drop);
        self.noted(opened);
        while let Ok(job) = jobs.recv() {
            job(&mut self);
        }
    }

    fn cycle(&mut self, status: &Status) {
        let (sampled, totals) = self.last.unwrap_or_default();
        let row = figures::of(status, totals.as_ref());
        // A status that is new for another reason than a reading is no cycle.
        let Some(row) = row.filter(|row| row.at != sampled) else { return };
        self.last = Some((row.at, status.totals));
        self.put_row(Kind::Cycles, &row);
        let minute = |row: &NodeFigures| row.at.map_or(0, |at| at.seconds.div_euclid(60));
        if self.minute.first().is_some_and(|first| minute(first) != minute(&row)) {
            self.end_minute();
        }
        self.minute.push(row);
        self.store_ends(false);
    }

    fn end_minute(&mut self) {
        if let Some(mean) = figures::mean(&std::mem::take(&mut self.minute)) {
            self.put_row(Kind::Minutes, &mean);
        }
    }

    fn put_row(&mut self, kind: Kind, row: &NodeFigures) {
        if !self.put(kind, row) {
            self.news.lost_rows.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stores the ends with a status that is known or comes no more; with `all` each.
    fn store_ends(&mut self, all: bool) {
        // Opened first: then it is known what an earlier daemon stored. What fails is in the log with the first
        // write.
        drop(self.logs());
        let (ended, noted) = self.events.ended_of(self.unstored);
        let (mut waiting, now) = (ended.len() as u64, clock::now().wall);
        let mut done = self.done.unwrap_or(noted.saturating_sub(waiting));
        let snapshot = self.snapshot.borrow().clone();
        for task in ended {
            let at = task.event.at.unix_micros();
            let age = Duration::from_micros(now.unix_micros().abs_diff(at));
            let is_due = all || task.exit.is_some() || age > EXIT_FOLLOWS;
            let row = EndRow { at, task: Some(ended::message(&task, &snapshot)) };
            if !is_due || !self.put(Kind::Tasks, &row) {
                break;
            }
            self.unstored = task.event.seq.saturating_add(1);
            (waiting, done) = (waiting - 1, done + 1);
        }
        self.done = Some(done);
        let lost = noted.saturating_sub(done).saturating_sub(waiting);
        self.news.lost_ends.store(lost, Ordering::Relaxed);
    }

    /// Whether it was stored.
    fn put(&mut self, kind: Kind, row: &impl Message) -> bool {
        let row = row.encode_to_vec();
        let stored = self.logs().and_then(|logs| logs[kind as usize].append(&row));
        if stored.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            // The directory was removed.
            self.logs = None;
        }
        self.noted(stored)
    }

    /// Whether it went well; what did not is a line in the log once, and a warning in status until it does.
    fn noted(&self, stored: io::Result<()>) -> bool {
        let mut problem = self.news.problem.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(error) = stored else {
            if problem.take().is_some() {
                tracing::info!("the history is stored again");
            }
            return true;
        };
        if problem.is_none() {
            let path = self.place.0.display();
            tracing::warn!(
                %error,
                "the history is not being stored: {path}: {error}; it is tried again with each cycle"
            );
            *problem = Some(format!("{path}: {error}"));
        }
        false
    }

    fn logs(&mut self) -> io::Result<&mut [Log; 3]> {
        if self.logs.is_none() {
            let (dir, machine) = &self.place;
            lrs_host::files::make_dir(dir).map_err(|error| error.source)?;
            let open = |(kind, most)| Log::open(dir, kind, most, machine);
            let [cycles, minutes, tasks] = KINDS.map(open);
            let logs = [cycles?, minutes?, tasks?];
            self.examine(&logs);
            self.logs = Some(logs);
        }
        self.logs.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Says what is wrong with the files, and finds which of the ends in memory are among them.
    fn examine(&mut self, [cycles, minutes, tasks]: &[Log; 3]) {
        let mut newest = WallTime::default();
        let in_memory = self.events.ended(0).into_iter().map(|task| {
            let event = task.event;
            ((event.task.clone().unwrap_or_default(), event.at.unix_micros()), event.seq)
        });
        let in_memory: HashMap<_, _> = in_memory.collect();
        let cycle = |row: &[u8]| {
            let at = NodeFigures::decode(row).ok().and_then(|row| row.at);
            newest = newest.max(at.as_ref().map(wire::wall_time).unwrap_or_default());
            true
        };
        // They were stored in their order. The last of them may have left memory before those of other users.
        let mut unstored = self.unstored;
        let task = |row: &[u8]| {
            let row = EndRow::decode(row).unwrap_or_default();
            let end = in_memory.get(&(row.task.unwrap_or_default().id, row.at));
            unstored = unstored.max(end.map_or(0, |seq| seq.saturating_add(1)));
            true
        };
        let damaged = [cycles.read(0, cycle), minutes.read(0, |_| true), tasks.read(0, task)];
        for (path, bytes) in damaged.into_iter().flat_map(|(_, damaged)| damaged) {
            tracing::warn!(
                "{bytes} bytes of {} are damaged, or of a node with another /etc/machine-id: what they \
                 had is not shown, the rest is",
                path.display()
            );
        }
        if newest > clock::now().wall {
            tracing::warn!(
                "the history goes up to {newest}, which is later than now: the clock was set back"
            );
        }
        self.unstored = unstored;
    }

    /// A page of what `wanted` makes of rows; it may be empty before the last.
    fn page<R: Message + Default, T>(
        &mut self,
        kind: Kind,
        from: u64,
        size: usize,
        wanted: impl Fn(R) -> Option<T>,
    ) -> Page<T> {
        let (mut rows, mut read, mut bytes) = (Vec::new(), 0, 0);
        let take = |row: &[u8]| {
            read += 1;
            if read > MAX_READ {
                return false;
            }
            let Some(found) = R::decode(row).ok().and_then(&wanted) else { return true };
            bytes += row.len() + FRAMING_BYTES;
            let has_room = rows.is_empty() || (rows.len() < size && bytes <= MAX_PAGE_BYTES);
            if has_room {
                rows.push(found);
            }
            has_room
        };
        // Without files there is nothing, and why is known.
        let next = self.logs().ok().and_then(|logs| logs[kind as usize].read(from, take).0);
        Page { rows, next, unstored: self.unstored }
    }
}
