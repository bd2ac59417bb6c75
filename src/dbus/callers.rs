//! Who calls, as the bus says.
//!
//! The bus knows the credentials of each connection from the kernel (SO_PEERCRED, and
//! SO_PEERGROUPS where the bus is new enough to tell) and answers for them; they are asked for
//! once and kept until the connection leaves the bus. A bus that tells no groups leaves the
//! account database to ask (getgrouplist(3)), on a thread of its own, since a directory
//! service may be slow.
//!
//! A caller's entry also carries the news that it has left, which ends what it waits for.
//!
//! A caller that is not known yet has one place among the strangers while the bus is asked, which
//! all its calls share. The account database is asked under the caller's own quota, never for
//! root, and not for ever: a directory service that hangs delays nobody else's calls.
//!
//! Limits: at most [`MOST_KNOWN`] callers are kept; when it is full those with nothing under
//! way are forgotten, and asked about again if they call again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use zbus::Connection;
use zbus::zvariant::{OwnedValue, Value};

use super::error::CallError;
use crate::command::{Caller, CommandError, ErrorKind};
use crate::units::Pid;

/// Callers kept. A bus lets in some 2,000 connections by default.
const MOST_KNOWN: usize = 4096;

/// Callers the bus is being asked about at once: twice the connections dbus-daemon lets one
/// user have (max_connections_per_user, 256 on the system bus).
const STRANGERS: usize = 512;

/// Calls of one stranger that wait for the bus: a client that sends all it wants at once.
const CALLS_OF_STRANGER: usize = 64;

/// Calls of all strangers that wait, beside each one's first; with the size of a call, 64 MiB.
const CALLS_OF_STRANGERS: usize = 1024;

/// Lookups in the account database at once, each on a thread.
const LOOKUPS: usize = 8;

/// How long the bus may take to say who somebody is.
const BUS_ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How long the account database may take, a wait for a thread included.
const ACCOUNTS_ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The callers of one connection to the bus, by unique name.
#[derive(Debug)]
pub(super) struct Callers {
    known: Mutex<HashMap<String, Arc<Known>>>,
    strangers: Arc<Semaphore>,
    queued: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
}

/// A caller.
#[derive(Debug)]
pub(super) struct Known {
    /// Its unique name.
    pub name: String,
    told: OnceCell<Result<Told, CallError>>,
    caller: OnceCell<Result<Caller, CallError>>,
    /// Its place among the strangers, while the bus is asked.
    place: Mutex<Weak<OwnedSemaphorePermit>>,
    left: watch::Sender<bool>,
}

/// What the bus says of a caller.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub uid: u32,
    pid: Option<Pid>,
    /// `None`: this bus tells no groups.
    gids: Option<Vec<u32>>,
}

/// The place of a call whose caller is not known yet.
#[derive(Debug)]
pub(super) struct Stranger {
    _place: Arc<OwnedSemaphorePermit>,
    /// Of those that wait behind the first.
    _queued: Option<OwnedSemaphorePermit>,
}

impl Default for Callers {
    fn default() -> Callers {
        let places = |count| Arc::new(Semaphore::new(count));
        Callers {
            known: Mutex::default(),
            strangers: places(STRANGERS),
            queued: places(CALLS_OF_STRANGERS),
            lookups: places(LOOKUPS),
        }
    }
}

impl Callers {
    /// The entry of `name`, made if need be. Made before the bus is asked, so that the news of
    /// its leaving cannot fall between question and answer. `None`: too many callers.
    pub(super) fn enter(&self, name: &str) -> Option<Arc<Known>> {
        let mut known = locked(&self.known);
        if let Some(caller) = known.get(name) {
            return Some(Arc::clone(caller));
        }
        if known.len() >= MOST_KNOWN {
            // Whoever has a call under way holds its entry too.
            known.retain(|_, caller| Arc::strong_count(caller) > 1);
        }
        if known.len() >= MOST_KNOWN {
            return None;
        }
        let caller = Arc::new(Known {
            name: name.to_owned(),
            told: OnceCell::new(),
            caller: OnceCell::new(),
            place: Mutex::default(),
            left: watch::Sender::new(false),
        });
        known.insert(name.to_owned(), Arc::clone(&caller));
        Some(caller)
    }

