//! Commands that show something.

use std::time::Duration;

use super::args::TasksArgs;
use super::client::{Lrsd, ask};
use super::failure::{Exit, Failure, Purpose};
use super::handle::with_id;
use super::output::{Output, Talk, printable};
use super::queue::whole;
use super::show;
use super::show::when::Times;
use crate::core::pace::hangs;
use crate::{clock, proto};
use lrs_api::client::{Connection, all_tasks};
use tonic::Code;

/// `lrsctl status`: exit 1 when the loop of lrsd hangs.
pub(super) fn status(lrsd: &Lrsd, talk: Talk, out: &mut Output) -> Result<(), Failure> {
    let for_people = !out.is_json();
    let (status, tasks) = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        let status = lrsd.get_status(proto::GetStatusRequest {}).await?.into_inner();
        let tasks = if for_people { all_tasks(lrsd).await? } else { Vec::new() };
        Ok((status, tasks))
    })?;
    if for_people {
        show::status::status(&status, &tasks, clock::now().wall, talk.verbose, out)?;
    } else {
        out.json(&status)?;
    }
    // Of an lrsd that does not say it, it is not known.
    let age = status.last_turn_seconds.and_then(|age| Duration::try_from_secs_f64(age).ok());
    let period = Duration::from_millis(status.node.as_ref().map_or(0, |node| node.period_ms));
    if age.is_some_and(|age| hangs(age, period)) {
        out.flush()?;
        return Err(Failure::ended(Exit::Failed.into()));
    }
    Ok(())
}

/// `lrsctl tasks`
pub(super) fn tasks(lrsd: &Lrsd, args: &TasksArgs, out: &mut Output) -> Result<(), Failure> {
    let (cpus, tasks) = ask(lrsd, Purpose::Other, |lrsd| async move {
        Ok((cpus(lrsd.clone()).await?, all_tasks(lrsd).await?))
    })?;
    show::table::tasks(tasks, cpus, args, out)
}

/// `lrsctl task ID`
pub(super) fn task(
    lrsd: &Lrsd,
    id: String,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    let (cpus, task) = ask(lrsd, Purpose::Other, |lrsd| async move {
        let task = with_id(lrsd.clone(), id, |mut lrsd, id| async move {
            match lrsd.get_task(proto::GetTaskRequest { id: id.clone() }).await {
                Err(status) if status.code() == Code::NotFound => {
                    // Of one that has ended the answer comes at once.
                    let asked = proto::WaitTaskRequest { id, wait_ms: Some(0) };
                    let ended = lrsd.wait_task(asked).await.map_err(|_| status)?;
                    Ok(Err(Box::new(ended.into_inner())))
                }
                task => task.map(|task| Ok(task.into_inner())),
            }
        });
        Ok((cpus(lrsd).await?, task.await?))
    })?;
    match task {
        Ok(task) if out.is_json() => out.json(&task),
        Ok(task) => show::tasks::task(show::tasks::OnNode { task: &task, cpus }, times, out),
        Err(ended) if out.is_json() => out.json(&ended),
        Err(ended) => show::history::one(&ended, times, out),
    }
}

async fn cpus(mut lrsd: Connection) -> Result<Option<f64>, tonic::Status> {
    let status = lrsd.get_status(proto::GetStatusRequest {}).await?.into_inner();
    Ok(lrs_api::words::cpus(&status))
}

/// `lrsctl jobs`
pub(super) fn jobs(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let (jobs, queue) = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        let jobs = lrsd.list_jobs(proto::ListJobsRequest {}).await?.into_inner().jobs;
        Ok((jobs, whole(lrsd, proto::ListQueueRequest::default()).await?))
    })?;
    let jobs = show::tasks::with_waiting(jobs, &queue);
    if out.is_json() { out.json(&jobs) } else { show::tasks::jobs(&jobs, out) }
}

/// `lrsctl jobs --suits`
pub(super) fn suits(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let jobs = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        let every = proto::EvaluateJobsRequest::default();
        lrsd.evaluate_jobs(every).await.map(|jobs| jobs.into_inner().jobs)
    })?;
    if out.is_json() { out.json(&jobs) } else { show::tasks::suits(&jobs, out) }
}

/// `lrsctl config show`: the settings in force.
pub(super) fn config(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let text = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        lrsd.get_config(proto::GetConfigRequest {}).await.map(|config| config.into_inner().toml)
    })?;
    if !out.is_json() {
        return text.lines().try_for_each(|line| out.line(printable(line)));
    }
    let settings = crate::config::toml_to_json(&text)
        .ok_or_else(|| Failure::failed("lrsd sent settings that are not TOML"))?;
    out.json(&settings)
}
