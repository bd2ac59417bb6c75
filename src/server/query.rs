//! The reading calls, answered from the newest snapshot and the kept events, in the same
//! words by every transport. None needs a right.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::access::Access;
use crate::command::{Caller, CommandError, ErrorKind};
use crate::core::colocation::{self, Advice, Question, Running};
use crate::core::event::{COMMAND, Event, PROGRAM};
use crate::core::model::{Label, TaskId};
use crate::core::pace;
use crate::history::History;
use crate::publish::{GUARD, SLOTS, Snapshot};
use crate::server::request;
use crate::units::{BootTime, Share};
use crate::{clock, proto, wire};

/// What is, as of now: with how long the loop that says so has not turned, a first warning if it
/// hangs, and lrsd itself.
pub fn status(access: &Access, now: BootTime) -> Arc<proto::Status> {
    let mut status = Arc::clone(&access.snapshot.borrow().status);
    let hanging = hanging(access, now);
    let answer = Arc::make_mut(&mut status);
    answer.last_turn_seconds = Some(access.last_turn.age(now).as_secs_f64());
    if let Some(age) = hanging {
        let warning = format!(
            "the control loop has not turned for {} s: no task is admitted or promoted, and what is \
             shown is as old; systemd restarts lrsd after 30 s, elsewhere restart it: tasks run on",
            age.as_secs()
        );
        answer.warnings.insert(0, warning);
    }
    answer.warnings.extend(access.history.as_ref().and_then(History::warning));
    let counts = access.events.counts();
    let daemon = answer.daemon.get_or_insert_default();
    daemon.cpu_seconds = Some(clock::cpu_time().as_secs_f64());
    daemon.resident_bytes = resident();
    daemon.promotion_seconds = Some(access.last_turn.promotions());
    daemon.slot_gap_seconds = Some(access.last_turn.slot_gaps());
    daemon.events =
        counts.events.iter().map(|(kind, count)| (kind.as_str().to_owned(), *count)).collect();
    daemon.failed = Some(counts.failed);
    daemon.history_lost = access.history.as_ref().map(History::lost);
    status
}

/// Memory of this process, in bytes; the second figure of proc_pid_statm(5) is in pages.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages = statm.split(' ').nth(1)?.parse::<u64>().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// How long the loop has not turned, if it hangs.
pub fn hanging(access: &Access, now: BootTime) -> Option<Duration> {
    let age = access.last_turn.age(now);
    let snapshot = access.snapshot.borrow();
    let period = snapshot.status.node.as_ref().map_or(0, |node| node.period_ms);
    Some(age).filter(|age| pace::hangs(*age, Duration::from_millis(period)))
}

/// Who reads, for the one thing that not everyone may read: the command of a task is for its user and for
/// admins.
#[derive(Clone, Copy, Debug)]
pub struct Reader(Option<u32>);

impl Reader {
    /// One who reads no command.
    pub const OTHER: Reader = Reader(Some(u32::MAX));

    /// Whoever calls.
    pub fn new(caller: &Caller, snapshot: &Snapshot) -> Reader {
        let own = rustix::process::geteuid().as_raw();
        let admins = snapshot.config.iter().flat_map(|config| &config.grpc.admins);
        let is_admin = [0, own].iter().chain(admins).any(|uid| *uid == caller.uid);
        Reader((!is_admin).then_some(caller.uid))
    }

    /// `command` of a task of `owner`, if it is for this reader.
    pub fn command(self, command: Option<String>, owner: Option<u32>) -> Option<String> {
        command.filter(|_| self.0.is_none_or(|uid| owner == Some(uid)))
    }