    /// A place for a call of one who is not known yet; `None`: too many.
    pub(super) fn stranger(&self, known: &Known) -> Option<Stranger> {
        let mut place = locked(&known.place);
        if let Some(shared) = place.upgrade() {
            if Arc::strong_count(&shared) > CALLS_OF_STRANGER {
                return None;
            }
            let queued = Arc::clone(&self.queued).try_acquire_owned().ok()?;
            return Some(Stranger { _place: shared, _queued: Some(queued) });
        }
        let own = Arc::new(Arc::clone(&self.strangers).try_acquire_owned().ok()?);
        *place = Arc::downgrade(&own);
        Some(Stranger { _place: own, _queued: None })
    }

    /// `name` is no longer on the bus.
    pub(super) fn left(&self, name: &str) {
        if let Some(caller) = locked(&self.known).remove(name) {
            caller.left.send_replace(true);
        }
    }

    /// What the bus says of `caller`, asked once however many calls want to know.
    ///
    /// # Errors
    /// PermissionDenied when the bus does not say; nobody is served unseen.
    pub(super) async fn told<'k>(
        &self,
        known: &'k Arc<Known>,
        bus: &Connection,
    ) -> Result<&'k Told, CallError> {
        let ask = async || {
            let told = told(bus, &known.name).await.map_err(|reason| {
                CallError::from(CommandError::new(
                    ErrorKind::PermissionDenied,
                    format!("the bus does not say who {} is: {reason}", known.name),
                ))
            });
            self.forget_failed(known, told)
        };
        known.told.get_or_init(ask).await.as_ref().map_err(CallError::clone)
    }

    /// The caller as rights are checked for it, with its groups.
    ///
    /// # Errors
    /// Unavailable when the account database does not say in time.
    pub(super) async fn caller<'k>(
        &self,
        known: &'k Arc<Known>,
        told: &Told,
    ) -> Result<&'k Caller, CallError> {
        let look = async || {
            let gids = match &told.gids {
                Some(gids) => Ok(gids.clone()),
                // Root may do all, whatever its groups.
                None if told.uid == 0 => Ok(Vec::new()),
                None => self.groups_of(told.uid).await,
            };
            let caller =
                gids.map(|gids| Caller { uid: told.uid, gids, pid: told.pid, granted: None });
            self.forget_failed(known, caller)
        };
        known.caller.get_or_init(look).await.as_ref().map_err(CallError::clone)
    }

    /// Whoever waits for this answer gets it; who comes later has it asked for anew.
    fn forget_failed<T>(
        &self,
        known: &Arc<Known>,
        answer: Result<T, CallError>,
    ) -> Result<T, CallError> {
        if let Err(error) = &answer {
            // Most often it left without waiting for an answer.
            tracing::debug!(
                caller = known.name,
                error = error.message,
                "calls of {} are not heard: {}",
                known.name,
                error.message
            );
            let mut all = locked(&self.known);
            if all.get(&known.name).is_some_and(|kept| Arc::ptr_eq(kept, known)) {
                all.remove(&known.name);
            }
        }
        answer
    }

    async fn groups_of(&self, uid: u32) -> Result<Vec<u32>, CallError> {
        let look = async {
            // Never closed. The thread keeps the place: one that hangs is still there.
            let place = Arc::clone(&self.lookups).acquire_owned().await;
            tokio::task::spawn_blocking(move || {
                let _place = place;
                groups_of(uid)
            })
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
        };
        let found = tokio::time::timeout(ACCOUNTS_ANSWER_WITHIN, look).await;
        found
            .unwrap_or_else(|_| {
                Err(format!(
                    "the account database did not answer within {ACCOUNTS_ANSWER_WITHIN:?}"
                ))
            })
            .map_err(|reason| {
                let message = format!("the groups of uid {uid} are not known: {reason}; try again");
                CommandError::new(ErrorKind::Unavailable, message).into()
            })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// Its uid, if the bus was asked already.
    pub(super) fn uid(&self) -> Option<u32> {
        Some(self.told.get()?.as_ref().ok()?.uid)
    }

    /// Ends when the caller has left the bus.
    pub(super) async fn has_left(&self) {
        let mut left = self.left.subscribe();
        // The sender lives in `self`: this cannot fail.
        let _ = left.wait_for(|left| *left).await;
    }
}

