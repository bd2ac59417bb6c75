//! One task, and the jobs.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::Serialize;

use super::when::Times;
use super::{bytes, bytes_per_sec, duration, known, percent, rate, seconds_age, tier_word};
use crate::cli::failure::Failure;
use crate::cli::output::{Column, Columns, Output, say, wrap};
use crate::core::exit::signal_name;
use crate::proto;
use lrs_api::words;

/// A task, and the CPUs of its node.
#[derive(Clone, Copy)]
pub(crate) struct OnNode<'a> {
    pub(crate) task: &'a proto::Task,
    /// `None`: not known.
    pub(crate) cpus: Option<f64>,
}

impl Deref for OnNode<'_> {
    type Target = proto::Task;

    fn deref(&self) -> &proto::Task {
        self.task
    }
}

/// What people know the task by, what is odd about it in front.
pub(super) fn title(task: OnNode<'_>) -> String {
    let odd = oddities(task).into_iter().map(|odd| format!("[{odd}]"));
    let words = odd.chain([words::title(&task)].into_iter().filter(|title| !title.is_empty()));
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn oddities(task: OnNode<'_>) -> Vec<&'static str> {
    words::oddities(task.task, task.cpus)
}

/// How the main process ended; a dash: it runs.
fn ended(task: &proto::Task) -> String {
    match (task.exit_status, task.exit_signal) {
        (Some(status), _) => format!("exited with status {status}"),
        (None, Some(signal)) => format!("killed by signal {}", signal_text(signal)),
        (None, None) if task.main_exited => "yes; how is not known".to_owned(),
        (None, None) => super::DASH.to_owned(),
    }
}

/// `9 (SIGKILL)`
pub(super) fn signal_text(signal: i32) -> String {
    let name = u8::try_from(signal).ok().and_then(signal_name);
    name.map_or_else(|| signal.to_string(), |name| format!("{signal} ({name})"))
}

/// `lrsctl task ID`: everything, a line each.
pub(crate) fn task(task: OnNode<'_>, times: &Times, out: &mut Output) -> Result<(), Failure> {
    let time = |at: &Option<prost_types::Timestamp>| times.write(at.as_ref());
    let text = |value: &Option<String>| known(value.as_deref(), str::to_owned);
    let kernel = task.kernel.unwrap_or_default();
    let attachment = match proto::Attachment::try_from(task.attachment) {
        Ok(proto::Attachment::Own) => "own: made by LRS",
        Ok(proto::Attachment::InPlace) => "in place: a group of others, weights only",
        Ok(proto::Attachment::None) => "none: only booked, no weights",
        Ok(proto::Attachment::Unspecified) | Err(_) => "-",
    };
    let oddities = oddities(task);
    let fields = [
        ("id", task.id.clone()),
        ("name", text(&task.name)),
        ("job", text(&task.job)),
        ("kind", text(&task.kind)),
        ("group", text(&task.group)),
        ("command", text(&task.command)),
        ("process", known(task.pid, |pid| pid.to_string())),
        ("ended", ended(&task)),
        ("uid", known(task.uid, |uid| uid.to_string())),
        ("tier", tier_word(task.tier).to_owned()),
        ("priority", known(task.priority, |priority| priority.to_string())),
        (
            "class",
            format!(
                "{} (rate {}, raw {})",
                words::class(task.class, task.hinted),
                rate(task.computing_rate),
                rate(task.computing_rate_raw)
            ),
        ),
        (
            "cpu",
            format!(
                "{} used, {} of the node now",
                known(task.cpu_seconds, |seconds| format!("{seconds:.2} s")),
                percent(task.cpu_share)
            ),
        ),
        ("cpus", task.task.cpus.clone().unwrap_or_else(|| "all that tasks may use".to_owned())),
        (
            "disk",
            format!(
                "{} written, {} read",
                bytes_per_sec(task.write_bytes_per_sec),
                bytes_per_sec(task.read_bytes_per_sec)
            ),
        ),
        ("memory", known(task.resident_bytes, bytes)),
        (
            "admitted",
            format!("{} ({})", time(&task.admitted_at), seconds_age(task.elapsed_seconds)),
        ),
        ("promoted", time(&task.promoted_at)),
        ("left", seconds_age(task.expected_remaining_seconds)),
        ("cgroup", text(&task.cgroup)),
        ("attached", attachment.to_owned()),
        ("unit", text(&task.unit)),
        ("found by", task.found_by.clone().unwrap_or_else(|| "none: admitted".to_owned())),
        (
            "quota",
            known(task.cpu_quota, |cpus| {
                format!("{cpus:.2} CPUs: it cannot use spare CPU above that")
            }),
        ),
        ("repaired", format!("{} changes by others", task.repaired)),
        ("siblings", text(&task.ratio_group)),
        ("stays", text(&task.stays_because)),
        ("lost", text(&task.lost_by_move)),
        (
            "kernel",
            format!(
                "cpu weight {}, cpu idle {}, io weight {}",
                known(kernel.cpu_weight, |weight| weight.to_string()),
                known(kernel.cpu_idle, |idle| if idle { "yes" } else { "no" }.to_owned()),
                known(kernel.io_weight, |weight| weight.to_string()),
            ),
        ),
        ("flags", if oddities.is_empty() { "none".to_owned() } else { oddities.join(", ") }),
    ];
    for (name, value) in fields {
        let line = wrap(name, 10, &value, out.width());
        out.line(line)?;
    }
    Ok(())
}

/// A job, and how many of its requests wait.
#[derive(Serialize)]
pub(crate) struct Job {
    #[serde(flatten)]
    job: proto::Job,
    waiting: usize,
}

/// The jobs that run or ran and those that only wait.
pub(crate) fn with_waiting(jobs: Vec<proto::Job>, queue: &[proto::Queued]) -> Vec<Job> {
    // How many, and the first.
    let mut waiting: BTreeMap<_, (usize, &proto::Queued)> = BTreeMap::new();
    for one in queue.iter().filter(|one| one.place.is_some()) {
        let Some(job) = &one.job else { continue };
        waiting.entry((Some(one.uid), job.clone(), one.kind.clone())).or_insert((0, one)).0 += 1;
    }
    let mut take = |key: &_| waiting.remove(key).map_or(0, |(count, _)| count);
    let mut all: Vec<_> = jobs
        .into_iter()
        .map(|job| Job { waiting: take(&(job.uid, job.job.clone(), job.kind.clone())), job })
        .collect();
    all.extend(waiting.into_iter().map(|((uid, job, kind), (waiting, first))| {
        let (class, hinted) = (first.class, first.hinted);
        Job { job: proto::Job { uid, job, kind, class, hinted, ..proto::Job::default() }, waiting }
    }));
    all
}

/// `lrsctl jobs`
pub(crate) fn jobs(jobs: &[Job], out: &mut Output) -> Result<(), Failure> {
    if jobs.is_empty() {
        say(format_args!("no jobs"));
        return Ok(());
    }
    // With the least width of a terminal that has the column.
    let columns = [
        (0, "RUNNING", Column::Figure),
        (0, "WAITING", Column::Figure),
        (0, "FINISHED", Column::Figure),
        (0, "FAILED", Column::Figure),
        (80, "RATE", Column::Figure),
        (100, "SPREAD", Column::Figure),
        (80, "TIME", Column::Figure),
        (0, "CLASS", Column::Text),
        (80, "UID", Column::Figure),
        (0, "KIND", Column::Elastic(6)),
        (0, "JOB", Column::Elastic(12)),
    ];
    let fits = |index: &usize| out.width() >= columns[*index].0;
    let shown: Vec<usize> = (0..columns.len()).filter(fits).collect();
    let heads = shown.iter().map(|index| (columns[*index].1, columns[*index].2));
    let mut table = Columns::new(&heads.collect::<Vec<_>>());
    for Job { job, waiting } in jobs {
        let mut row = [
            job.running.to_string(),
            waiting.to_string(),
            job.finished.to_string(),
            job.failed.to_string(),
            rate(job.computing_rate),
            rate(job.computing_rate_spread),
            duration(job.duration_seconds),
            words::class(job.class, job.hinted),
            known(job.uid, |uid| uid.to_string()),
            known(job.kind.clone(), |kind| kind),
            job.job.clone(),
        ];
        table.row(shown.iter().map(|index| std::mem::take(&mut row[*index])).collect());
    }
    out.table(&table)
}

/// `lrsctl jobs --suits`: the job to take first in front.
pub(crate) fn suits(jobs: &[proto::EvaluatedJob], out: &mut Output) -> Result<(), Failure> {
    use proto::evaluate_job_response::Advice;
    if jobs.is_empty() {
        say(format_args!("no jobs"));
        return Ok(());
    }
    let mut table = Columns::new(&[
        ("SUITS", Column::Text),
        ("NEW RATE", Column::Figure),
        ("MEAN", Column::Figure),
        ("SCORE", Column::Figure),
        ("UID", Column::Figure),
        ("KIND", Column::Elastic(6)),
        ("JOB", Column::Elastic(12)),
    ]);
    for job in jobs {
        let evaluation = job.evaluation.clone().unwrap_or_default();
        let word = match evaluation.advice() {
            Advice::Suits => "yes",
            Advice::DoesNotSuit => "no",
            Advice::SampleFirst => "sample",
            Advice::Unspecified => super::DASH,
        };
        table.row(vec![
            word.to_owned(),
            rate(evaluation.new_rate),
            rate(evaluation.mean_rate),
            rate(evaluation.score),
            known(job.uid, |uid| uid.to_string()),
            known(job.kind.clone(), |kind| kind),
            known(job.job.clone(), |job| job),
        ]);
    }
    out.table(&table)
}
