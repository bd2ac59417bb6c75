//! What a client sends, checked against its documented range, once; beyond this line it is
//! typed. Every transport comes through here, so that all of them refuse the same things in the
//! same words.

mod pid;

use std::str::FromStr;
use std::time::Duration;

use crate::command::{
    AdmitRequest, Caller, CommandError, ErrorKind, JobPriority, MAX_MESSAGE_BYTES, QueueId,
    QueueMark, QueuePage, QueueRequest, ReserveRequest, Subject, Wait,
};
use crate::core::event::{Change, EventKind};
use crate::core::hint::Hint as Expected;
use crate::core::model::{Label, Labels, Priority, ReservationId, TaskId};
use crate::core::state::Lease;
use crate::core::step::Ticket;
use crate::discover::{Hint, Master};
use crate::proto;
use crate::systemd::unit::{UnitName, UnitNameError};
use crate::units::{ProcessRef, Share};
use crate::wire;
use pid::process;

/// Checks an Admit; pid 0 becomes the caller's.
pub fn admit(request: proto::AdmitRequest, caller: &Caller) -> Result<AdmitRequest, CommandError> {
    let (subject, start_ticks) = match (&request.unit, request.pid) {
        (Some(unit), 0) => (Subject::Unit(unit_name(unit)?), None),
        (None, raw) => {
            let (pid, start_ticks) = process(raw, caller)?;
            (Subject::Process(pid), start_ticks)
        }
        (Some(unit), pid) => return Err(unit_and_pid(unit, pid)),
    };
    admit_subject(request, subject, start_ticks)
}

/// Checks an Admit of `process`, which is known by more than its number.
pub fn admit_process(
    request: proto::AdmitRequest,
    process: ProcessRef,
) -> Result<AdmitRequest, CommandError> {
    if let Some(unit) = &request.unit {
        return Err(unit_and_pid(unit, process.pid.raw()));
    }
    admit_subject(request, Subject::Process(process.pid), Some(process.start_ticks))
}

fn unit_and_pid(unit: &str, pid: i32) -> CommandError {
    invalid(format!("unit {unit:?} and pid {pid} exclude each other; leave one out"))
}

fn admit_subject(
    request: proto::AdmitRequest,
    subject: Subject,
    start_ticks: Option<u64>,
) -> Result<AdmitRequest, CommandError> {
    let wait = wait(request.wait_ms, request.wait_forever)?;
    Ok(AdmitRequest {
        subject,
        start_ticks,
        labels: Labels {
            name: label("name", request.name)?,
            job: label("job", request.job)?,
            kind: label("kind", request.kind)?,
            group: label("group", request.group)?,
            command: command(request.command)?,
            hint: hinted(request.hinted_rate)?,
        },
        priority: request.priority.map(Priority),
        reservation: request.reservation.as_deref().map(reservation_id).transpose()?,
        in_place: request.in_place,
        keep_unit: request.keep_unit,
        leave_unit: request.leave_unit,
        wait,
        ticket: request.ticket,
        ticket_to: None,
    })
}

fn wait(wait_ms: u64, wait_forever: bool) -> Result<Wait, CommandError> {
    match (wait_ms, wait_forever) {
        (0, false) => Ok(Wait::No),
        (0, true) => Ok(Wait::Forever),
        (ms, false) => Ok(Wait::For(Duration::from_millis(ms))),
        (ms, true) => {
            Err(invalid(format!("wait_ms {ms} and wait_forever exclude each other; leave one out")))
        }
    }
}

/// Most hints, and most changes, of one request.
const MAX_HINTS: usize = 256;
const MAX_CHANGES: usize = 8;

/// Checks a Hint.
pub fn hints(request: proto::HintRequest) -> Result<Vec<Hint>, CommandError> {
    if request.hints.len() > MAX_HINTS {
        return Err(invalid(format!("more than {MAX_HINTS} hints; send the rest in another call")));
    }
    request.hints.into_iter().map(hint).collect()
}

fn hint(hint: proto::ContainerHint) -> Result<Hint, CommandError> {
    use proto::container_hint::Master as Claim;
    let name = |text: String| label("container", Some(text)).map(drop_label);
    Ok(Hint {
        container: name(hint.container)?,
        priority: hint.priority.map(Priority),
        opportunistic: hint.opportunistic,
        queue: label("queue", hint.queue)?,
        master: match hint.master {
            None | Some(Claim::MasterOutside(false)) => None,
            Some(Claim::MasterOutside(true)) => Some(Master::Outside),
            Some(Claim::MasterContainer(id)) => Some(Master::Container(name(id)?)),
        },
    })
}

