//! From a message to its answer: who calls, which object, which member; and the bounds.
//!
//! Objects are not registered anywhere: a path is looked up in the newest snapshot when it is
//! called, so that 10,000 tasks cost this door nothing until somebody asks. That is why the
//! messages are taken off the connection here and not by zbus's ObjectServer, which would keep
//! each of them as an object and would let anybody have any number of calls under way.
//!
//! The bus is open to every user of the node. A call is small, and has a place
//! ([`crate::quota`]) before anything is done for it and until its answer is written; a caller
//! not known yet first has a place among strangers ([`super::callers`]). Large answers are made
//! a few at a time, and one at a time for each user but root.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use zbus::Connection;
use zbus::message::Message;

use super::Limits;
use super::callers::{Callers, Known, Stranger};
use super::contract::{Call, Read};
use super::contract::{INTROSPECTABLE, MANAGER, OBJECT_MANAGER, PEER, PROPERTIES, TASK};
use super::contract::{MANAGER_METHODS, Method, TASK_METHODS};
use super::error::CallError;
use super::objects::Object;
use super::reply::{Answer, ReplyTo};
use super::{changes, reads};
use crate::command::{Caller, CommandError, ErrorKind};
use crate::publish::Access;
use crate::quota::{Full, Permit, Quota};

/// Answers of many tasks or events that are being made or written at once.
const LARGE_AT_ONCE: usize = 2;

/// No call that makes sense is larger; the longest labels make one of 2 KiB.
const MAX_CALL_BYTES: usize = 64 << 10;

/// AdmitPidfd takes one descriptor, all other calls take none.
const MAX_DESCRIPTORS: u32 = 1;

/// The door on one connection to the bus.
pub(super) struct Door {
    pub(super) bus: Connection,
    pub(super) access: Access,
    pub(super) callers: Callers,
    /// Whether polkit is asked on this bus.
    pub(super) polkit: bool,
    calls: Arc<Quota>,
    large: Semaphore,
    large_turns: LargeTurns,
    /// True once calls that wait have to end.
    stopping: watch::Receiver<bool>,
}

/// Members of the standard interfaces: interface, member, types taken.
const STANDARD: &[(&str, &str, &str, Read)] = &[
    (PEER, "Ping", "", Read::Ping),
    (PEER, "GetMachineId", "", Read::GetMachineId),
    (INTROSPECTABLE, "Introspect", "", Read::Introspect),
    (PROPERTIES, "Get", "ss", Read::Get),
    (PROPERTIES, "GetAll", "s", Read::GetAll),
    (PROPERTIES, "Set", "ssv", Read::Set),
    (OBJECT_MANAGER, "GetManagedObjects", "", Read::GetManagedObjects),
];

/// Who calls, for as long as the call lasts.
pub(super) struct Asking<'a> {
    pub(super) known: &'a Known,
    pub(super) caller: &'a Caller,
    /// The message carries ALLOW_INTERACTIVE_AUTHORIZATION.
    pub(super) interactive: bool,
}

/// The place of a call: its own, or first one of a stranger.
enum Place {
    Call(Permit),
    Stranger(Stranger),
}

/// Users with a large answer waiting or under way, at most one each. The queue for them is for
/// users, not for calls: else one user fills it.
#[derive(Debug, Default)]
struct LargeTurns(Mutex<HashSet<u32>>);

/// The turn of a user, given back on drop.
#[derive(Debug)]
struct LargeTurn<'t> {
    turns: &'t LargeTurns,
    uid: u32,
}

impl LargeTurns {
    /// `None` for root, which is not bound.
    fn take(&self, uid: u32) -> Result<Option<LargeTurn<'_>>, CallError> {
        if uid == 0 {
            return Ok(None);
        }
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid) {
            return Ok(Some(LargeTurn { turns: self, uid }));
        }
        Err(CallError::too_many(format!(
            "uid {uid} has a large answer under way already (all tasks, jobs or events); ask again \
             once it is there"
        )))
    }
}

impl Drop for LargeTurn<'_> {
    fn drop(&mut self) {
        self.turns.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.uid);
    }
}

impl Door {
    pub(super) fn new(
        bus: Connection,
        access: Access,
        limits: &Limits,
        polkit: bool,
        stopping: watch::Receiver<bool>,
    ) -> Door {
        Door {
            bus,
            access,
            callers: Callers::default(),
            polkit,
            calls: Quota::new(limits.calls),
            large: Semaphore::new(LARGE_AT_ONCE),
            large_turns: LargeTurns::default(),
            stopping,
        }
    }