async fn told(bus: &Connection, name: &str) -> Result<Told, String> {
    let arguments = (name,);
    let call = bus.call_method(
        Some("org.freedesktop.DBus"),
        "/org/freedesktop/DBus",
        Some("org.freedesktop.DBus"),
        "GetConnectionCredentials",
        &arguments,
    );
    let reply = tokio::time::timeout(BUS_ANSWERS_WITHIN, call)
        .await
        .map_err(|_| format!("no answer within {BUS_ANSWERS_WITHIN:?}"))?
        .map_err(|error| error.to_string())?;
    let body = reply.body();
    let told: HashMap<String, OwnedValue> =
        body.deserialize().map_err(|error| error.to_string())?;
    let number = |key: &str| match told.get(key).map(|value| &**value) {
        Some(Value::U32(number)) => Some(*number),
        _ => None,
    };
    let uid = number("UnixUserID").ok_or("no UnixUserID in its credentials")?;
    // A pid outside the daemon's pid namespace is told as 0, if at all.
    let pid = number("ProcessID").and_then(|pid| Pid::new(i32::try_from(pid).ok()?));
    let gids = match told.get("UnixGroupIDs").map(|value| &**value) {
        Some(Value::Array(gids)) => Some(
            gids.iter()
                .filter_map(|gid| if let Value::U32(gid) = gid { Some(*gid) } else { None })
                .collect(),
        ),
        _ => None,
    };
    Ok(Told { uid, pid, gids })
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
    fn idle_callers_make_room_and_busy_ones_stay() {
        let callers = Callers::default();
        let busy = callers.enter(":1.0").unwrap();
        for number in 1..MOST_KNOWN {
            callers.enter(&format!(":1.{number}")).unwrap();
        }
        assert!(callers.enter(":2.0").is_some());
        assert_eq!(locked(&callers.known).len(), 2, "the busy one and the new one");
        assert!(Arc::ptr_eq(&busy, &callers.enter(":1.0").unwrap()));
    }

    #[tokio::test]
    async fn leaving_reaches_those_who_wait_and_those_who_come_later() {
        let callers = Callers::default();
        let caller = callers.enter(":1.0").unwrap();
        let waiting = tokio::spawn({
            let caller = Arc::clone(&caller);
            async move { caller.has_left().await }
        });
        tokio::task::yield_now().await;
        callers.left(":1.0");
        waiting.await.unwrap();
        caller.has_left().await;
        assert!(!Arc::ptr_eq(&caller, &callers.enter(":1.0").unwrap()), "names are not kept");
    }

    #[test]
    fn a_stranger_has_one_place_for_all_its_calls() {
        let callers = Callers::default();
        let newcomer = callers.enter(":1.0").unwrap();
        let calls: Vec<_> =
            (0..CALLS_OF_STRANGER).map(|_| callers.stranger(&newcomer).unwrap()).collect();
        assert!(callers.stranger(&newcomer).is_none(), "its queue is full");
        assert_eq!(callers.strangers.available_permits(), STRANGERS - 1);
        let other = callers.enter(":1.1").unwrap();
        assert!(callers.stranger(&other).is_some(), "nobody else's");
        drop(calls);
        assert_eq!(callers.strangers.available_permits(), STRANGERS);
        assert_eq!(callers.queued.available_permits(), CALLS_OF_STRANGERS);
    }

    #[tokio::test]
    async fn a_failed_lookup_is_everybodys_who_waits_and_forgotten() {
        let callers = Callers::default();
        let caller = callers.enter(":1.0").unwrap();
        let failed = Err::<(), _>(CallError::too_many("x"));
        assert!(callers.forget_failed(&caller, failed).is_err());
        assert!(!Arc::ptr_eq(&caller, &callers.enter(":1.0").unwrap()));
        // Root is not looked up.
        let root = Told { uid: 0, pid: None, gids: None };
        assert_eq!(callers.caller(&caller, &root).await.unwrap().gids, Vec::<u32>::new());
    }

    #[test]
    fn root_is_in_its_own_group() {
        assert!(groups_of(0).unwrap().contains(&0));
        assert_eq!(groups_of(4_000_000_000).unwrap(), Vec::<u32>::new());
    }
}