    /// The jobs that this reader sees: those that are programs of tasks without a job
    /// ([`Labels::program`](crate::core::model::Labels::program)) are for whom commands are.
    pub fn jobs(self, jobs: &[proto::Job]) -> impl Iterator<Item = &proto::Job> {
        let is_his = move |job: &proto::Job| self.0.is_none_or(|uid| job.uid == Some(uid));
        let is_program = |job: &proto::Job| job.job.starts_with('(') && job.job.ends_with(')');
        jobs.iter().filter(move |job| !is_program(job) || is_his(job))
    }

    /// The same of the whole task.
    pub fn task(self, task: &proto::Task) -> proto::Task {
        let mut task = task.clone();
        task.command = self.command(task.command, task.uid);
        task
    }
}

/// The running task with this id.
///
/// # Errors
/// InvalidArgument when no task can ever have had this id, NotFound when no such task runs.
pub fn task(snapshot: &Snapshot, id: &str) -> Result<Arc<proto::Task>, CommandError> {
    let id = request::task_id(id)?;
    snapshot.tasks.get(&id).cloned().ok_or_else(|| {
        CommandError::new(
            ErrorKind::NotFound,
            format!(
                "no task {id} runs here; `lrsctl tasks` lists what runs, `lrsctl why {id}` tells \
                 what became of it"
            ),
        )
    })
}

/// Every kept decision that touched a task or a reservation, or for "slots" their number,
/// for "guard" what it held and why.
///
/// # Errors
/// InvalidArgument as in [`task`]; NotFound when nothing is known about it.
pub fn explain(access: &Access, id: &str) -> Result<proto::ExplainResponse, CommandError> {
    request::check_id_range(id)?;
    let (events, truncated) = access.events.about(id);
    let runs =
        || id.parse().is_ok_and(|task: TaskId| access.snapshot.borrow().tasks.contains_key(&task));
    if events.is_empty() && ![SLOTS, GUARD].contains(&id) && !runs() {
        return Err(CommandError::new(
            ErrorKind::NotFound,
            format!(
                "nothing is known about {id}: no such task or reservation, or its events are no \
                 longer kept"
            ),
        ));
    }
    Ok(proto::ExplainResponse {
        events: events.iter().map(|event| self::event(event)).collect(),
        truncated,
    })
}

/// How the node stands with YARN; where it is no YARN node, that.
pub fn yarn(snapshot: &Snapshot) -> proto::YarnStatus {
    let mut yarn = snapshot.yarn.as_deref().cloned().unwrap_or_else(|| proto::YarnStatus {
        enabled: snapshot.config.as_ref().is_some_and(|config| config.yarn.enabled),
        ..proto::YarnStatus::default()
    });
    let found = &snapshot.yarn_found;
    yarn.containers.clone_from(&found.containers);
    yarn.node_managers = found.node_managers;
    if let Some((problem, since)) = &found.problem {
        yarn.last_error = Some(problem.clone());
        yarn.last_error_at = Some(wire::proto_time(*since));
    }
    for container in &mut yarn.containers {
        let id = container.task.as_deref().and_then(|id| id.parse().ok());
        match id.and_then(|id: TaskId| snapshot.tasks.get(&id)) {
            Some(task) => container.tier = task.tier,
            // It ended, or was released, since the list was made.
            None => container.task = None,
        }
    }
    yarn
}

/// An event as clients read it.
pub fn event(event: &Event) -> proto::Event {
    let mut inputs = wire::proto_object(&event.inputs);
    for private in [COMMAND, PROGRAM] {
        inputs.fields.remove(private);
    }
    proto::Event {
        seq: event.seq,
        at: Some(wire::proto_time(event.at)),
        r#type: event.kind.as_str().to_owned(),
        task: event.task.clone(),
        from: event.from.clone(),
        to: event.to.clone(),
        reason: event.reason.clone(),
        inputs: (!inputs.fields.is_empty()).then_some(inputs),
    }
}

/// The rates of the jobs in a snapshot.
struct JobRates<'a>(HashMap<(Option<u32>, &'a str, Option<&'a str>), Share>);

