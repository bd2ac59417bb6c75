//! Commands that show what was: `lrsctl history`, `lrsctl jobs --since`.

use std::collections::BTreeMap;
use std::time::Duration;

use lrs_api::client::every_page;

use super::args::HistoryArgs;
use super::client::{Lrsd, ask, ended_tasks};
use super::failure::{Failure, Purpose};
use super::output::Output;
use super::queue::whole;
use super::show;
use super::show::when::Times;
use super::window::{When, Window};
use crate::{clock, proto, wire};

/// Each cycle is kept for so long; a longer time is asked for by the minute.
const CYCLES: Duration = Duration::from_secs(3_600);

/// `lrsctl history`
pub(super) fn history(
    lrsd: &Lrsd,
    args: &HistoryArgs,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    if args.node {
        let since = args.since.clone().unwrap_or(When::Ago(CYCLES));
        let rows = node(lrsd, Window::of(Some(&since), args.until.as_ref(), times)?)?;
        return match out.is_json() {
            true => out.json(&rows),
            false => show::node::table(rows, args.no_header, times, out),
        };
    }
    let window = Window::of(args.since.as_ref(), args.until.as_ref(), times)?;
    let asked = proto::ListHistoryRequest {
        job: args.job.clone(),
        uid: args.user,
        failed: args.failed,
        ..ends(window)
    };
    let mut tasks = ask(lrsd, Purpose::Other, |lrsd| ended_tasks(lrsd, asked))?;
    if let Some(last) = args.last {
        tasks.drain(..tasks.len().saturating_sub(last));
    }
    if out.is_json() { out.json(&tasks) } else { show::history::table(&tasks, args, times, out) }
}

/// All ends of that time, those on the disk too.
fn ends(window: Window) -> proto::ListHistoryRequest {
    proto::ListHistoryRequest {
        since: window.since.map(wire::proto_time),
        until: window.until.map(wire::proto_time),
        stored: true,
        ..proto::ListHistoryRequest::default()
    }
}

/// What the node did.
pub(super) fn node(lrsd: &Lrsd, window: Window) -> Result<Vec<proto::NodeFigures>, Failure> {
    let now = clock::now().wall.unix_micros();
    let age = window.since.map_or(i64::MAX, |since| now.saturating_sub(since.unix_micros()));
    // A second, since now was read after the time that was asked for.
    let lately = Duration::from_micros(age.unsigned_abs()) <= CYCLES + Duration::from_secs(1);
    let rows = figures(lrsd, window, lately)?;
    // Of an lrsd that is younger than a minute there are cycles alone.
    if rows.is_empty() && !lately { figures(lrsd, window, true) } else { Ok(rows) }
}

fn figures(lrsd: &Lrsd, window: Window, cycles: bool) -> Result<Vec<proto::NodeFigures>, Failure> {
    let asked = proto::ListNodeHistoryRequest {
        since: window.since.map(wire::proto_time),
        until: window.until.map(wire::proto_time),
        cycles,
        page_token: String::new(),
    };
    ask(lrsd, Purpose::Other, |lrsd| {
        every_page(async move |page_token| {
            let asked = proto::ListNodeHistoryRequest { page_token, ..asked.clone() };
            let page = lrsd.clone().list_node_history(asked).await?.into_inner();
            Ok((page.figures, page.next_page_token))
        })
    })
}

/// `lrsctl jobs --since`: the jobs with tasks that ended since then.
pub(super) fn jobs(
    lrsd: &Lrsd,
    since: &When,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    let asked = ends(Window::of(Some(since), None, times)?);
    let (jobs, mut queue, tasks) = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        let jobs = lrsd.list_jobs(proto::ListJobsRequest {}).await?.into_inner().jobs;
        let queue = whole(lrsd.clone(), proto::ListQueueRequest::default()).await?;
        Ok((jobs, queue, ended_tasks(lrsd, asked).await?))
    })?;
    let jobs = since_then(&jobs, &tasks);
    // Not those that only wait.
    let is_one = |queued: &proto::Queued, job: &proto::Job| {
        job.uid == Some(queued.uid)
            && queued.job.as_ref() == Some(&job.job)
            && queued.kind == job.kind
    };
    queue.retain(|queued| jobs.iter().any(|job| is_one(queued, job)));
    let jobs = show::tasks::with_waiting(jobs, &queue);
    if out.is_json() { out.json(&jobs) } else { show::tasks::jobs(&jobs, out) }
}

/// Jobs as `tasks` are of them; how many run is known of `now`.
fn since_then(now: &[proto::Job], tasks: &[proto::EndedTask]) -> Vec<proto::Job> {
    let mut by_job = BTreeMap::<_, Vec<&proto::EndedTask>>::new();
    for task in tasks {
        if let Some(job) = &task.job {
            by_job.entry((job, &task.kind, task.uid)).or_default().push(task);
        }
    }
    let has_failed = |task: &proto::EndedTask| {
        task.exit_signal.is_some() || task.exit_status.is_some_and(|status| status != 0)
    };
    let of_job =
        |((job, kind, uid), tasks): ((&String, &Option<String>, _), Vec<&proto::EndedTask>)| {
            let as_now =
                now.iter().find(|one| one.job == *job && one.kind == *kind && one.uid == uid);
            let good = tasks.iter().filter(|task| !has_failed(task));
            let (duration_seconds, duration_spread_seconds) =
                mean_and_spread(good.filter_map(|task| task.elapsed_seconds));
            let (computing_rate, computing_rate_spread) =
                mean_and_spread(tasks.iter().filter_map(|task| task.computing_rate));
            proto::Job {
                job: job.clone(),
                kind: kind.clone(),
                uid,
                running: as_now.map_or(0, |job| job.running),
                class: as_now.map_or(proto::Class::Unknown.into(), |job| job.class),
                hinted: as_now.is_some_and(|job| job.hinted),
                group: tasks.iter().rev().find_map(|task| task.group.clone()),
                finished: tasks.len() as u64,
                failed: tasks.iter().filter(|task| has_failed(task)).count() as u64,
                duration_seconds,
                duration_spread_seconds,
                computing_rate,
                computing_rate_spread,
                last_timed_at: tasks.last().and_then(|task| task.ended_at),
            }
        };
    by_job.into_iter().map(of_job).collect()
}

/// The standard deviation takes two.
fn mean_and_spread(values: impl Iterator<Item = f64>) -> (Option<f64>, Option<f64>) {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    if values.is_empty() {
        return (None, None);
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (Some(mean), (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_time_are_counted_by_their_tasks() {
        let task = |job: &str, exit_status, elapsed_seconds| proto::EndedTask {
            job: Some(job.to_owned()),
            exit_status: Some(exit_status),
            elapsed_seconds: Some(elapsed_seconds),
            ..Default::default()
        };
        let no_job = proto::EndedTask::default();
        let tasks = [task("b", 0, 2.0), task("a", 1, 9.0), task("b", 0, 4.0), no_job];
        let now = [proto::Job { job: "b".to_owned(), running: 7, ..Default::default() }];
        let jobs = since_then(&now, &tasks);
        let shown: Vec<_> = jobs
            .iter()
            .map(|job| {
                (job.job.as_str(), job.running, job.finished, job.failed, job.duration_seconds)
            })
            .collect();
        assert_eq!(shown, [("a", 0, 1, 1, None), ("b", 7, 2, 0, Some(3.0))]);
        assert!((jobs[1].duration_spread_seconds.unwrap() - 2.0_f64.sqrt()).abs() < 1e-9);
    }
}
