//! Errors by their names on D-Bus: those of the daemon below `org.lrs.Shaper1.Error.`, those of
//! the bus's conventions below `org.freedesktop.DBus.Error.`. The first argument is the message.

use zbus::message::{Header, Message};
use zbus::names::ErrorName;

use crate::command::{CommandError, ErrorKind, shortened};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct CallError {
    /// Full name on the bus.
    name: &'static str,
    /// What was found and what to do.
    pub message: String,
    /// The second argument of AlreadyExists: the task of the process.
    task: Option<String>,
}

macro_rules! standard {
    ($($(#[$doc:meta])* $function:ident: $name:literal;)*) => {
        impl CallError {
            $($(#[$doc])* pub(super) fn $function(message: impl Into<String>) -> CallError {
                CallError::new(concat!("org.freedesktop.DBus.Error.", $name), message)
            })*
        }
    };
}

standard! {
    /// polkit would allow it once a person was asked, which the caller did not allow.
    interaction_required: "InteractiveAuthorizationRequired";
    unknown_method: "UnknownMethod";
    unknown_object: "UnknownObject";
    unknown_interface: "UnknownInterface";
    unknown_property: "UnknownProperty";
    read_only: "PropertyReadOnly";
    /// The arguments have other types than the method takes.
    invalid_arguments: "InvalidArgs";
    /// A call larger than any that makes sense, or an answer larger than a bus carries.
    limits_exceeded: "LimitsExceeded";
}

impl CallError {
    fn new(name: &'static str, message: impl Into<String>) -> CallError {
        CallError { name, message: shortened(message.into()), task: None }
    }

    /// More calls at once than the server allows.
    pub(super) fn too_many(message: impl Into<String>) -> CallError {
        CallError::new("org.lrs.Shaper1.Error.TooManyCalls", message)
    }

    /// A fault of the server itself.
    pub(super) fn internal(error: impl std::fmt::Display) -> CallError {
        tracing::error!(%error, "no answer on D-Bus was made, please report this: {error}");
        CommandError::new(ErrorKind::Internal, format!("no answer was made: {error}")).into()
    }
}

impl From<CommandError> for CallError {
    fn from(error: CommandError) -> CallError {
        let (name, task) = match error.kind {
            ErrorKind::InvalidArgument => ("org.lrs.Shaper1.Error.InvalidArgument", None),
            ErrorKind::NotFound => ("org.lrs.Shaper1.Error.NotFound", None),
            ErrorKind::AlreadyExists(task) => {
                ("org.lrs.Shaper1.Error.AlreadyExists", Some(task.to_string()))
            }
            ErrorKind::NoFreeSlot => ("org.lrs.Shaper1.Error.NoFreeSlot", None),
            ErrorKind::FailedPrecondition => ("org.lrs.Shaper1.Error.FailedPrecondition", None),
            ErrorKind::PermissionDenied => ("org.lrs.Shaper1.Error.PermissionDenied", None),
            ErrorKind::WaitTimedOut => ("org.lrs.Shaper1.Error.WaitTimedOut", None),
            ErrorKind::Unavailable => ("org.lrs.Shaper1.Error.Unavailable", None),
            ErrorKind::Internal => ("org.lrs.Shaper1.Error.Internal", None),
        };
        CallError { task, ..CallError::new(name, error.message) }
    }
}

impl zbus::DBusError for CallError {
    fn create_reply(&self, call: &Header<'_>) -> zbus::Result<Message> {
        let reply = Message::error(call, self.name)?;
        match &self.task {
            None => reply.build(&(&self.message,)),
            Some(task) => reply.build(&(&self.message, task)),
        }
    }

    fn name(&self) -> ErrorName<'_> {
        ErrorName::from_static_str_unchecked(self.name)
    }

    fn description(&self) -> Option<&str> {
        Some(&self.message)
    }
}
