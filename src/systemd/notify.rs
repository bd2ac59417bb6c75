//! Messages to the service manager: readiness, a status line, signs of life (sd_notify(3)).
//!
//! The watchdog is fed by turns of the control loop that have ended, and by nothing else: a
//! daemon with a loop that hangs is restarted, however lively its other threads are. The loop's
//! wait is bounded so that an idle one turns often enough. Feeding never waits either: while the
//! manager does not read, the datagram is tried again soon.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::units::BootTime;

/// Feeds in one period of the watchdog; sd_watchdog_enabled(3) asks for two.
const FEEDS_A_PERIOD: u32 = 3;

/// Pause before a feed that the manager's full queue refused is tried again, as a part of the
/// period.
const RETRY_PART: u32 = 20;

/// Serving has begun. Waits until the manager takes it: it is waiting for nothing else.
pub fn ready() {
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        tracing::warn!(%error, "cannot tell the service manager ($NOTIFY_SOCKET) that lrsd is ready: {error}");
    }
}

/// The daemon is on its way out, heard or not.
pub fn stopping() {
    let sent = Line::open().and_then(|line| {
        line.map_or(Ok(()), |line| {
            line.say(&NotifyState::Stopping)?;
            line.say(&NotifyState::Status("stopping; tasks keep running"))
        })
    });
    if let Err(error) = sent {
        tracing::debug!(%error, "the service manager does not hear that lrsd stops: {error}");
    }
}

/// A socket to the manager; a send never waits.
#[derive(Debug)]
struct Line(UnixDatagram);

impl Line {
    /// `Ok(None)`: no manager wants messages.
    fn open() -> io::Result<Option<Line>> {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Some(Line(socket)))
    }

    fn say(&self, state: &NotifyState<'_>) -> io::Result<()> {
        self.0.send(state.to_string().as_bytes()).map(drop)
    }
}

/// The loop's sign of life.
#[derive(Debug)]
pub struct Watchdog {
    line: Line,
    period: Duration,
    due: BootTime,
}

impl Watchdog {
    /// The watchdog the manager asks for in `$WATCHDOG_USEC` and `$WATCHDOG_PID`, if any.
    ///
    /// # Errors
    /// The manager's socket cannot be reached; it would kill a daemon that goes on unheard.
    pub fn from_environment() -> io::Result<Option<Watchdog>> {
        let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else {
            return Ok(None);
        };
        let line = Line::open()?;
        Ok(line.map(|line| Watchdog { line, period, due: BootTime::default() }))
    }

    /// How long the loop may wait for its next turn.
    pub fn patience(&self, now: BootTime) -> Duration {
        self.due.since(now)
    }

    /// A turn of the loop has ended.
    pub fn turned(&mut self, now: BootTime) {
        if now < self.due {
            return;
        }
        let next = match self.line.say(&NotifyState::Watchdog) {
            Ok(()) => self.period / FEEDS_A_PERIOD,
            Err(error) => {
                tracing::debug!(%error, "the service manager did not take a sign of life: {error}");
                self.period / RETRY_PART
            }
        };
        self.due = now.after(next);
    }
}

/// The line `systemctl status` shows.
#[derive(Debug, Default)]
pub struct StatusLine {
    line: Option<Line>,
    text: String,
}

impl StatusLine {
    /// Silent without a manager.
    pub fn from_environment() -> StatusLine {
        let line = Line::open().unwrap_or_else(|error| {
            tracing::warn!(%error, "no status line, cannot reach $NOTIFY_SOCKET: {error}");
            None
        });
        StatusLine { line, text: String::new() }
    }

    /// Sends it unless it was the last thing sent. What the manager does not take now is sent
    /// with the next call.
    pub fn show(&mut self, text: String) {
        if self.text == text {
            return;
        }
        let Some(line) = &self.line else { return };
        if line.say(&NotifyState::Status(&text)).is_ok() {
            self.text = text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watchdog(manager: &UnixDatagram, period: Duration) -> Watchdog {
        let socket = UnixDatagram::unbound().unwrap();
        socket.connect_addr(&manager.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        Watchdog { line: Line(socket), period, due: BootTime::default() }
    }

    fn manager(dir: &tempfile::TempDir) -> UnixDatagram {
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(seconds))
    }

    #[test]
    fn only_turns_feed_and_no_oftener_than_needed() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(&dir);
        let mut watchdog = watchdog(&manager, Duration::from_secs(30));
        let mut heard = [0; 64];
        assert_eq!(watchdog.patience(at(100)), Duration::ZERO);
        watchdog.turned(at(100));
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"WATCHDOG=1");
        assert_eq!(watchdog.patience(at(101)), Duration::from_secs(9));
        watchdog.turned(at(109));
        assert_eq!(manager.recv(&mut heard).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        watchdog.turned(at(110));
        assert_eq!(manager.recv(&mut heard).unwrap(), length);
    }

    #[test]
    fn a_manager_that_does_not_read_is_tried_again_soon_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(&dir);
        let mut watchdog = watchdog(&manager, Duration::from_secs(20));
        let mut now = 100;
        // Fills the queue; the kernel bounds it (net.unix.max_dgram_qlen).
        while watchdog.patience(at(now)) != Duration::from_secs(1) {
            now += 10;
            watchdog.turned(at(now));
            assert!(now < 1_000_000, "the queue never fills");
        }
        let mut heard = [0; 64];
        while manager.recv(&mut heard).is_ok() {}
        watchdog.turned(at(now + 1));
        assert_eq!(manager.recv(&mut heard).unwrap(), b"WATCHDOG=1".len());
    }
}