fn drop_label(label: Option<Label>) -> String {
    label.map(|label| label.as_str().to_owned()).unwrap_or_default()
}

/// Checks what a ReportIntegration brings for the history.
pub fn changes(changes: Vec<proto::IntegrationChange>) -> Result<Vec<Change>, CommandError> {
    if changes.len() > MAX_CHANGES {
        return Err(invalid(format!("more than {MAX_CHANGES} changes; send the rest later")));
    }
    let change = |change: proto::IntegrationChange| {
        let kind = match change.r#type.as_str() {
            "offered" => EventKind::Offered,
            "offer_failed" => EventKind::OfferFailed,
            other => {
                return Err(invalid(format!(
                    "a change of type {other:?} is not one that an integration may report; those are \
                     \"offered\" and \"offer_failed\""
                )));
            }
        };
        let texts = [Some(&change.reason), change.from.as_ref(), change.to.as_ref()];
        if texts.into_iter().flatten().any(|text| text.len() > MAX_MESSAGE_BYTES) {
            return Err(invalid(format!(
                "a text of a change is longer than {MAX_MESSAGE_BYTES} bytes"
            )));
        }
        let proto::IntegrationChange { from, to, reason, inputs, .. } = change;
        Ok(Change {
            kind,
            from,
            to,
            reason,
            inputs: inputs.map(wire::json_object).unwrap_or_default(),
        })
    };
    changes.into_iter().map(change).collect()
}

fn unit_name(text: &str) -> Result<UnitName, CommandError> {
    text.parse().map_err(|error: UnitNameError| {
        let kind = match error {
            UnitNameError::Malformed(..) => ErrorKind::InvalidArgument,
            UnitNameError::Unfit(..) => ErrorKind::FailedPrecondition,
        };
        CommandError::new(kind, error.to_string())
    })
}

/// Most reservations of one request.
const MAX_RESERVED: u32 = 256;

/// Checks a Reserve.
pub fn reserve(request: proto::ReserveRequest) -> Result<ReserveRequest, CommandError> {
    let wait = wait(request.wait_ms, request.wait_forever)?;
    let active = match proto::Tier::try_from(request.tier) {
        Ok(proto::Tier::Unspecified) => false,
        Ok(proto::Tier::Active) if wait == Wait::No => true,
        Ok(proto::Tier::Active) => {
            return Err(invalid(
                "tier active cannot be waited for: tasks that are passive have an active slot that \
                 comes free first; leave tier out, or do not wait",
            ));
        }
        Ok(proto::Tier::Passive) | Err(_) => {
            return Err(invalid(
                "tier can only be active: a reservation is passive while no active slot is free; \
                 leave tier out",
            ));
        }
    };
    if request.count > MAX_RESERVED {
        return Err(invalid(format!(
            "count is {}; at most {MAX_RESERVED} slots are reserved at once",
            request.count
        )));
    }
    Ok(ReserveRequest {
        labels: Labels {
            name: None,
            job: label("job", request.job)?,
            kind: label("kind", request.kind)?,
            group: label("group", request.group)?,
            command: None,
            hint: hinted(request.hinted_rate)?,
        },
        priority: Priority(request.priority),
        lease: Lease {
            ttl: request.ttl_ms.map(Duration::from_millis),
            count: request.count.max(1),
            active,
        },
        wait,
    })
}

/// Checks a SetJobPriority.
pub fn job_priority(request: proto::SetJobPriorityRequest) -> Result<JobPriority, CommandError> {
    let proto::SetJobPriorityRequest { job, uid, priority } = request;
    let job = Label::new(&job).map_err(|error| invalid(format!("job {error}")))?;
    Ok(JobPriority { job, uid, priority: Priority(priority) })
}

/// A label, or which field breaks the range and how.
pub fn label(field: &str, text: Option<String>) -> Result<Option<Label>, CommandError> {
    text.map(|text| Label::new(&text).map_err(|error| invalid(format!("{field} {error}"))))
        .transpose()
}

/// More of a command would make the history too long for one answer.
const MAX_COMMAND: usize = 80;

fn command(text: Option<String>) -> Result<Option<Label>, CommandError> {
    match text.as_ref().map(String::len).filter(|bytes| *bytes > MAX_COMMAND) {
        Some(bytes) => {
            Err(invalid(format!("command has {bytes} bytes; send the first {MAX_COMMAND} at most")))
        }
        None => label("command", text),
    }
}

fn hinted(value: Option<f64>) -> Result<Option<Expected>, CommandError> {
    Ok(rate("hinted_rate", value)?.map(Expected::new))
}

