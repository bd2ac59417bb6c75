//! `lrsctl why`: what was decided of a task, of a job, of the slots, or on the whole node of late, and why.

use std::collections::BTreeMap;
use std::time::Duration;

use super::args::EventsArgs;
use super::client::{Lrsd, ask};
use super::events;
use super::failure::{Exit, Failure, Purpose};
use super::handle::with_id;
use super::output::{Output, printable, say};
use super::queue;
use super::show;
use super::show::when::Times;
use super::values::Since;
use crate::proto;
use crate::publish::SLOTS;

/// Without an argument: what happened for so long.
const OF_LATE: Duration = Duration::from_secs(600);

/// Changes of the node that are shown; the last ones.
const MOST_CHANGES: usize = 20;

/// Jobs that are shown; those with the most events.
const MOST_JOBS: usize = 10;

/// `lrsctl why [WORD]`
pub(super) fn why(
    lrsd: &Lrsd,
    word: Option<String>,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    let Some(word) = word else { return of_late(lrsd, times, out) };
    let story = ask(lrsd, Purpose::Other, |lrsd| {
        with_id(lrsd, word.clone(), |mut lrsd, id| async move {
            lrsd.explain(proto::ExplainRequest { id }).await.map(tonic::Response::into_inner)
        })
    });
    let story = match story {
        Ok(story) => story,
        Err(failure) => return of_job(lrsd, &word, failure, times, out),
    };
    if out.is_json() {
        return out.json(&story);
    }
    show::events::why(&word, &story, times, out)?;
    if word == SLOTS {
        let status = ask(lrsd, Purpose::Other, |mut lrsd| async move {
            lrsd.get_status(proto::GetStatusRequest {}).await.map(tonic::Response::into_inner)
        })?;
        if let Some(why) = show::status::no_more_slots(&status) {
            say(format_args!("{why}"));
        }
    }
    Ok(())
}

/// No task has this name; a job may, or what waits for a slot.
fn of_job(
    lrsd: &Lrsd,
    job: &str,
    failure: Failure,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    if !failure.is(Exit::Failed) {
        return Err(failure);
    }
    let args = EventsArgs { job: Some(job.to_owned()), ..EventsArgs::default() };
    let past = events::past(lrsd, args, times, out)?;
    if past.is_empty() {
        let waits = ask(lrsd, Purpose::Other, |lrsd| queue::id_of(lrsd, job))?;
        return match waits.filter(|_| !out.is_json()) {
            Some(id) => queue::one(lrsd, id, out),
            None => Err(failure),
        };
    }
    let story = proto::ExplainResponse {
        events: past.into_iter().map(|(event, _)| event).collect(),
        truncated: false,
    };
    if out.is_json() { out.json(&story) } else { show::events::why(job, &story, times, out) }
}

/// What changed on the node of late, and what became of its tasks.
fn of_late(lrsd: &Lrsd, times: &Times, out: &mut Output) -> Result<(), Failure> {
    let args = EventsArgs { since: Some(Since::Ago(OF_LATE)), ..EventsArgs::default() };
    let past = events::past(lrsd, args, times, out)?;
    if out.is_json() {
        let events = past.into_iter().map(|(event, _)| event).collect();
        return out.json(&proto::ExplainResponse { events, truncated: false });
    }
    if past.is_empty() {
        say(format_args!("nothing was decided in the last ten minutes"));
        return Ok(());
    }
    let mut changes = Vec::new();
    let mut jobs: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for (event, names) in &past {
        if event.task.is_none() {
            changes.push(event);
            continue;
        }
        let job = names.as_ref().and_then(|names| names.job.clone());
        // How a main process ended is of interest where it failed.
        let what = match &*event.r#type {
            "exit" if failed(event) => "failed",
            "exit" => continue,
            other => other,
        };
        let counts =
            jobs.entry(job.unwrap_or_else(|| "tasks without a job".to_owned())).or_default();
        *counts.entry(what.to_owned()).or_default() += 1;
    }
    let left_out = changes.len().saturating_sub(MOST_CHANGES);
    if left_out > 0 {
        say(format_args!("{left_out} changes before these: lrsctl events --since 10m --no-follow"));
    }
    for event in changes.into_iter().skip(left_out) {
        show::events::line(event, None, times, out)?;
    }
    let mut jobs: Vec<_> = jobs.into_iter().collect();
    jobs.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.values().sum::<usize>()));
    for (job, counts) in jobs.iter().take(MOST_JOBS) {
        let counts: Vec<String> =
            counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        out.line(format_args!("{}: {}", printable(job), counts.join(", ")))?;
    }
    if jobs.len() > MOST_JOBS {
        say(format_args!("and {} jobs more: lrsctl jobs", jobs.len() - MOST_JOBS));
    }
    Ok(())
}

/// Of an exit: with a status other than 0, or by a signal.
fn failed(event: &proto::Event) -> bool {
    let status = event.inputs.as_ref().and_then(|inputs| inputs.fields.get("exit_status"));
    let zero = prost_types::value::Kind::NumberValue(0.0);
    status.is_none_or(|status| status.kind.as_ref() != Some(&zero))
}
