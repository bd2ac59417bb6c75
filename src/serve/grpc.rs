//! The service `lrs.v1.Shaper`: each call in a few lines.
//!
//! Reading calls answer from the newest snapshot and need no right. Changing calls become one
//! command and wait for its answer; a client that goes away drops the wait, and with it the
//! reply slot, by which the loop notices.

use std::collections::HashMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;

use prost::Message as _;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::convert;
use super::peer::Peer;
use super::watch::{self, EventStream};
use crate::command::{Caller, Command, Reply};
use crate::core::colocation::{self, Advice, Question, Running};
use crate::core::event::EventKind;
use crate::core::model::{Label, Priority, TaskId};
use crate::proto::{self, shaper_server::Shaper};
use crate::publish::{Access, Snapshot};
use crate::units::Share;

/// Tasks on one page, unless the client asks for another number.
const DEFAULT_PAGE_SIZE: usize = 1_000;

/// Most tasks on one page, whatever the client asks for.
pub const MAX_PAGE_SIZE: usize = 10_000;

/// A page ends before it gets larger than this, so that it stays below the 4 MiB a gRPC
/// client takes by default. A task has 150 to 300 bytes as a rule (measured in
/// `tests/grpc.rs`), up to 9 KiB with the longest labels and cgroup paths; a count alone would
/// not do.
const MAX_PAGE_BYTES: usize = 2 << 20;

/// The service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GrpcServer {
    access: Access,
}

impl GrpcServer {
    /// A service on these ends of the loop.
    pub fn new(access: Access) -> GrpcServer {
        GrpcServer { access }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.access.snapshot.borrow())
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<Response<T>, Status> {
        self.access.commands.ask(command).await.map(Response::new).map_err(convert::status)
    }
}

fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    match request.extensions().get::<Peer>() {
        Some(Peer(caller)) => Ok(Caller::clone(caller)),
        None => Err(Status::internal("the connection has no peer credentials")),
    }
}

#[tonic::async_trait]
impl Shaper for GrpcServer {
    async fn get_status(
        &self,
        _: Request<proto::GetStatusRequest>,
    ) -> Result<Response<proto::Status>, Status> {
        Ok(Response::new(proto::Status::clone(&self.snapshot().status)))
    }

    type WatchStatusStream = Pin<Box<dyn Stream<Item = Result<proto::Status, Status>> + Send>>;

    async fn watch_status(
        &self,
        _: Request<proto::WatchStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        Ok(Response::new(Box::pin(watch::status(self.access.snapshot.clone()))))
    }