/// A rate, 0..=1.
pub fn rate(field: &str, value: Option<f64>) -> Result<Option<Share>, CommandError> {
    match value {
        None => Ok(None),
        Some(value) if (0.0..=1.0).contains(&value) => Ok(Some(Share::clamped(value))),
        Some(value) => {
            Err(invalid(format!("{field} is {value}; a computing rate is between 0 and 1")))
        }
    }
}

/// The id of a task.
pub fn task_id(text: &str) -> Result<TaskId, CommandError> {
    id(text, "task", "`lrsctl tasks` lists what runs")
}

/// Waiters on one page: what the loop lists without holding anything up.
const QUEUE_PAGE: usize = 1_000;

/// Checks a ListQueue; pid 0 becomes the caller's.
pub fn queue(
    request: proto::ListQueueRequest,
    caller: &Caller,
) -> Result<QueueRequest, CommandError> {
    match (request.id, request.pid) {
        (None, None) => {}
        (Some(id), None) => return Ok(QueueRequest::Id(queue_id(&id)?)),
        (None, Some(raw)) => return Ok(QueueRequest::Process(process(raw, caller)?.0)),
        (Some(_), Some(_)) => return Err(invalid("id and pid exclude each other; leave one out")),
    }
    let after = match request.page_token.as_str() {
        "" => None,
        token => Some(queue_mark(token).ok_or_else(|| {
            invalid("page_token is not valid; send next_page_token of the page before, unchanged")
        })?),
    };
    let size = match request.page_size as usize {
        0 => QUEUE_PAGE,
        size => size.min(QUEUE_PAGE),
    };
    Ok(QueueRequest::Page { after, size })
}

fn queue_mark(token: &str) -> Option<QueueMark> {
    let mut parts = token.split('.');
    let seen = parts.next()?.parse().ok()?;
    let last = Ticket(parts.next()?.parse().ok()?);
    let granted = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(QueueMark { seen, last, granted })
}

/// A page of the queue as clients read it.
pub fn queue_page(page: QueuePage) -> proto::ListQueueResponse {
    let next_page_token =
        page.next.map(|QueueMark { seen, last, granted }| format!("{seen}.{}.{granted}", last.0));
    proto::ListQueueResponse {
        queue: page.entries,
        next_page_token: next_page_token.unwrap_or_default(),
    }
}

/// The id of a request that waits or of a reservation.
pub fn queue_id(text: &str) -> Result<QueueId, CommandError> {
    if let Ok(id) = text.parse() {
        return Ok(QueueId::Waiter(id));
    }
    reservation_id(text).map(QueueId::Reservation)
}

/// The id of a reservation.
pub fn reservation_id(text: &str) -> Result<ReservationId, CommandError> {
    id(text, "reservation", "it has ended, or is another daemon's; reserve anew")
}

/// An id that no daemon can have given is an invalid argument; an id that is not one of this daemon
/// is not found.
fn id<T: FromStr>(text: &str, what: &str, remedy: &str) -> Result<T, CommandError> {
    check_id_range(text)?;
    text.parse().map_err(|_| not_found(format!("no {what} {text}: {remedy}")))
}

/// `[a-z0-9-]{1,64}`.
pub fn check_id_range(text: &str) -> Result<(), CommandError> {
    const MAX_BYTES: usize = 64;
    let in_range = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.is_empty() {
        Err(invalid("id is empty"))
    } else if text.len() > MAX_BYTES {
        Err(invalid(format!("id has {} bytes; ids have at most {MAX_BYTES}", text.len())))
    } else if !text.bytes().all(in_range) {
        Err(invalid(format!("id {text:?} is not made of a-z, 0-9 and -")))
    } else {
        Ok(())
    }
}

/// The client broke a documented range.
pub fn invalid(message: impl Into<String>) -> CommandError {
    CommandError::new(ErrorKind::InvalidArgument, message)
}

