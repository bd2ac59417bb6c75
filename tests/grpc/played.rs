//! A server's channels in the hands of the test, which plays the loop: it takes commands off the
//! queue and answers them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lrs::access::Access;
use lrs::access::{self, CommandReceiver};
use lrs::command::Command;
use lrs::core::event::{Event, EventKind};
use lrs::core::model::TaskId;
use lrs::publish::{EventRing, LastTurn, Snapshot};
use lrs::units::WallTime;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

/// Longer than anything here takes, so that a hang fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The loop's ends.
pub struct Played {
    pub commands: mpsc::UnboundedReceiver<Command>,
    pub snapshot: watch::Sender<Arc<Snapshot>>,
    pub events: Arc<EventRing>,
    #[allow(dead_code)] // not every test binary lets the loop hang
    pub last_turn: Arc<LastTurn>,
}

impl Played {
    /// With a server's ends of the same channels.
    pub fn new(events: EventRing) -> (Played, Access) {
        let (sender, receiver) = access::queue().unwrap();
        let (snapshot, newest) = watch::channel(Arc::default());
        let events = Arc::new(events);
        let access = Access::new(sender, newest, Arc::clone(&events));
        let last_turn = Arc::clone(&access.last_turn);
        let (out, commands) = mpsc::unbounded_channel();
        tokio::spawn(forward(receiver, out));
        (Played { commands, snapshot, events, last_turn }, access)
    }

    pub fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        let mut snapshot = Snapshot::clone(&self.snapshot.borrow());
        change(&mut snapshot);
        snapshot.last_event = self.events.last();
        self.snapshot.send_replace(Arc::new(snapshot));
    }

    pub async fn next_command(&mut self) -> Command {
        soon(self.commands.recv()).await.unwrap()
    }
}

/// The loop's side of the queue, woken by its descriptor as the loop is.
async fn forward(mut receiver: CommandReceiver, out: mpsc::UnboundedSender<Command>) {
    let wake = receiver.wake_fd().try_clone_to_owned().unwrap();
    // SAFETY: `wake` owns its descriptor, which stays open and the same until it is dropped.
    let wake = unsafe { AsyncFd::register(wake) }.unwrap();
    loop {
        let mut ready = wake.readable().await.unwrap();
        ready.clear_ready();
        receiver.clear_wake();
        while let Some(command) = receiver.try_next() {
            if out.send(command).is_err() {
                return;
            }
        }
    }
}

/// `future`, or a failed test.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("took too long")
}

pub fn task_id(number: u64) -> TaskId {
    TaskId { epoch: 1, number }
}

pub fn event(seq: u64, kind: EventKind, task: &str) -> Event {
    Event {
        seq,
        at: WallTime::from_unix_micros(1_767_323_045_000_006),
        kind,
        task: Some(task.to_owned()),
        from: None,
        to: Some("active".to_owned()),
        reason: Some("a slot was free".to_owned()),
        inputs: serde_json::Map::from_iter([("free".to_owned(), 1.into())]),
    }
}
