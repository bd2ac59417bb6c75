//! Errors in the words of D-Bus: the daemon's own under `org.lrs.Shaper1.Error.`, those of the
//! bus's conventions under `org.freedesktop.DBus.Error.`. The first argument is the message.

use crate::command::{CommandError, ErrorKind, shortened};

/// Why a call was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallError {
    /// Full name on the bus.
    pub name: &'static str,
    /// What was found and what to do.
    pub message: String,
    /// The second argument of AlreadyExists: the task the process is in.
    pub task: Option<String>,
}

impl CallError {
    fn new(name: &'static str, message: impl Into<String>) -> CallError {
        CallError { name, message: shortened(message.into()), task: None }
    }

    /// More calls at once than this door allows.
    pub(super) fn too_many(message: impl Into<String>) -> CallError {
        CallError::new("org.lrs.Shaper1.Error.TooManyCalls", message)
    }

    /// polkit would allow it after asking somebody, which the caller did not allow. The name of
    /// the specification ("Message Types", ALLOW_INTERACTIVE_AUTHORIZATION), which clients know.
    pub(super) fn interaction_required(message: impl Into<String>) -> CallError {
        CallError::new("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", message)
    }

    pub(super) fn unknown_method(message: impl Into<String>) -> CallError {
        CallError::new("org.freedesktop.DBus.Error.UnknownMethod", message)
    }

    pub(super) fn unknown_object(message: impl Into<String>) -> CallError {
        CallError::new("org.freedesktop.DBus.Error.UnknownObject", message)
    }

    pub(super) fn unknown_interface(message: impl Into<String>) -> CallError {
        CallError::new("org.freedesktop.DBus.Error.UnknownInterface", message)
    }

    pub(super) fn unknown_property(message: impl Into<String>) -> CallError {
        CallError::new("org.freedesktop.DBus.Error.UnknownProperty", message)
    }

    pub(super) fn read_only(message: impl Into<String>) -> CallError {
        CallError::new("org.freedesktop.DBus.Error.PropertyReadOnly", message)
    }

    /// The arguments have the wrong types altogether.
    pub(super) fn invalid_arguments(message: impl Into<String>) -> CallError {
        CallError::new("org.freedesktop.DBus.Error.InvalidArgs", message)
    }

    /// A call larger than any that makes sense, or an answer larger than a bus carries.
    pub(super) fn limits_exceeded(message: impl Into<String>) -> CallError {
        CallError::new("org.freedesktop.DBus.Error.LimitsExceeded", message)
    }
}

impl From<CommandError> for CallError {
    fn from(error: CommandError) -> CallError {
        let task = match &error.kind {
            ErrorKind::AlreadyExists(task) => Some(task.to_string()),
            _ => None,
        };
        CallError { task, ..CallError::new(name(&error.kind), error.message) }
    }
}

/// The name of each kind.
fn name(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidArgument => "org.lrs.Shaper1.Error.InvalidArgument",
        ErrorKind::NotFound => "org.lrs.Shaper1.Error.NotFound",
        ErrorKind::AlreadyExists(_) => "org.lrs.Shaper1.Error.AlreadyExists",
        ErrorKind::NoFreeSlot => "org.lrs.Shaper1.Error.NoFreeSlot",
        ErrorKind::FailedPrecondition => "org.lrs.Shaper1.Error.FailedPrecondition",
        ErrorKind::PermissionDenied => "org.lrs.Shaper1.Error.PermissionDenied",
        ErrorKind::WaitTimedOut => "org.lrs.Shaper1.Error.WaitTimedOut",
        ErrorKind::Unavailable => "org.lrs.Shaper1.Error.Unavailable",
        ErrorKind::Internal => "org.lrs.Shaper1.Error.Internal",
    }
}
