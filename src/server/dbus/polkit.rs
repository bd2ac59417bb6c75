//! polkit may add to the table of rights, for one call at a time.
//!
//! It is asked only after the loop has refused a caller, so where the table suffices polkit is
//! not needed and cannot be in the way; where polkit does not run, the table is all there is.
//!
//! Only on the system bus, which keeps polkit's name for polkit: on any other bus the first who
//! asks gets that name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zbus::zvariant::{DynamicType, Value};
use zbus::{Connection, Message, fdo};

/// The action a call takes; described in `systemd/org.lrs.shaper1.policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Drain, resume, reload.
    Operate,
    /// Everything about tasks and reservations.
    ManageTasks,
}

/// What is to be allowed.
#[derive(Clone, Debug)]
pub(super) struct Question {
    action: Action,
    /// The method called.
    pub method: &'static str,
    /// What it is about: `pid`, `unit`, `task` or `reservation`, and which.
    about: Option<(&'static str, String)>,
}

impl Question {
    pub(super) fn new(
        action: Action,
        method: &'static str,
        about: Option<(&'static str, String)>,
    ) -> Question {
        Question { action, method, about }
    }
}

/// What polkit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Yes.
    Allowed,
    /// Yes, after a question for a password.
    Challenge,
    /// No; or there is no polkit on this bus.
    Refused,
}

/// For a decision without a person.
const DECIDES_WITHIN: Duration = Duration::from_secs(10);
/// `AllowUserInteraction` of `CheckAuthorizationFlags`.
const MAY_ASK_A_PERSON: u32 = 1;
/// A person has to find the password.
const PERSON_DECIDES_WITHIN: Duration = Duration::from_secs(120);

/// Takes a question back when it is dropped unanswered: a dialog for a caller that has left would
/// stay on a screen.
struct TakenBack {
    bus: Connection,
    id: String,
    answered: bool,
}

impl Drop for TakenBack {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        // Without a runtime the connection has ended, and with it every question.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (bus, id) = (self.bus.clone(), std::mem::take(&mut self.id));
        runtime.spawn(async move {
            // polkit may have decided meanwhile, which it answers with an error.
            if let Err(error) = call(&bus, "CancelCheckAuthorization", &(&id,)).await {
                tracing::debug!(%error, "a question to polkit was not taken back: {error}");
            }
        });
    }
}

/// Asks whether the connection `name` may do what `question` says. polkit failing counts as a
/// refusal, and is logged. Dropping this takes the question back.
pub(super) async fn check(
    bus: &Connection,
    name: &str,
    question: Question,
    interactive: bool,
) -> Answer {
    let action = match question.action {
        Action::Operate => "org.lrs.Shaper1.operate",
        Action::ManageTasks => "org.lrs.Shaper1.manage-tasks",
    };
    let within = if interactive { PERSON_DECIDES_WITHIN } else { DECIDES_WITHIN };
    let refused = |reason: String| {
        tracing::warn!(action, "refused {action}, {reason}");
        Answer::Refused
    };
    match tokio::time::timeout(within, ask(bus, name, action, question, interactive)).await {
        Err(_) => refused(format!("polkit did not decide within {within:?}")),
        // A bus without polkit is an ordinary thing.
        Ok(Err(
            fdo::Error::ServiceUnknown(_)
            | fdo::Error::NameHasNoOwner(_)
            | fdo::Error::SpawnServiceNotFound(_),
        )) => Answer::Refused,
        Ok(Err(error)) => refused(format!("polkit failed: {error}")),
        Ok(Ok(answer)) => answer,
    }
}

async fn ask(
    bus: &Connection,
    name: &str,
    action: &str,
    question: Question,
    interactive: bool,
) -> fdo::Result<Answer> {
    /// Cancellation ids are unique among the questions of one connection.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = format!("lrsd-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let caller = ("system-bus-name", HashMap::from([("name", Value::from(name))]));
    let mut details = HashMap::from([("method", question.method)]);
    details.extend(question.about.as_ref().map(|(kind, which)| (*kind, which.as_str())));
    let flags = if interactive { MAY_ASK_A_PERSON } else { 0 };
    let mut taken_back = TakenBack { bus: bus.clone(), id: id.clone(), answered: false };
    let answer = call(bus, "CheckAuthorization", &(caller, action, details, flags, &id)).await;
    taken_back.answered = true;
    let (authorized, challenge, _): (bool, bool, HashMap<String, String>) =
        answer?.body().deserialize()?;
    Ok(match (authorized, challenge) {
        (true, _) => Answer::Allowed,
        (false, true) => Answer::Challenge,
        (false, false) => Answer::Refused,
    })
}

/// Calls polkit (`org.freedesktop.PolicyKit1.Authority` of its reference manual).
async fn call<B>(bus: &Connection, method: &str, body: &B) -> fdo::Result<Message>
where
    B: serde::Serialize + DynamicType,
{
    const NAME: &str = "org.freedesktop.PolicyKit1";
    const PATH: &str = "/org/freedesktop/PolicyKit1/Authority";
    let interface = Some("org.freedesktop.PolicyKit1.Authority");
    Ok(bus.call_method(Some(NAME), PATH, interface, method, body).await?)
}
