//! Commands that change something; they print little or nothing on success.

use lrs_api::client::all_tasks;
use lrs_api::words;
use tokio::time::timeout;

use super::admit::{QUEUED, say_waiting};
use super::args::{PriorityArgs, ReserveArgs};
use super::client::{Lrsd, ask, connect, in_time, no_answer};
use super::failure::{Failure, Purpose, from_status};
use super::handle::{is_queued, with_id};
use super::output::{Output, printable, say};
use super::queue::{id_of, whole};
use super::values::{Patience, millis};
use crate::core::model::ReservationId;
use crate::proto;

/// `lrsctl release ID`
pub(super) fn release(lrsd: &Lrsd, id: String) -> Result<(), Failure> {
    let task = ask(lrsd, Purpose::Other, |lrsd| {
        with_id(lrsd, id, |mut lrsd, id| async move {
            // How it is now; an lrsd that does not say releases it all the same.
            let task = lrsd.get_task(proto::GetTaskRequest { id: id.clone() }).await.ok();
            lrsd.release(proto::ReleaseRequest { id }).await?;
            Ok(task.map(tonic::Response::into_inner))
        })
    })?;
    if let Some(task) = task
        && (task.frozen || task.stopped)
        && task.attachment == proto::Attachment::Own as i32
    {
        say(format_args!(
            "lrsctl: {} is {}: unless lrsd did that, its processes stay in {}, with neutral weights",
            task.id,
            if task.frozen { "frozen" } else { "stopped" },
            printable(task.cgroup.as_deref().unwrap_or("their cgroup"))
        ));
    }
    Ok(())
}

/// `lrsctl priority ID N`, `lrsctl priority --job NAME N`
pub(super) fn priority(lrsd: &Lrsd, args: PriorityArgs, out: &mut Output) -> Result<(), Failure> {
    let PriorityArgs { id, priority, job, user } = args;
    if let Some(job) = job {
        let changed = ask(lrsd, Purpose::Other, |mut lrsd| async move {
            let request = proto::SetJobPriorityRequest { job, uid: user, priority };
            lrsd.set_job_priority(request).await.map(tonic::Response::into_inner)
        })?;
        return if out.is_json() { out.json(&changed) } else { Ok(()) };
    }
    let id = id.unwrap_or_default();
    let task = ask(lrsd, Purpose::Other, |lrsd| {
        with_id(lrsd, id, |mut lrsd, id| async move {
            let request = proto::SetPriorityRequest { id, priority };
            lrsd.set_priority(request).await.map(tonic::Response::into_inner)
        })
    })?;
    if out.is_json() { out.json(&task) } else { Ok(()) }
}

/// `lrsctl reserve`: the ids alone, for `$(...)`.
pub(super) fn reserve(lrsd: &Lrsd, args: ReserveArgs, out: &mut Output) -> Result<(), Failure> {
    let request = proto::ReserveRequest {
        job: args.job,
        kind: args.kind,
        group: args.group,
        hinted_rate: args.hint.rate(),
        priority: args.priority,
        ttl_ms: args.ttl.map(millis),
        wait_ms: match args.wait {
            Some(Patience::For(limit)) => millis(limit),
            _ => 0,
        },
        wait_forever: matches!(args.wait, Some(Patience::Forever)),
        tier: if args.active { proto::Tier::Active } else { proto::Tier::Unspecified }.into(),
        count: args.count,
    };
    let reservation = super::runtime()?.block_on(async {
        let mut connection = in_time(lrsd, connect(lrsd)).await??;
        let mut answer = std::pin::pin!(connection.reserve(request));
        let answer = async {
            tokio::select! {
                biased;
                answer = answer.as_mut() => answer,
                () = tokio::time::sleep(QUEUED) => {
                    say_waiting();
                    answer.await
                }
            }
        };
        let answer = match args.wait {
            None => in_time(lrsd, answer).await?,
            Some(Patience::Forever) => answer.await,
            Some(Patience::For(limit)) => {
                let limit = limit.saturating_add(lrsd.answer_within());
                timeout(limit, answer).await.map_err(|_| no_answer(limit))?
            }
        };
        answer.map_err(|status| from_status(&status, Purpose::ForSlot))
    });
    let reservation = reservation?.into_inner();
    if out.is_json() {
        return out.json(&reservation);
    }
    out.line(&reservation.id)?;
    reservation.others.iter().try_for_each(|other| out.line(&other.id))
}

/// `lrsctl cancel RID`
pub(super) fn cancel(lrsd: &Lrsd, id: String) -> Result<(), Failure> {
    let id = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        let named = if is_queued(&id) { None } else { id_of(lrsd.clone(), &id).await? };
        let id = named.unwrap_or(id);
        let asked = proto::CancelReservationRequest { id: id.clone() };
        lrsd.cancel_reservation(asked).await.map(|_| id)
    })?;
    let what = match id.parse::<ReservationId>() {
        Ok(_) => "the reservation is given back, and its slot is free",
        Err(_) => "the request waits no longer, and its command does not run",
    };
    say(format_args!("{}: {what}", printable(&id)));
    Ok(())
}

/// Whether a task or a request of this user's is called `name`, or is one of a `run --each` of that name.
pub(super) fn is_under_way(lrsd: &Lrsd, name: &str) -> Result<bool, Failure> {
    let own = rustix::process::geteuid().as_raw();
    let called = |uid: Option<u32>, called: Option<&str>| {
        let rest = called.and_then(|called| called.strip_prefix(name));
        let is_index = |rest: &str| rest.starts_with('[') && words::index(rest).is_some();
        uid == Some(own) && rest.is_some_and(|rest| rest.is_empty() || is_index(rest))
    };
    ask(lrsd, Purpose::Other, |lrsd| async move {
        // In this order: what has its slot between the two is a task.
        let queue = whole(lrsd.clone(), proto::ListQueueRequest::default()).await?;
        let tasks = all_tasks(lrsd).await?;
        Ok(queue.iter().any(|one| called(Some(one.uid), one.name.as_deref()))
            || tasks.iter().any(|task| called(task.uid, task.name.as_deref())))
    })
}

/// `lrsctl drain`
pub(super) fn drain(lrsd: &Lrsd) -> Result<(), Failure> {
    ask(lrsd, Purpose::Other, |mut lrsd| async move {
        lrsd.drain(proto::DrainRequest {}).await.map(drop)
    })?;
    say(format_args!("no new tasks are taken, running ones go on; `lrsctl resume` ends it"));
    Ok(())
}

/// `lrsctl resume`
pub(super) fn resume(lrsd: &Lrsd) -> Result<(), Failure> {
    ask(lrsd, Purpose::Other, |mut lrsd| async move {
        lrsd.resume(proto::ResumeRequest {}).await.map(drop)
    })
}

/// `lrsctl reload`: the keys with a new value, one a line.
pub(super) fn reload(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let response = ask(lrsd, Purpose::Other, |mut lrsd| async move {
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
