//! Errors of the daemon in the words of gRPC.

use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::command::{CommandError, ErrorKind, shortened};

/// Response metadata of ALREADY_EXISTS: the id of the task the process is in.
pub const TASK_METADATA: &str = "lrs-task";

/// The canonical code of each kind, as the head of the proto file lists them.
pub fn status(error: CommandError) -> Status {
    let message = shortened(error.message);
    match error.kind {
        ErrorKind::InvalidArgument => Status::invalid_argument(message),
        ErrorKind::NotFound => Status::not_found(message),
        ErrorKind::AlreadyExists(task) => {
            let mut status = Status::already_exists(message);
            // An id is `[a-z0-9-]`, which every metadata value may hold.
            if let Ok(id) = MetadataValue::try_from(task.to_string()) {
                status.metadata_mut().insert(TASK_METADATA, id);
            }
            status
        }
        ErrorKind::NoFreeSlot => Status::resource_exhausted(message),
        ErrorKind::FailedPrecondition => Status::failed_precondition(message),
        ErrorKind::PermissionDenied => Status::permission_denied(message),
        ErrorKind::WaitTimedOut => Status::deadline_exceeded(message),
        ErrorKind::Unavailable => Status::unavailable(message),
        ErrorKind::Internal => Status::internal(message),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::core::model::TaskId;

    #[test]
    fn every_kind_of_error_has_its_code() {
        let task = TaskId { epoch: 1, number: 2 };
        let table = [
            (ErrorKind::InvalidArgument, Code::InvalidArgument),
            (ErrorKind::NotFound, Code::NotFound),
            (ErrorKind::AlreadyExists(task), Code::AlreadyExists),
            (ErrorKind::NoFreeSlot, Code::ResourceExhausted),
            (ErrorKind::FailedPrecondition, Code::FailedPrecondition),
            (ErrorKind::PermissionDenied, Code::PermissionDenied),
            (ErrorKind::WaitTimedOut, Code::DeadlineExceeded),
            (ErrorKind::Unavailable, Code::Unavailable),
            (ErrorKind::Internal, Code::Internal),
        ];
        for (kind, code) in table {
            let status = super::status(CommandError::new(kind, "why"));
            assert_eq!((status.code(), status.message()), (code, "why"));
            let id = status.metadata().get(TASK_METADATA).map(|id| id.to_str().unwrap());
            assert_eq!(id, (code == Code::AlreadyExists).then_some("t0000001-2"));
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let text = shortened("ü".repeat(5000));
        assert!(text.starts_with(&"ü".repeat(2048)) && text.len() < 4200, "{}", text.len());
        assert!(text.ends_with("(5904 bytes more; see the log of lrsd)"), "{text}");
    }
}
