//! polkit may add to the table of rights, for one call at a time.
//!
//! It is asked only after the loop has refused a caller, so where the table suffices polkit is
//! not needed and cannot be in the way; where polkit does not run, the table is all there is.
//!
//! Only on the system bus, whose policy keeps polkit's name for polkit: on any other bus that
//! name is whoever's took it first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zbus::Connection;
use zbus::zvariant::Value;

/// The action a call takes; described in `systemd/org.lrs.shaper1.policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Drain, resume, reload.
    Operate,
    /// Everything about tasks and reservations.
    ManageTasks,
}

impl Action {
    fn id(self) -> &'static str {
        match self {
            Action::Operate => "org.lrs.Shaper1.operate",
            Action::ManageTasks => "org.lrs.Shaper1.manage-tasks",
        }
    }
}

/// What is to be allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub action: Action,
    /// The method called.
    pub method: &'static str,
    /// What it is about: `pid`, `unit`, `task` or `reservation`, and which.
    pub about: Option<(&'static str, String)>,
}

/// What polkit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Yes.
    Allowed,
    /// Yes, once somebody has been asked for a password.
    Challenge,
    /// No; or there is no polkit on this bus.
    Refused,
}

/// For a decision without a person.
const DECIDES_WITHIN: Duration = Duration::from_secs(10);
/// A person has to find the password.
const PERSON_DECIDES_WITHIN: Duration = Duration::from_secs(120);

/// AllowUserInteraction of org.freedesktop.PolicyKit1.CheckAuthorizationFlags.
const ALLOW_USER_INTERACTION: u32 = 1;

const NAME: &str = "org.freedesktop.PolicyKit1";
const PATH: &str = "/org/freedesktop/PolicyKit1/Authority";
const AUTHORITY: &str = "org.freedesktop.PolicyKit1.Authority";

/// A question that is no longer of interest is taken back when this is dropped: a dialog for a
/// caller that has left would stay on somebody's screen.
struct Asked {
    bus: Connection,
    /// Unique among the questions of this connection.
    id: String,
    answered: bool,
}

impl Asked {
    fn new(bus: &Connection) -> Asked {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = format!("lrsd-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Asked { bus: bus.clone(), id, answered: false }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        // Without a runtime the connection has ended, and with it every question.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (bus, id) = (self.bus.clone(), (std::mem::take(&mut self.id),));
        runtime.spawn(async move {
            let member = "CancelCheckAuthorization";
            let call = bus.call_method(Some(NAME), PATH, Some(AUTHORITY), member, &id);
            // polkit may have decided meanwhile, which it answers with an error.
            if let Err(error) = call.await {
                tracing::debug!(%error, "a question to polkit was not taken back: {error}");
            }
        });
    }
}

/// Asks whether the connection `name` may do what `question` says. polkit failing counts as a
/// refusal, and is said in the log. Dropping this takes the question back.
pub(super) async fn check(
    bus: &Connection,
    name: &str,
    question: &Question,
    interactive: bool,
) -> Verdict {
    let action = question.action;
    let subject = ("system-bus-name", HashMap::from([("name", Value::from(name))]));
    let mut details = HashMap::from([("method", question.method)]);
    details.extend(question.about.as_ref().map(|(kind, which)| (*kind, which.as_str())));
    let flags = if interactive { ALLOW_USER_INTERACTION } else { 0 };
    let within = if interactive { PERSON_DECIDES_WITHIN } else { DECIDES_WITHIN };
    let mut asked = Asked::new(bus);
    let arguments = (subject, action.id(), details, flags, asked.id.clone());
    let call = bus.call_method(Some(NAME), PATH, Some(AUTHORITY), "CheckAuthorization", &arguments);
    let answer = tokio::time::timeout(within, call).await;
    asked.answered = answer.is_ok();
    match answer {
        Err(_) => {
            tracing::warn!(
                action = action.id(),
                "refused {}, polkit did not decide within {within:?}",
                action.id()
            );
            Verdict::Refused
        }
        Ok(Err(error)) if absent(&error) => Verdict::Refused,
        Ok(Err(error)) => {
            let action = action.id();
            tracing::warn!(action, %error, "refused {action}, polkit failed: {error}");
            Verdict::Refused
        }
        // (is_authorized, is_challenge, details)
        Ok(Ok(reply)) => {
            match reply.body().deserialize::<(bool, bool, HashMap<String, String>)>() {
                Ok((true, _, _)) => Verdict::Allowed,
                Ok((false, true, _)) => Verdict::Challenge,
                Ok((false, false, _)) => Verdict::Refused,
                Err(error) => {
                    tracing::warn!(%error, "refused, the answer of polkit cannot be read: {error}");
                    Verdict::Refused
                }
            }
        }
    }
}

/// A bus without polkit is an ordinary thing.
fn absent(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::MethodError(name, ..) if matches!(
        name.as_str(),
        "org.freedesktop.DBus.Error.ServiceUnknown"
            | "org.freedesktop.DBus.Error.NameHasNoOwner"
            | "org.freedesktop.DBus.Error.Spawn.ServiceNotFound"
    ))
}