    async fn list_tasks(
        &self,
        request: Request<proto::ListTasksRequest>,
    ) -> Result<Response<proto::ListTasksResponse>, Status> {
        let request = request.into_inner();
        let size = match request.page_size as usize {
            0 => DEFAULT_PAGE_SIZE,
            size => size.min(MAX_PAGE_SIZE),
        };
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some(token.parse::<TaskId>().map_err(|_| {
                Status::invalid_argument(
                    "page_token is none of ours; send next_page_token of the page before as it is",
                )
            })?),
        };
        Ok(Response::new(page(&self.snapshot(), after, size)))
    }

    async fn get_task(
        &self,
        request: Request<proto::GetTaskRequest>,
    ) -> Result<Response<proto::Task>, Status> {
        let id = convert::task_id(&request.get_ref().id)?;
        match self.snapshot().tasks.get(&id) {
            Some(task) => Ok(Response::new(proto::Task::clone(task))),
            None => Err(Status::not_found(format!(
                "no task {id} runs here; `lrsctl tasks` lists what runs, `lrsctl why {id}` tells \
                 what became of it"
            ))),
        }
    }

    async fn list_jobs(
        &self,
        _: Request<proto::ListJobsRequest>,
    ) -> Result<Response<proto::ListJobsResponse>, Status> {
        Ok(Response::new(proto::ListJobsResponse { jobs: self.snapshot().jobs.to_vec() }))
    }

    type WatchEventsStream =
        Pin<Box<dyn Stream<Item = Result<proto::EventStreamItem, Status>> + Send>>;

    async fn watch_events(
        &self,
        request: Request<proto::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let request = request.into_inner();
        let ring = Arc::clone(&self.access.events);
        Ok(Response::new(Box::pin(EventStream::new(ring, request.since, request.no_follow))))
    }

    async fn reserve(
        &self,
        request: Request<proto::ReserveRequest>,
    ) -> Result<Response<proto::Reservation>, Status> {
        let caller = caller(&request)?;
        let request = convert::reserve(request.into_inner())?;
        self.ask(|reply| Command::Reserve { caller, request, reply }).await
    }

    async fn cancel_reservation(
        &self,
        request: Request<proto::CancelReservationRequest>,
    ) -> Result<Response<proto::CancelReservationResponse>, Status> {
        let caller = caller(&request)?;
        let id = convert::reservation_id(&request.get_ref().id)?;
        self.ask(|reply| Command::CancelReservation { caller, id, reply }).await?;
        Ok(Response::new(proto::CancelReservationResponse {}))
    }

    async fn admit(
        &self,
        request: Request<proto::AdmitRequest>,
    ) -> Result<Response<proto::AdmitResponse>, Status> {
        let caller = caller(&request)?;
        let request = convert::admit(request.into_inner(), &caller)?;
        let task = self.ask(|reply| Command::Admit { caller, request, reply }).await?;
        Ok(task.map(|task| proto::AdmitResponse { task: Some(task) }))
    }

    async fn release(
        &self,
        request: Request<proto::ReleaseRequest>,
    ) -> Result<Response<proto::ReleaseResponse>, Status> {
        let caller = caller(&request)?;
        let id = convert::task_id(&request.get_ref().id)?;
        self.ask(|reply| Command::Release { caller, id, reply }).await?;
        Ok(Response::new(proto::ReleaseResponse {}))
    }

    async fn set_priority(
        &self,
        request: Request<proto::SetPriorityRequest>,
    ) -> Result<Response<proto::Task>, Status> {
        let caller = caller(&request)?;
        let id = convert::task_id(&request.get_ref().id)?;
        let priority = Priority(request.get_ref().priority);
        self.ask(|reply| Command::SetPriority { caller, id, priority, reply }).await
    }

    async fn drain(
        &self,
        request: Request<proto::DrainRequest>,
    ) -> Result<Response<proto::DrainResponse>, Status> {
        let caller = caller(&request)?;
        self.ask(|reply| Command::Drain { caller, reply }).await?;
        Ok(Response::new(proto::DrainResponse {}))
    }

    async fn resume(
        &self,
        request: Request<proto::ResumeRequest>,
    ) -> Result<Response<proto::ResumeResponse>, Status> {
        let caller = caller(&request)?;
        self.ask(|reply| Command::Resume { caller, reply }).await?;
        Ok(Response::new(proto::ResumeResponse {}))
    }

    async fn reload(
        &self,
        request: Request<proto::ReloadRequest>,
    ) -> Result<Response<proto::ReloadResponse>, Status> {
        let caller = caller(&request)?;
        let changed = self.ask(|reply| Command::Reload { caller, reply }).await?;
        Ok(changed.map(|changed| proto::ReloadResponse { changed }))
    }

    async fn get_config(
        &self,
        _: Request<proto::GetConfigRequest>,
    ) -> Result<Response<proto::GetConfigResponse>, Status> {
        let toml = self.snapshot().config_toml.to_string();
        Ok(Response::new(proto::GetConfigResponse { toml }))
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::ExplainResponse>, Status> {
        let id = request.into_inner().id;
        convert::check_id_range(&id)?;
        let (events, older_gone) = self.access.events.about(&id);
        let runs =
            || id.parse().is_ok_and(|task: TaskId| self.snapshot().tasks.contains_key(&task));
        if events.is_empty() && !runs() {
            return Err(Status::not_found(format!(
                "nothing is known about {id}: no such task or reservation, or its events are no \
                 longer kept"
            )));
        }
        // Nothing happens to a task or a reservation before the event that makes it.
        let complete = events.first().is_some_and(|first| {
            matches!(first.kind, EventKind::Admitted | EventKind::Reserved | EventKind::Refused)
        });
        Ok(Response::new(proto::ExplainResponse {
            events: events.iter().map(|event| convert::event(event)).collect(),
            truncated: older_gone && !complete,
        }))
    }

    async fn evaluate_job(
        &self,
        request: Request<proto::EvaluateJobRequest>,
    ) -> Result<Response<proto::EvaluateJobResponse>, Status> {
        evaluate(&self.snapshot(), request.into_inner()).map(Response::new)
    }
}