    /// Starts a call among those `under_way`. Refusing one waits until the refusal is written:
    /// whoever floods this door is not read meanwhile.
    pub(super) async fn received(self: &Arc<Door>, message: Message, under_way: &mut JoinSet<()>) {
        let to = match ReplyTo::of(&message) {
            Ok(to) => to,
            Err(error) => {
                return tracing::error!(
                    %error,
                    "a call on D-Bus was not answered, please report this: {error}"
                );
            }
        };
        match check_size(&message).and_then(|()| self.place(&message)) {
            Ok((known, place)) => {
                let door = Arc::clone(self);
                under_way.spawn(async move { door.serve(message, &to, &known, place).await });
            }
            Err(error) => self.reply(&to, Err(error)).await,
        }
    }

    /// Takes note of a connection that has left the bus (NameOwnerChanged, new owner "").
    pub(super) fn left(&self, message: &Message) {
        let header = message.header();
        let from_bus =
            header.sender().is_some_and(|sender| sender.as_str() == "org.freedesktop.DBus");
        if !from_bus || header.member().is_none_or(|member| member != "NameOwnerChanged") {
            return;
        }
        match message.body().deserialize::<(&str, &str, &str)>() {
            Ok((name, _, "")) => self.callers.left(name),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "an unreadable signal of the bus: {error}"),
        }
    }

    fn place(&self, message: &Message) -> Result<(Arc<Known>, Place), CallError> {
        let header = message.header();
        let sender = header.sender().ok_or_else(|| {
            CallError::from(CommandError::new(
                ErrorKind::PermissionDenied,
                "the call has no sender: this is no message bus",
            ))
        })?;
        let known = self.callers.enter(sender.as_str()).ok_or_else(|| {
            CallError::too_many("more callers at once than lrsd keeps; try again in a moment")
        })?;
        let place = match known.uid() {
            Some(uid) => Place::Call(self.take(uid)?),
            None => Place::Stranger(self.callers.stranger(&known).ok_or_else(|| {
                CallError::too_many("very many calls of new callers at once; try again in a moment")
            })?),
        };
        Ok((known, place))
    }

    fn take(&self, uid: u32) -> Result<Permit, CallError> {
        self.calls.take(uid).map_err(|full| match full {
            Full::All => CallError::too_many(
                "as many calls are under way as lrsd takes; try again in a moment",
            ),
            Full::OfUid => CallError::too_many(format!(
                "uid {uid} has as many calls under way as one user may; wait for some to end"
            )),
        })
    }

    async fn serve(
        self: Arc<Door>,
        message: Message,
        to: &ReplyTo,
        known: &Arc<Known>,
        place: Place,
    ) {
        let (caller, _permit) = match self.identified(known, place).await {
            Ok(identified) => identified,
            Err(error) => return self.reply(to, Err(error)).await,
        };
        let answer = match self.route(&message) {
            Err(error) => Err(error),
            Ok((object, Call::Read(read))) if reads::is_large(read, &object) => {
                return self.large_reply(message, to, caller.uid, object, read).await;
            }
            Ok((object, Call::Read(read))) => self.read(read, &message, &object),
            Ok((object, Call::Change(change))) => {
                match changes::wish(change, &message, &object, caller) {
                    Err(error) => Err(error),
                    Ok(wish) => {
                        // It may wait for hours; the wish has all that is needed of it.
                        drop((message, object));
                        let interactive = to.interactive();
                        self.carry_out(wish, &Asking { known, caller, interactive }).await
                    }
                }
            }
        };
        self.reply(to, answer).await;
    }

    /// Who calls, and the place of the call in the quota of its user; both at once where the
    /// bus was asked already.
    async fn identified<'k>(
        &self,
        known: &'k Arc<Known>,
        place: Place,
    ) -> Result<(&'k Caller, Permit), CallError> {
        let told = self.callers.told(known, &self.bus).await?;
        let permit = match place {
            Place::Call(permit) => permit,
            Place::Stranger(_until_now) => self.take(told.uid)?,
        };
        Ok((self.callers.caller(known, told).await?, permit))
    }

    /// An answer over all tasks is made on another thread: 10,000 of them take so long that
    /// everybody else, gRPC included, would wait.
    async fn large_reply(
        self: Arc<Door>,
        message: Message,
        to: &ReplyTo,
        uid: u32,
        object: Object,
        read: Read,
    ) {
        let _one = match self.large_turns.take(uid) {
            Ok(turn) => turn,
            Err(error) => return self.reply(to, Err(error)).await,
        };
        // Never closed, so this cannot fail; held until the answer is written.
        let _turn = self.large.acquire().await;
        let (door, kept) = (Arc::clone(&self), to.clone());
        let made =
            tokio::task::spawn_blocking(move || kept.message(door.read(read, &message, &object)));
        match made.await {
            Ok(reply) => self.send(reply).await,
            Err(error) => {
                tracing::error!(%error, "no answer was made, please report this: {error}");
                let message = "no answer was made; the log of lrsd says why";
                self.reply(to, Err(CommandError::new(ErrorKind::Internal, message).into())).await;
            }
        }
    }

    /// Finds object and member, and checks the types of the arguments.
    fn route(&self, message: &Message) -> Result<(Object, Call), CallError> {
        let header = message.header();
        let path = header.path().map_or("", |path| path.as_str());
        let member = header.member().map_or("", |member| member.as_str());
        let interface = header.interface().map(|interface| interface.as_str());
        let object = match Object::at(path, &self.access.snapshot.borrow()) {
            Some(object) => object,
            // Peer is answered on any path (D-Bus specification, "Standard Interfaces").
            None if interface == Some(PEER) => Object::Directory("org"),
            None => {
                return Err(CallError::unknown_object(format!(
                    "no object {path} here; tasks go with their last process"
                )));
            }
        };
        if let Some(interface) = interface.filter(|interface| !object.serves(interface)) {
            return Err(CallError::unknown_interface(format!(
                "{path} has no interface {interface}"
            )));
        }
        let wanted = |name: &str| interface.is_none_or(|interface| interface == name);
        let (call, takes) = STANDARD
            .iter()
            .filter(|(name, ..)| object.serves(name) && wanted(name))
            .find(|(_, name, ..)| *name == member)
            .map(|(_, _, takes, read)| (Call::Read(*read), (*takes).to_owned()))
            .or_else(|| match &object {
                Object::Manager if wanted(MANAGER) => find(MANAGER_METHODS, member),
                Object::Task(_) if wanted(TASK) => find(TASK_METHODS, member),
                _ => None,
            })
            .ok_or_else(|| {
                CallError::unknown_method(format!("{path} has no method {member} there"))
            })?;
        let given = message.body().signature().to_string_no_parens();
        if given != takes {
            return Err(CallError::invalid_arguments(format!(
                "{member} takes ({takes}), not ({given})"
            )));
        }
        Ok((object, call))
    }

    /// Ends when a call that waits has to.
    pub(super) async fn out_of_time(&self) {
        let mut stopping = self.stopping.clone();
        // An error means that the door is gone, which is an end too.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    async fn reply(&self, to: &ReplyTo, answer: Answer) {
        self.send(to.message(answer)).await;
    }

    async fn send(&self, reply: zbus::Result<Option<Message>>) {
        let sent = match reply {
            Ok(Some(reply)) => self.bus.send(&reply).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            // The bus is gone, which its reader notices too.
            tracing::debug!(%error, "an answer was not sent: {error}");
        }
    }
}

