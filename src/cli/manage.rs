//! Commands that change something and have little to show for it: silence is success.

use super::args::{PriorityArgs, ReserveArgs};
use super::client::{Lrsd, ask};
use super::failure::{Asked, Failure};
use super::handle::with_id;
use super::output::{Output, say};
use super::values::millis;
use crate::proto;

/// `lrsctl release ID`
pub(super) fn release(lrsd: &Lrsd, id: String) -> Result<(), Failure> {
    ask(lrsd, Asked::Other, |lrsd| {
        with_id(lrsd, id, |mut lrsd, id| async move {
            lrsd.release(proto::ReleaseRequest { id }).await.map(drop)
        })
    })
}

/// `lrsctl priority ID N`, `lrsctl priority --job NAME N`
pub(super) fn priority(lrsd: &Lrsd, args: PriorityArgs, out: &mut Output) -> Result<(), Failure> {
    let PriorityArgs { id, priority, job, user } = args;
    if let Some(job) = job {
        let changed = ask(lrsd, Asked::Other, |mut lrsd| async move {
            let request = proto::SetJobPriorityRequest { job, uid: user, priority };
            lrsd.set_job_priority(request).await.map(tonic::Response::into_inner)
        })?;
        return if out.is_json() { out.json(&changed) } else { Ok(()) };
    }
    let id = id.unwrap_or_default();
    let task = ask(lrsd, Asked::Other, |lrsd| {
        with_id(lrsd, id, |mut lrsd, id| async move {
            let request = proto::SetPriorityRequest { id, priority };
            lrsd.set_priority(request).await.map(tonic::Response::into_inner)
        })
    })?;
    if out.is_json() { out.json(&task) } else { Ok(()) }
}

/// `lrsctl reserve`: the reservation's id alone, for `$(...)`.
pub(super) fn reserve(lrsd: &Lrsd, args: ReserveArgs, out: &mut Output) -> Result<(), Failure> {
    let reservation = ask(lrsd, Asked::ForSlot, |mut lrsd| async move {
        let request = proto::ReserveRequest {
            job: args.job,
            kind: args.kind,
            group: args.group,
            priority: args.priority,
            ttl_ms: args.ttl.map(millis),
            ..proto::ReserveRequest::default()
        };
        lrsd.reserve(request).await.map(tonic::Response::into_inner)
    })?;
    if out.is_json() { out.json(&reservation) } else { out.line(&reservation.id) }
}

/// `lrsctl cancel RID`
pub(super) fn cancel(lrsd: &Lrsd, id: String) -> Result<(), Failure> {
    ask(lrsd, Asked::Other, |mut lrsd| async move {
        lrsd.cancel_reservation(proto::CancelReservationRequest { id }).await.map(drop)
    })
}

/// `lrsctl drain`
pub(super) fn drain(lrsd: &Lrsd) -> Result<(), Failure> {
    ask(lrsd, Asked::Other, |mut lrsd| async move {
        lrsd.drain(proto::DrainRequest {}).await.map(drop)
    })?;
    say(format_args!("no new tasks are taken, running ones go on; `lrsctl resume` ends it"));
    Ok(())
}

/// `lrsctl resume`
pub(super) fn resume(lrsd: &Lrsd) -> Result<(), Failure> {
    ask(lrsd, Asked::Other, |mut lrsd| async move {
        lrsd.resume(proto::ResumeRequest {}).await.map(drop)
    })
}

/// `lrsctl reload`: the keys whose value changed, one a line.
pub(super) fn reload(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let response = ask(lrsd, Asked::Other, |mut lrsd| async move {
        lrsd.reload(proto::ReloadRequest {}).await.map(tonic::Response::into_inner)
    })?;
    if out.is_json() {
        return out.json(&response);
    }
    if response.changed.is_empty() {
        say(format_args!("nothing changed"));
    }
    response.changed.iter().try_for_each(|key| out.line(lrs_term::printable(key)))
}