/// Tasks after `after`, at most `size` and at most [`MAX_PAGE_BYTES`].
fn page(snapshot: &Snapshot, after: Option<TaskId>, size: usize) -> proto::ListTasksResponse {
    /// Tag and length of one element.
    const FRAMING_BYTES: usize = 6;
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut tasks = Vec::with_capacity(size.min(snapshot.tasks.len()));
    let mut last = None;
    let mut bytes = 0;
    for (id, task) in snapshot.tasks.range((from, Bound::Unbounded)) {
        bytes += task.encoded_len() + FRAMING_BYTES;
        let full = tasks.len() == size || (bytes > MAX_PAGE_BYTES && !tasks.is_empty());
        if full {
            let next_page_token = last.map_or_else(String::new, |last: &TaskId| last.to_string());
            return proto::ListTasksResponse { tasks, next_page_token };
        }
        tasks.push(proto::Task::clone(task));
        last = Some(id);
    }
    proto::ListTasksResponse { tasks, next_page_token: String::new() }
}

type JobRates<'a> = HashMap<(&'a str, Option<&'a str>), Share>;

/// The co-location test on what the snapshot shows. A running task without a rate of its own
/// stands with its job's; without that, see [`colocation`].
fn evaluate(
    snapshot: &Snapshot,
    request: proto::EvaluateJobRequest,
) -> Result<proto::EvaluateJobResponse, Status> {
    let given = convert::rate("computing_rate", request.computing_rate)?;
    let mean = convert::rate("mean_computing_rate", request.mean_computing_rate)?;
    let job = convert::label("job", request.job)?;
    let kind = convert::label("kind", request.kind)?;
    if given.is_none() && job.is_none() {
        return Err(Status::invalid_argument(
            "neither job nor computing_rate is given; say which job, or its rate",
        ));
    }
    let rates: JobRates<'_> = snapshot
        .jobs
        .iter()
        .filter_map(|job| {
            let rate = job.computing_rate.map(Share::clamped)?;
            Some(((job.job.as_str(), job.kind.as_deref()), rate))
        })
        .collect();
    let known = job
        .as_ref()
        .and_then(|job| rates.get(&(job.as_str(), kind.as_ref().map(Label::as_str))).copied());
    let running: Running = snapshot.tasks.values().map(|task| task_rate(task, &rates)).collect();
    let sum: f64 = rates.values().map(|rate| rate.value()).sum();
    let mean_known = Share::of(sum, rates.len() as f64);
    let question = Question {
        job_rate: given.or(known),
        running,
        mean_rate: mean.or(mean_known),
        threshold: snapshot.colocation_threshold,
    };
    Ok(answer(&question, &colocation::evaluate(&question)))
}

fn task_rate(task: &proto::Task, jobs: &JobRates<'_>) -> Option<Share> {
    let own = task.computing_rate.map(Share::clamped);
    own.or_else(|| jobs.get(&(task.job.as_deref()?, task.kind.as_deref())).copied())
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
    }
}
