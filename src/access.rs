//! Between the servers and the loop: the queue of commands, and what servers read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::{mpsc, oneshot, watch};

use crate::command::{COMMANDS_A_TURN, Command, CommandError, ErrorKind, Reply};
use crate::config::DEFAULT_FILE;
use crate::history::History;
use crate::publish::{EventRing, LastTurn, Snapshot};

/// What a server needs: where to ask, what to read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Access {
    /// Where commands go.
    pub commands: CommandSender,
    /// The newest snapshot; changes wake the receiver.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// The kept events.
    pub events: Arc<EventRing>,
    /// Whether the loop still turns.
    pub last_turn: Arc<LastTurn>,
    /// What is kept over a boot; `None`: nothing.
    pub history: Option<History>,
    /// The file that is read at a reload.
    pub config_file: Arc<Path>,
}

impl Access {
    /// Of a loop that turns since now.
    pub fn new(
        commands: CommandSender,
        snapshot: watch::Receiver<Arc<Snapshot>>,
        events: Arc<EventRing>,
    ) -> Access {
        let last_turn = Arc::new(LastTurn::new(crate::clock::boot_time()));
        let config_file = Path::new(DEFAULT_FILE).into();
        Access { commands, snapshot, events, last_turn, history: None, config_file }
    }
}

/// Commands that may wait for the loop. Deep enough for every client of a busy node to have
/// one under way; a full queue makes the servers wait, never the loop.
const QUEUE_DEPTH: usize = 1024;

/// A new queue: the servers' end and the loop's end.
pub fn queue() -> Result<(CommandSender, CommandReceiver), rustix::io::Errno> {
    let (sender, receiver) = mpsc::channel(QUEUE_DEPTH);
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    Ok((
        CommandSender { queue: sender, wake: Arc::clone(&wake) },
        CommandReceiver { queue: receiver, wake },
    ))
}

/// The servers' end of the queue.
#[derive(Clone, Debug)]
pub struct CommandSender {
    queue: mpsc::Sender<Command>,
    wake: Arc<OwnedFd>,
}

impl CommandSender {
    /// Queues a command, waiting for room.
    pub async fn send(&self, command: Command) -> Result<(), CommandError> {
        let stopping = |_| {
            CommandError::new(ErrorKind::Unavailable, "lrsd is stopping; try again in a moment")
        };
        self.queue.send(command).await.map_err(stopping)?;
        wake(&self.wake);
        Ok(())
    }

    /// Queues what `command` makes of a reply slot and waits for the answer.
    pub async fn ask<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, CommandError> {
        // Dropped after the receiver, so that the loop finds the reply closed.
        let mut gone = Gone(Some(&self.wake));
        let (reply, answer) = oneshot::channel();
        self.send(command(reply)).await?;
        let answer = answer.await;
        gone.0 = None;
        answer.unwrap_or_else(|_| {
            Err(CommandError::new(
                ErrorKind::Unavailable,
                "lrsd stopped before it answered; ask again once it is back",
            ))
        })
    }
}

/// Wakes the loop when a client leaves before it is answered: what it waited for is not wanted.
struct Gone<'a>(Option<&'a OwnedFd>);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        if let Some(fd) = self.0 {
            wake(fd);
        }
    }
}

/// The loop's end of the queue.
#[derive(Debug)]
pub struct CommandReceiver {
    queue: mpsc::Receiver<Command>,
    wake: Arc<OwnedFd>,
}

impl CommandReceiver {
    /// Readable (epoll) when there may be commands.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes [`Self::wake_fd`] unreadable until the next command. Call before draining.
    pub fn clear_wake(&self) {
        // EAGAIN means it is clear already; an eventfd has no other failure here.
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }

    /// Makes [`Self::wake_fd`] readable: commands were left for the next turn.
    pub fn wake_again(&self) {
        wake(&self.wake);
    }

    /// The next command, if one waits.
    pub fn try_next(&mut self) -> Option<Command> {
        self.queue.try_recv().ok()
    }

    /// Refuses further commands; those queued are still given out.
    pub fn close(&mut self) {
        self.queue.close();
    }
}

fn wake(fd: &OwnedFd) {
    // EAGAIN means the counter is at its top, so the loop is woken anyway.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Takes the commands of one turn out of the queue.
pub fn take_commands(queue: &mut CommandReceiver) -> Vec<Command> {
    queue.clear_wake();
    let (mut commands, mut left) = (Vec::new(), COMMANDS_A_TURN);
    while left > 0 {
        let Some(command) = queue.try_next() else { return commands };
        left = left.saturating_sub(command.cost());
        commands.push(command);
    }
    // The rest comes after whatever has ended meanwhile.
    queue.wake_again();
    commands
}
