//! Between the messages of the contract and the nouns of the daemon. What a client sends is
//! checked here against its documented range, once; beyond this line it is typed.

use std::str::FromStr;
use std::time::Duration;

use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::command::{AdmitRequest, Caller, CommandError, ErrorKind, ReserveRequest, Wait};
use crate::core::event::Event;
use crate::core::model::{Label, Labels, Priority, ReservationId, TaskId};
use crate::proto;
use crate::units::{Pid, Share, WallTime};
use crate::wire;

/// Response metadata of ALREADY_EXISTS: the id of the task the process is in.
pub const TASK_METADATA: &str = "lrs-task";

/// Longest status message in bytes. The message travels percent-encoded in a header, up to
/// three bytes for one, and clients cap all headers of a response together (16 KiB in hyper
/// and grpc-go); beyond the cap they drop the connection and the user sees no message at all.
const MAX_MESSAGE_BYTES: usize = 4096;

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

fn shortened(mut message: String) -> String {
    if message.len() <= MAX_MESSAGE_BYTES {
        return message;
    }
    let mut end = MAX_MESSAGE_BYTES;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let left_out = message.len() - end;
    message.truncate(end);
    message.push_str(&format!(" ... ({left_out} bytes more; see the log of lrsd)"));
    message
}

/// An event as clients read it.
pub fn event(event: &Event) -> proto::Event {
    proto::Event {
        seq: event.seq,
        at: Some(wire::proto_time(event.at)),
        r#type: event.kind.as_str().to_owned(),
        task: event.task.clone(),
        from: event.from.clone(),
        to: event.to.clone(),
        reason: event.reason.clone(),
        inputs: (!event.inputs.is_empty()).then(|| wire::proto_object(&event.inputs)),
    }
}

/// Checks an Admit; pid 0 becomes the caller's.
pub fn admit(request: proto::AdmitRequest, caller: &Caller) -> Result<AdmitRequest, Status> {
    let pid = match request.pid {
        0 => caller.pid.ok_or_else(|| {
            Status::invalid_argument(
                "pid 0 means the caller, which is not to be seen from the pid namespace of lrsd; \
                 give its pid there",
            )
        })?,
        raw => Pid::new(raw).ok_or_else(|| {
            Status::invalid_argument(format!("pid {raw} is negative; give that of a process, or 0"))
        })?,
    };
    let wait = match (request.wait_ms, request.wait_forever) {
        (0, false) => Wait::No,
        (0, true) => Wait::Forever,
        (ms, false) => Wait::For(Duration::from_millis(ms)),
        (ms, true) => {
            return Err(Status::invalid_argument(format!(
                "wait_ms {ms} and wait_forever exclude each other; leave one out"
            )));
        }
    };
    Ok(AdmitRequest {
        pid,
        labels: Labels {
            name: label("name", request.name)?,
            job: label("job", request.job)?,
            kind: label("kind", request.kind)?,
        },
        priority: request.priority.map(Priority),
        reservation: request.reservation.as_deref().map(reservation_id).transpose()?,
        in_place: request.in_place,
        wait,
        first_requested_at: request.first_requested_at.map(wall_time).transpose()?,
    })
}

/// Checks a Reserve.
pub fn reserve(request: proto::ReserveRequest) -> Result<ReserveRequest, Status> {
    Ok(ReserveRequest {
        labels: Labels {
            name: None,
            job: label("job", request.job)?,
            kind: label("kind", request.kind)?,
        },
        priority: Priority(request.priority),
        ttl: request.ttl_ms.map(Duration::from_millis),
    })
}

/// A label, or which field breaks the range and how.
pub fn label(field: &str, text: Option<String>) -> Result<Option<Label>, Status> {
    text.map(|text| {
        Label::new(&text).map_err(|error| Status::invalid_argument(format!("{field} {error}")))
    })
    .transpose()
}

/// A rate, 0..=1.
pub fn rate(field: &str, value: Option<f64>) -> Result<Option<Share>, Status> {
    match value {
        None => Ok(None),
        Some(value) if (0.0..=1.0).contains(&value) => Ok(Some(Share::clamped(value))),
        Some(value) => Err(Status::invalid_argument(format!(
            "{field} is {value}; a computing rate is between 0 and 1"
        ))),
    }
}

/// The id of a task.
pub fn task_id(text: &str) -> Result<TaskId, Status> {
    id(text, "task", "`lrsctl tasks` lists what runs")
}