fn not_found(message: impl Into<String>) -> CommandError {
    CommandError::new(ErrorKind::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CallerProcess;
    use crate::units::Pid;

    fn caller() -> Caller {
        asked_by(CallerProcess::Here(own()))
    }

    fn own() -> ProcessRef {
        ProcessRef { pid: Pid::new(42).unwrap(), start_ticks: 17 }
    }

    fn asked_by(process: CallerProcess) -> Caller {
        Caller { uid: 1, gids: vec![1], process, granted: None }
    }

    #[test]
    fn admit_checks_every_field() {
        let process = |pid| Subject::Process(Pid::new(pid).unwrap());
        let good = proto::AdmitRequest { pid: 7, ..Default::default() };
        assert_eq!(admit(good.clone(), &caller()).unwrap().subject, process(7));
        let own = proto::AdmitRequest { pid: 0, ..good.clone() };
        assert_eq!(admit(own.clone(), &caller()).unwrap().subject, process(42));
        let unit = |pid, name: &str| {
            admit(proto::AdmitRequest { pid, unit: Some(name.into()), ..good.clone() }, &caller())
        };
        let cron = Subject::Unit("cron.service".parse().unwrap());
        assert_eq!(unit(0, "cron").unwrap().subject, cron);
        for (pid, name, kind) in [
            (7, "cron", ErrorKind::InvalidArgument),
            (0, "a b", ErrorKind::InvalidArgument),
            (0, "", ErrorKind::InvalidArgument),
            (0, "system.slice", ErrorKind::FailedPrecondition),
        ] {
            assert_eq!(unit(pid, name).unwrap_err().kind, kind, "{pid} {name:?}");
        }
        let unseen = asked_by(CallerProcess::Unseen);
        let bad = [
            (own, unseen, ErrorKind::InvalidArgument, "namespace"),
            (
                proto::AdmitRequest { pid: -1, ..good.clone() },
                caller(),
                ErrorKind::InvalidArgument,
                "-1",
            ),
            (
                proto::AdmitRequest { name: Some("a\u{1b}[2J".into()), ..good.clone() },
                caller(),
                ErrorKind::InvalidArgument,
                "name has a control character at position 1",
            ),
            (
                proto::AdmitRequest { job: Some("x".repeat(300)), ..good.clone() },
                caller(),
                ErrorKind::InvalidArgument,
                "job has 300 bytes",
            ),
            (
                proto::AdmitRequest { kind: Some(String::new()), ..good.clone() },
                caller(),
                ErrorKind::InvalidArgument,
                "kind is empty",
            ),
            (
                proto::AdmitRequest { group: Some("a\nb".into()), ..good.clone() },
                caller(),
                ErrorKind::InvalidArgument,
                "group has a control character at position 1",
            ),
            (
                proto::AdmitRequest { command: Some("x".repeat(81)), ..good.clone() },
                caller(),
                ErrorKind::InvalidArgument,
                "command has 81 bytes",
            ),
            (
                proto::AdmitRequest { reservation: Some("../x".into()), ..good.clone() },
                caller(),
                ErrorKind::InvalidArgument,
                "../x",
            ),
            (
                proto::AdmitRequest { reservation: Some("r1".into()), ..good.clone() },
                caller(),
                ErrorKind::NotFound,
                "no reservation r1",
            ),
            (
                proto::AdmitRequest { wait_ms: 1, wait_forever: true, ..good },
                caller(),
                ErrorKind::InvalidArgument,
                "exclude each other",
            ),
        ];
        for (request, caller, kind, text) in bad {
            let error = admit(request, &caller).unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.message.contains(text), "{error}");
        }
    }

    #[test]
    fn what_a_scheduler_says_is_bounded() {
        use proto::container_hint::Master as Claim;
        let hint = |container: &str, master| proto::ContainerHint {
            container: container.to_owned(),
            queue: Some(String::from("root.q")),
            master,
            ..Default::default()
        };
        let read = |all: Vec<proto::ContainerHint>| hints(proto::HintRequest { hints: all });
        let taken =
            read(vec![hint("c1", Some(Claim::MasterContainer(String::from("c2"))))]).unwrap();
        assert_eq!(taken[0].master, Some(Master::Container(String::from("c2"))));
        for bad in ["", "a\nb"] {
            let error = read(vec![hint(bad, None)]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{bad:?}");
        }
        assert!(read(vec![hint("c", None); MAX_HINTS]).is_ok());
        assert!(read(vec![hint("c", None); MAX_HINTS + 1]).is_err());

        let inputs = serde_json::json!({"passive": 3, "share": 0.5, "node": null, "all": [true]});
        let change = |kind: &str, reason: &str| proto::IntegrationChange {
            r#type: kind.to_owned(),
            reason: reason.to_owned(),
            inputs: inputs.as_object().map(wire::proto_object),
            ..Default::default()
        };
        let taken = changes(vec![change("offered", "why")]).unwrap();
        assert_eq!(serde_json::Value::from(taken[0].inputs.clone()), inputs);
        assert!(changes(vec![change("admitted", "why")]).is_err(), "history is lrsd's");
        assert!(changes(vec![change("offered", &"x".repeat(5000))]).is_err());
        assert!(changes(vec![change("offered", ""); MAX_CHANGES + 1]).is_err());
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
