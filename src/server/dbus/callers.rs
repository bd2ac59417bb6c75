//! Who calls, as the bus says.
//!
//! The bus knows the credentials of each connection from the kernel (SO_PEERCRED, and
//! SO_PEERGROUPS where the bus is new enough to tell) and answers for them; they are asked for
//! once and kept until the connection leaves the bus. They are asked for on a connection of
//! their own and before the next call is read: however many callers flood the other connection,
//! none of them is served unseen, and the answer is never behind them.
//!
//! A bus that tells no groups (dbus-daemon before 1.15) leaves the account database to ask
//! (getgrouplist(3)), once a call needs them, on another thread, never for root, and not for
//! ever: a directory service that hangs delays no other caller.
//!
//! Limit: at most [`MOST_KNOWN`] callers are kept; when it is full those with nothing under way
//! are forgotten, and asked about again if they call again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lrs_host::spare::NoThread;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use zbus::fdo::{self, ConnectionCredentials, DBusProxy};
use zbus::names::UniqueName;

use super::BusError;
use super::error::CallError;
use crate::command::{Caller, CallerProcess, CommandError, ErrorKind};
use crate::server::pidfd;
use crate::units::Pid;

/// Callers kept. A bus lets in some 2,000 connections by default.
const MOST_KNOWN: usize = 4096;

/// Look-ups in the account database at once, each on a thread.
pub(super) const LOOKUPS: usize = 8;

/// How long the bus may take to identify a caller. No call is read meanwhile; a bus that takes
/// longer is taken for one that hangs.
const BUS_ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How long the account database may take, a wait for a thread included.
const ACCOUNTS_ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The callers of one connection to the bus, by unique name.
#[derive(Debug, Default)]
pub(super) struct Callers(HashMap<String, Arc<Known>>);

/// Why a call is not begun.
#[derive(Debug)]
pub(super) enum NotEntered {
    /// It is refused.
    Call(CallError),
    /// The bus fails, and this connection to it ends.
    Bus(BusError),
}

impl From<CallError> for NotEntered {
    fn from(error: CallError) -> NotEntered {
        NotEntered::Call(error)
    }
}

impl From<BusError> for NotEntered {
    fn from(error: BusError) -> NotEntered {
        NotEntered::Bus(error)
    }
}

/// A caller.
#[derive(Debug)]
pub(super) struct Known {
    /// Its unique name.
    pub name: String,
    pub uid: u32,
    /// As the bus tells it.
    pub process: CallerProcess,
    /// `None`: this bus tells no groups.
    groups: Option<Vec<u32>>,
    gids: OnceCell<Vec<u32>>,
    /// When it has left the bus.
    pub left: CancellationToken,
}

impl Callers {
    /// Who `name` is.
    ///
    /// # Errors
    /// PermissionDenied when the bus does not say, most often because the caller left without
    /// waiting for an answer; [`NotEntered::Bus`] when the bus cannot be asked.
    pub(super) async fn known(
        &mut self,
        name: &UniqueName<'_>,
        bus: &DBusProxy<'_>,
    ) -> Result<Arc<Known>, NotEntered> {
        if let Some(known) = self.0.get(name.as_str()) {
            return Ok(Arc::clone(known));
        }
        let credentials = credentials(name, bus).await?;
        let known = credentials.and_then(|answer| Known::new(name, &answer)).map_err(|reason| {
            tracing::debug!(caller = %name, "calls of {name} are refused: {reason}");
            CallError::from(CommandError::new(
                ErrorKind::PermissionDenied,
                format!("the bus does not identify {name}: {reason}"),
            ))
        })?;
        if self.0.len() >= MOST_KNOWN {
            // A call under way holds its caller too.
            self.0.retain(|_, known| Arc::strong_count(known) > 1);
        }
        if self.0.len() >= MOST_KNOWN {
            let full = "more callers at once than lrsd keeps; try again in a moment";
            return Err(CallError::too_many(full).into());
        }
        let known = Arc::new(known);
        self.0.insert(name.as_str().to_owned(), Arc::clone(&known));
        Ok(known)
    }

    /// `name` is no longer on the bus.
    pub(super) fn left(&mut self, name: &str) {
        if let Some(known) = self.0.remove(name) {
            known.left.cancel();
        }
    }
}

