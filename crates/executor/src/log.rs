//! The log line of each event, for `journalctl` what `lrsctl events` is for clients.

use std::fmt;

use serde_json::Value;
use tracing::Level;

use lrs_core::event::{Event, EventKind};
use lrs_core::model::Labels;

/// Logs `event`; `labels` are its task's, where there is one.
///
/// Each kind that is logged unasked has a line of code of its own, and so its own share of what
/// `lrs_host::log` lets pass: a flood of drifts hides no guard.
pub(super) fn log(event: &Event, labels: Option<&Labels>) {
    let label = |name: &str| {
        let known = labels.and_then(|labels| match name {
            "job" => labels.job.as_ref(),
            _ => labels.kind.as_ref(),
        });
        // The events of a task's end bring its labels with them.
        known
            .map(ToString::to_string)
            .or_else(|| event.inputs.get(name).and_then(Value::as_str).map(str::to_owned))
    };
    // What is unknown or does not apply is left out.
    let (job, kind) = (label("job"), label("kind"));
    let (job, kind) = (job.as_deref(), kind.as_deref());
    let task = event.task.as_deref();
    let (from, to) = (event.from.as_deref(), event.to.as_deref());
    let tier = to.or(from).filter(|to| matches!(*to, "active" | "passive"));
    let reason = event.reason.as_deref();
    let (seq, text) = (event.seq, Line(event));
    let event_kind = event.kind.as_str();
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                event = event_kind,
                seq,
                task,
                job,
                kind,
                tier,
                from,
                to,
                reason,
                "{text}"
            )
        };
    }
    match (event.kind, level(event)) {
        (EventKind::Guard, Level::WARN) => line!(warn),
        (EventKind::Guard, _) => line!(info),
        (EventKind::Drift, Level::WARN) => line!(warn),
        (EventKind::Drift, _) => line!(info),
        (EventKind::Contested, _) => line!(warn),
        (EventKind::Recovered, _) => line!(warn),
        (EventKind::OfferFailed, _) => line!(warn),
        (EventKind::Offered, _) => line!(info),
        (EventKind::Expanded | EventKind::Shrunk | EventKind::Probe, _) => line!(info),
        (EventKind::Resized, _) => line!(info),
        (EventKind::Draining | EventKind::Resumed, _) => line!(info),
        (EventKind::Started | EventKind::Stopped | EventKind::Reloaded, _) => line!(info),
        _ => line!(debug),
    }
}

/// How loud: see the table of `lrs_host::log`.
fn level(event: &Event) -> Level {
    match event.kind {
        EventKind::Guard if matches!(event.to.as_deref(), Some("0" | "thawed")) => Level::INFO,
        EventKind::Guard => Level::WARN,
        // Once may be an operator's `systemctl set-property`; again is an operator who insists.
        EventKind::Drift if repairs(event) <= 1 => Level::INFO,
        EventKind::Drift | EventKind::Contested | EventKind::Recovered | EventKind::OfferFailed => {
            Level::WARN
        }
        EventKind::Expanded
        | EventKind::Shrunk
        | EventKind::Probe
        | EventKind::Resized
        | EventKind::Draining
        | EventKind::Resumed
        | EventKind::Started
        | EventKind::Stopped
        | EventKind::Reloaded
        | EventKind::Offered => Level::INFO,
        EventKind::Admitted
        | EventKind::Attached
        | EventKind::Promoted
        | EventKind::Demoted
        | EventKind::Completed
        | EventKind::Left
        | EventKind::Exit
        | EventKind::Released
        | EventKind::Refused
        | EventKind::LaneIn
        | EventKind::LaneOut
        | EventKind::Loan
        | EventKind::LoanEnd
        | EventKind::Priority
        | EventKind::Standing
        | EventKind::Reserved
        | EventKind::Cancelled
        | EventKind::Expired
        | EventKind::Withdrawn => Level::DEBUG,
    }
}

/// Of a drift: repairs of this task within a minute, this one included. A drift that says
/// nothing of it was not repaired.
fn repairs(event: &Event) -> u64 {
    event.inputs.get("repairs").and_then(Value::as_u64).unwrap_or(u64::MAX)
}

/// `promoted t-1 passive -> active: an active slot came free`.
struct Line<'a>(&'a Event);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { kind, task, from, to, reason, .. } = self.0;
        f.write_str(kind.as_str())?;
        if let Some(task) = task {
            write!(f, " {task}")?;
        }
        match (from, to) {
            (Some(from), Some(to)) => write!(f, " {from} -> {to}")?,
            (Some(from), None) => write!(f, " from {from}")?,
            (None, Some(to)) => write!(f, " to {to}")?,
            (None, None) => {}
        }
        match reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use lrs_core::units::WallTime;

    fn event(kind: EventKind) -> Event {
        Event {
            seq: 7,
            at: WallTime::default(),
            kind,
            task: None,
            from: None,
            to: None,
            reason: None,
            inputs: Map::new(),
        }
    }

    #[test]
    fn a_line_reads_as_a_sentence() {
        let mut promoted = event(EventKind::Promoted);
        assert_eq!(Line(&promoted).to_string(), "promoted");
        promoted.task = Some("1f-3".into());
        promoted.from = Some("passive".into());
        promoted.to = Some("active".into());
        promoted.reason = Some("an active slot came free".into());
        let text = Line(&promoted).to_string();
        assert_eq!(text, "promoted 1f-3 passive -> active: an active slot came free");
        promoted.from = None;
        promoted.reason = None;
        assert_eq!(Line(&promoted).to_string(), "promoted 1f-3 to active");
    }

    #[test]
    fn what_repeats_or_weakens_is_a_warning_and_what_passes_is_not() {
        let guard = |to: &str| Event { to: Some(to.into()), ..event(EventKind::Guard) };
        assert_eq!(level(&guard("1")), Level::WARN);
        assert_eq!(level(&guard("0")), Level::INFO);
        let drift = |repairs| {
            let mut drift = event(EventKind::Drift);
            drift.inputs.insert("repairs".into(), json!(repairs));
            level(&drift)
        };
        assert_eq!(drift(Some(1)), Level::INFO);
        assert_eq!(drift(Some(2)), Level::WARN);
        assert_eq!(drift(None), Level::WARN);
        assert_eq!(level(&event(EventKind::Refused)), Level::DEBUG);
    }
}