/// Before anything of the call is read.
fn check_size(message: &Message) -> Result<(), CallError> {
    let bytes = message.data().len();
    if bytes > MAX_CALL_BYTES {
        return Err(CallError::limits_exceeded(format!(
            "the call has {bytes} bytes; lrsd takes up to {MAX_CALL_BYTES}"
        )));
    }
    let descriptors = message.header().unix_fds().unwrap_or(0);
    if descriptors > MAX_DESCRIPTORS {
        return Err(CallError::limits_exceeded(format!(
            "the call has {descriptors} descriptors; no method takes more than {MAX_DESCRIPTORS}"
        )));
    }
    Ok(())
}

fn find(methods: &[Method], member: &str) -> Option<(Call, String)> {
    let method = methods.iter().find(|method| method.name == member)?;
    Some((method.call, method.takes.iter().map(|(_, kind)| *kind).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_one_large_answer_at_a_time_and_root_any() {
        let turns = LargeTurns::default();
        let first = turns.take(7).unwrap();
        let refused = turns.take(7).unwrap_err();
        assert!(refused.name.ends_with("TooManyCalls"), "{refused:?}");
        let _others = (turns.take(8).unwrap(), turns.take(0).unwrap(), turns.take(0).unwrap());
        drop(first);
        assert!(turns.take(7).is_ok());
    }
}