impl<'a> JobRates<'a> {
    fn of(snapshot: &'a Snapshot) -> JobRates<'a> {
        let rates = snapshot.jobs.iter().filter_map(|job| {
            let rate = job.computing_rate.map(Share::clamped)?;
            Some(((job.uid, job.job.as_str(), job.kind.as_deref()), rate))
        });
        JobRates(rates.collect())
    }

    fn mean(&self) -> Option<Share> {
        let sum: f64 = self.0.values().map(|rate| rate.value()).sum();
        Share::of(sum, self.0.len() as f64)
    }

    /// The job's of `uid`; without one the mean over all users who have such a job.
    fn rate(&self, uid: Option<u32>, job: &str, kind: Option<&str>) -> Option<Share> {
        if uid.is_some() {
            return self.0.get(&(uid, job, kind)).copied();
        }
        let named = |key: &(Option<u32>, &str, Option<&str>)| key.1 == job && key.2 == kind;
        let rates: Vec<f64> =
            self.0.iter().filter(|(key, _)| named(key)).map(|(_, rate)| rate.value()).collect();
        Share::of(rates.iter().sum(), rates.len() as f64)
    }

    fn of_task(&self, task: &proto::Task) -> Option<Share> {
        let own = task.computing_rate.map(Share::clamped);
        let kind = task.kind.as_deref();
        own.or_else(|| self.0.get(&(task.uid, task.job.as_deref()?, kind)).copied())
    }
}

/// Most jobs that one call may ask about.
const MAX_ASKED: usize = 1000;

/// The co-location test on what the snapshot shows. A running task without a rate of its own
/// stands with its job's; without that, see [`colocation`].
///
/// # Errors
/// InvalidArgument when a field breaks its range or nothing says which job.
pub fn evaluate(
    snapshot: &Snapshot,
    asked: proto::EvaluateJobRequest,
) -> Result<proto::EvaluateJobResponse, CommandError> {
    evaluate_by(snapshot, &JobRates::of(snapshot), asked)
}

/// The co-location test for several jobs; first those to sample, then by score.
///
/// # Errors
/// InvalidArgument as in [`evaluate`], and for more than 1,000 jobs.
pub fn evaluate_all(
    snapshot: &Snapshot,
    asked: proto::EvaluateJobsRequest,
) -> Result<proto::EvaluateJobsResponse, CommandError> {
    if asked.jobs.len() > MAX_ASKED {
        return Err(request::invalid(format!(
            "{} jobs are asked about; at most {MAX_ASKED} can be in one call",
            asked.jobs.len()
        )));
    }
    let every = || {
        // No scheduler asks for jobs that are programs.
        let jobs = Reader::OTHER.jobs(&snapshot.jobs);
        let question = |job: &proto::Job| proto::EvaluateJobRequest {
            job: Some(job.job.clone()),
            kind: job.kind.clone(),
            uid: job.uid,
            ..proto::EvaluateJobRequest::default()
        };
        jobs.map(question).collect()
    };
    let asked = if asked.jobs.is_empty() { every() } else { asked.jobs };
    let rates = JobRates::of(snapshot);
    let mut jobs = Vec::with_capacity(asked.len());
    for question in asked {
        let (job, kind, uid) = (question.job.clone(), question.kind.clone(), question.uid);
        let evaluation = evaluate_by(snapshot, &rates, question)?;
        jobs.push(proto::EvaluatedJob { job, kind, uid, evaluation: Some(evaluation) });
    }
    let place = |job: &proto::EvaluatedJob| {
        let evaluation = job.evaluation.as_ref();
        let sample = evaluation.is_some_and(|one| {
            one.advice == i32::from(proto::evaluate_job_response::Advice::SampleFirst)
        });
        (!sample, evaluation.and_then(|one| one.score).unwrap_or(0.0))
    };
    jobs.sort_by(|a, b| {
        let (a, b) = (place(a), place(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    Ok(proto::EvaluateJobsResponse { jobs })
}

fn evaluate_by(
    snapshot: &Snapshot,
    rates: &JobRates<'_>,
    asked: proto::EvaluateJobRequest,
) -> Result<proto::EvaluateJobResponse, CommandError> {
    let given = request::rate("computing_rate", asked.computing_rate)?;
    let mean = request::rate("mean_computing_rate", asked.mean_computing_rate)?;
    let job = request::label("job", asked.job)?;
    let kind = request::label("kind", asked.kind)?;
    if given.is_none() && job.is_none() {
        return Err(request::invalid(
            "neither job nor computing_rate is given; say which job, or its rate",
        ));
    }
    let kind = kind.as_ref().map(Label::as_str);
    let known = job.as_ref().and_then(|job| rates.rate(asked.uid, job.as_str(), kind));
    let running: Running = snapshot.tasks.values().map(|task| rates.of_task(task)).collect();
    let question = Question {
        job_rate: given.or(known),
        running,
        mean_rate: mean.or(rates.mean()),
        threshold: snapshot.colocation_threshold,
    };
    Ok(answer(&question, &colocation::evaluate(&question)))
}

fn answer(question: &Question, advice: &Advice) -> proto::EvaluateJobResponse {
    use proto::evaluate_job_response::Advice as Word;
    let running = question.running;
    let limit = |mean: f64| mean + question.threshold;
    let assumed = match running.unmeasured {
        0 => String::new(),
        tasks => format!(" ({tasks} of {} tasks without a rate count as M)", running.count()),
    };
    let (word, new_rate, mean_rate, reason) = match *advice {
        Advice::Suits { new_rate: None, mean_rate } => {
            (Word::Suits, None, Some(mean_rate), "nothing runs here".to_owned())
        }
        Advice::Suits { new_rate: Some(rate), mean_rate } => (
            Word::Suits,
            Some(rate),
            Some(mean_rate),
            format!("new rate {rate:.3} is below M + threshold = {:.3}{assumed}", limit(mean_rate)),
        ),
        Advice::DoesNotSuit { new_rate: rate, mean_rate } => (
            Word::DoesNotSuit,
            Some(rate),
            Some(mean_rate),
            format!(
                "new rate {rate:.3} is not below M + threshold = {:.3}{assumed}",
                limit(mean_rate)
            ),
        ),
        Advice::SampleFirst => (
            Word::SampleFirst,
            None,
            question.mean_rate.map(Share::value),
            "no rate is known for this job and kind: run one of its tasks first, or give \
             computing_rate"
                .to_owned(),
        ),
    };
    proto::EvaluateJobResponse {
        advice: word.into(),
        new_rate,
        mean_rate,
        threshold: question.threshold,
        running: running.count(),
        reason,
        score: advice.score(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CallerProcess;
    use crate::core::event::EventKind;

    #[test]
    fn a_command_is_for_its_user_and_admins_and_in_no_event() {
        let mut snapshot = Snapshot::default();
        let mut config = crate::config::Config::default();
        config.grpc.admins = vec![7];
        snapshot.config = Some(Arc::new(config));
        let reads = |uid| {
            let process = CallerProcess::Unseen;
            let caller = Caller { uid, gids: Vec::new(), process, granted: None };
            Reader::new(&caller, &snapshot).command(Some("ls".into()), Some(65_534)).is_some()
        };
        assert_eq!([0, 7, 65_534, 65_533].map(reads), [true, true, true, false]);
        assert!(Reader::OTHER.command(Some("ls".into()), None).is_none());
        let inputs = serde_json::json!({ COMMAND: "ls" }).as_object().unwrap().clone();
        let (task, from, to, reason) = (None, None, None, None);
        let (seq, at, kind) = (1, Default::default(), EventKind::Completed);
        assert!(event(&Event { seq, at, kind, task, from, to, reason, inputs }).inputs.is_none());
    }
}