/// What the bus says of `name`, or why it says nothing.
///
/// # Errors
/// The connection for such questions is of no use any more.
async fn credentials(
    name: &UniqueName<'_>,
    bus: &DBusProxy<'_>,
) -> Result<Result<ConnectionCredentials, String>, BusError> {
    let call = bus.get_connection_credentials(name.clone().into());
    match tokio::time::timeout(BUS_ANSWERS_WITHIN, call).await {
        Err(_) => Err(BusError::Silent(BUS_ANSWERS_WITHIN)),
        Ok(Err(fdo::Error::ZBus(error))) if !matches!(error, zbus::Error::MethodError(..)) => {
            Err(error.into())
        }
        Ok(answer) => Ok(answer.map_err(|error| error.to_string())),
    }
}

impl Known {
    fn new(name: &UniqueName<'_>, credentials: &ConnectionCredentials) -> Result<Known, String> {
        Ok(Known {
            name: name.as_str().to_owned(),
            uid: credentials.unix_user_id().ok_or("no UnixUserID in its credentials")?,
            process: process(credentials),
            groups: credentials.unix_group_ids().cloned(),
            gids: OnceCell::new(),
            left: CancellationToken::new(),
        })
    }

    /// The caller as rights are checked for it, with its groups.
    ///
    /// # Errors
    /// Unavailable when the account database does not say in time; it is asked again then.
    pub(super) async fn caller(&self, lookups: &Arc<Semaphore>) -> Result<Caller, CallError> {
        let gids = match &self.groups {
            Some(gids) => gids,
            // Root may do all, whatever its groups.
            None if self.uid == 0 => &Vec::new(),
            None => self.gids.get_or_try_init(|| look_up(self.uid, lookups)).await?,
        };
        Ok(Caller {
            uid: self.uid,
            gids: gids.clone(),
            process: self.process.clone(),
            granted: None,
        })
    }
}

/// By the pidfd that the bus keeps (dbus-daemon 1.15.8, dbus-broker 34), else by the number.
fn process(credentials: &ConnectionCredentials) -> CallerProcess {
    if let Some(pidfd) = credentials.process_fd() {
        return pidfd::caller(pidfd);
    }
    // A pid outside the daemon's pid namespace is 0, if there at all.
    match credentials.process_id().and_then(|pid| Pid::new(i32::try_from(pid).ok()?)) {
        Some(pid) => pidfd::caller_by_number(pid),
        None => CallerProcess::Unseen,
    }
}

async fn look_up(uid: u32, lookups: &Arc<Semaphore>) -> Result<Vec<u32>, CommandError> {
    let look = async {
        // Never closed. The thread keeps the place: one that hangs is still there.
        let place = Arc::clone(lookups).acquire_owned().await;
        let (answer, found) = tokio::sync::oneshot::channel();
        // Not tokio's pool, which panics where its first thread is refused.
        let thread = std::thread::Builder::new().name("lrs-account".to_owned());
        let started = thread.spawn(move || {
            let _place = place;
            // Whoever asked may have given up.
            let _ = answer.send(groups_of(uid));
        });
        started.map_err(|error| NoThread(&error).to_string())?;
        found.await.unwrap_or_else(|_| Err("the thread that asked panicked".to_owned()))
    };
    let slow = || format!("the account database did not answer within {ACCOUNTS_ANSWER_WITHIN:?}");
    let found = tokio::time::timeout(ACCOUNTS_ANSWER_WITHIN, look).await;
    found.unwrap_or_else(|_| Err(slow())).map_err(|reason| {
        let message = format!("the groups of uid {uid} are not known: {reason}; try again");
        CommandError::new(ErrorKind::Unavailable, message)
    })
}

/// Groups by the account database. A uid without an account is in none.
fn groups_of(uid: u32) -> Result<Vec<u32>, String> {
    let failed = |what: &str, errno| format!("cannot look up {what}: {errno}");
    let user = nix::unistd::User::from_uid(uid.into()).map_err(|e| failed("the account", e))?;
    let Some(user) = user else { return Ok(Vec::new()) };
    let name = std::ffi::CString::new(user.name)
        .map_err(|error| format!("the account name is odd: {error}"))?;
    let groups = nix::unistd::getgrouplist(&name, user.gid).map_err(|e| failed("the groups", e))?;
    Ok(groups.into_iter().map(nix::unistd::Gid::as_raw).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_in_its_own_group() {
        assert!(groups_of(0).unwrap().contains(&0));
        assert_eq!(groups_of(4_000_000_000).unwrap(), Vec::<u32>::new());
    }
}