/// The id of a reservation.
pub fn reservation_id(text: &str) -> Result<ReservationId, Status> {
    id(text, "reservation", "it has ended, or is another daemon's; reserve anew")
}

/// What nobody could ever have been given is an invalid argument; what merely is not an id of
/// this daemon names nothing.
fn id<T: FromStr>(text: &str, what: &str, remedy: &str) -> Result<T, Status> {
    check_id_range(text)?;
    text.parse().map_err(|_| Status::not_found(format!("no {what} {text}: {remedy}")))
}

/// `[a-z0-9-]{1,64}`.
pub fn check_id_range(text: &str) -> Result<(), Status> {
    const MAX_BYTES: usize = 64;
    let in_range = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.is_empty() {
        Err(Status::invalid_argument("id is empty"))
    } else if text.len() > MAX_BYTES {
        Err(Status::invalid_argument(format!(
            "id has {} bytes; ids have at most {MAX_BYTES}",
            text.len()
        )))
    } else if !text.bytes().all(in_range) {
        Err(Status::invalid_argument(format!("id {text:?} is not made of a-z, 0-9 and -")))
    } else {
        Ok(())
    }
}

fn wall_time(timestamp: prost_types::Timestamp) -> Result<WallTime, Status> {
    if (0..1_000_000_000).contains(&timestamp.nanos) {
        return Ok(wire::wall_time(&timestamp));
    }
    Err(Status::invalid_argument(format!(
        "first_requested_at has {} nanoseconds; they count from 0 to 999999999",
        timestamp.nanos
    )))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn caller() -> Caller {
        Caller { uid: 1, gids: vec![1], pid: Pid::new(42) }
    }

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
            let status = status(CommandError::new(kind, "why"));
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

    #[test]
    fn admit_checks_every_field() {
        let good = proto::AdmitRequest { pid: 7, ..Default::default() };
        assert_eq!(admit(good.clone(), &caller()).unwrap().pid.raw(), 7);
        let own = proto::AdmitRequest { pid: 0, ..good.clone() };
        assert_eq!(admit(own.clone(), &caller()).unwrap().pid.raw(), 42);
        let unseen = Caller { pid: None, ..caller() };
        let bad = [
            (own, unseen, Code::InvalidArgument, "namespace"),
            (
                proto::AdmitRequest { pid: -1, ..good.clone() },
                caller(),
                Code::InvalidArgument,
                "-1",
            ),
            (
                proto::AdmitRequest { name: Some("a\u{1b}[2J".into()), ..good.clone() },
                caller(),
                Code::InvalidArgument,
                "name has a control character at position 1",
            ),
            (
                proto::AdmitRequest { job: Some("x".repeat(300)), ..good.clone() },
                caller(),
                Code::InvalidArgument,
                "job has 300 bytes",
            ),
            (
                proto::AdmitRequest { kind: Some(String::new()), ..good.clone() },
                caller(),
                Code::InvalidArgument,
                "kind is empty",
            ),
            (
                proto::AdmitRequest { reservation: Some("../x".into()), ..good.clone() },
                caller(),
                Code::InvalidArgument,
                "../x",
            ),
            (
                proto::AdmitRequest { reservation: Some("r1".into()), ..good.clone() },
                caller(),
                Code::NotFound,
                "no reservation r1",
            ),
            (
                proto::AdmitRequest { wait_ms: 1, wait_forever: true, ..good.clone() },
                caller(),
                Code::InvalidArgument,
                "exclude each other",
            ),
            (
                proto::AdmitRequest {
                    first_requested_at: Some(prost_types::Timestamp { seconds: 0, nanos: -1 }),
                    ..good
                },
                caller(),
                Code::InvalidArgument,
                "first_requested_at",
            ),
        ];
        for (request, caller, code, text) in bad {
            let error = admit(request, &caller).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.message().contains(text), "{error}");
        }
    }

    #[test]
    fn waits() {
        let wait = |wait_ms, wait_forever| {
            let request =
                proto::AdmitRequest { pid: 7, wait_ms, wait_forever, ..Default::default() };
            admit(request, &caller()).unwrap().wait
        };
        assert_eq!(wait(0, false), Wait::No);
        assert_eq!(wait(0, true), Wait::Forever);
        assert_eq!(wait(u64::MAX, false), Wait::For(Duration::from_millis(u64::MAX)));
    }

    #[test]
    fn rates_have_a_range() {
        for value in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(rate("computing_rate", Some(value)).is_err(), "{value}");
        }
        assert_eq!(rate("computing_rate", Some(1.0)).unwrap(), Some(Share::ONE));
    }
}
