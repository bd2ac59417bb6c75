//! The service `lrs.v1.Shaper`: each call in a few lines.
//!
//! Reading calls answer from the newest snapshot (ListQueue: from the loop) and need no right. Changing calls become one
//! command and wait for its answer; a client that goes away drops the wait, and with it the
//! reply slot, by which the loop notices.

use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;

use prost::Message as _;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::convert::status;
use super::early::TicketTo;
use super::peer::Peer;
use super::watch::{self, EventStream};
use crate::access::Access;
use crate::command::{AdmitRequest, Caller};
use crate::core::model::{Priority, TaskId};
use crate::proto::{self, shaper_server::Shaper};
use crate::publish::Snapshot;
use crate::server::query::{self, Reader};
use crate::server::service::Service;
use crate::server::{ending, history, pidfd, record, request};

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
    service: Service,
}

impl GrpcServer {
    /// A service on these ends of the loop.
    pub fn new(access: Access) -> GrpcServer {
        GrpcServer { service: Service::new(access) }
    }
}

fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    match request.extensions().get::<Peer>() {
        Some(Peer(caller)) => Ok(Caller::clone(caller)),
        None => Err(Status::internal("the connection has no peer credentials")),
    }
}

/// What every call answers.
type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Shaper for GrpcServer {
    async fn get_status(&self, _: Request<proto::GetStatusRequest>) -> Answer<proto::Status> {
        Ok(Response::new(Arc::unwrap_or_clone(self.service.status())))
    }

    type WatchStatusStream = Pin<Box<dyn Stream<Item = Result<proto::Status, Status>> + Send>>;

    async fn watch_status(
        &self,
        _: Request<proto::WatchStatusRequest>,
    ) -> Answer<Self::WatchStatusStream> {
        Ok(Response::new(Box::pin(watch::status(self.service.access().snapshot.clone()))))
    }

    async fn list_tasks(
        &self,
        request: Request<proto::ListTasksRequest>,
    ) -> Answer<proto::ListTasksResponse> {
        let snapshot = self.service.snapshot();
        let reader = Reader::new(&caller(&request)?, &snapshot);
        let request = request.into_inner();
        let size = match request.page_size as usize {
            0 => DEFAULT_PAGE_SIZE,
            size => size.min(MAX_PAGE_SIZE),
        };
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some(token.parse::<TaskId>().map_err(|_| {
                Status::invalid_argument(
                    "page_token is not valid; send next_page_token of the page before, unchanged",
                )
            })?),
        };
        Ok(Response::new(page(&snapshot, reader, after, size)))
    }

    async fn get_task(&self, request: Request<proto::GetTaskRequest>) -> Answer<proto::Task> {
        let snapshot = self.service.snapshot();
        let task = query::task(&snapshot, &request.get_ref().id).map_err(status)?;
        Ok(Response::new(Reader::new(&caller(&request)?, &snapshot).task(&task)))
    }

    async fn list_jobs(
        &self,
        request: Request<proto::ListJobsRequest>,
    ) -> Answer<proto::ListJobsResponse> {
        let snapshot = self.service.snapshot();
        let reader = Reader::new(&caller(&request)?, &snapshot);
        let jobs = reader.jobs(&snapshot.jobs).cloned().collect();
        Ok(Response::new(proto::ListJobsResponse { jobs }))
    }

    async fn list_history(
        &self,
        request: Request<proto::ListHistoryRequest>,
    ) -> Answer<proto::ListHistoryResponse> {
        let reader = Reader::new(&caller(&request)?, &self.service.snapshot());
        let ended = history::list(self.service.access(), reader, request.into_inner());
        Ok(Response::new(ended.await.map_err(status)?))
    }

    async fn list_node_history(
        &self,
        request: Request<proto::ListNodeHistoryRequest>,
    ) -> Answer<proto::ListNodeHistoryResponse> {
        let history = self.service.access().history.as_ref();
        Ok(Response::new(history::node(history, request.into_inner()).await.map_err(status)?))
    }

    async fn wait_task(
        &self,
        request: Request<proto::WaitTaskRequest>,
    ) -> Answer<proto::EndedTask> {
        let reader = Reader::new(&caller(&request)?, &self.service.snapshot());
        let ended = ending::of_task(self.service.access(), reader, request.into_inner());
        Ok(Response::new(ended.await.map_err(status)?))
    }

    async fn list_queue(
        &self,
        request: Request<proto::ListQueueRequest>,
    ) -> Answer<proto::ListQueueResponse> {
        let caller = caller(&request)?;
        let asked = request::queue(request.into_inner(), &pidfd::still(&caller)).map_err(status)?;
        Ok(Response::new(request::queue_page(
            self.service.list_queue(caller, asked).await.map_err(status)?,
        )))
    }

    type WatchEventsStream =
        Pin<Box<dyn Stream<Item = Result<proto::EventStreamItem, Status>> + Send>>;

    async fn watch_events(
        &self,
        request: Request<proto::WatchEventsRequest>,
    ) -> Answer<Self::WatchEventsStream> {
        let request = request.into_inner();
        let ring = Arc::clone(self.service.events());
        Ok(Response::new(Box::pin(EventStream::new(ring, request.since, request.no_follow))))
    }

    async fn reserve(&self, request: Request<proto::ReserveRequest>) -> Answer<proto::Reservation> {
        let caller = caller(&request)?;
        let request = request::reserve(request.into_inner()).map_err(status)?;
        Ok(Response::new(self.service.reserve(caller, request).await.map_err(status)?))
    }

    async fn cancel_reservation(
        &self,
        request: Request<proto::CancelReservationRequest>,
    ) -> Answer<proto::CancelReservationResponse> {
        let caller = caller(&request)?;
        let id = request::queue_id(&request.get_ref().id).map_err(status)?;
        self.service.cancel_reservation(caller, id).await.map_err(status)?;
        Ok(Response::new(proto::CancelReservationResponse {}))
    }

    async fn admit(&self, request: Request<proto::AdmitRequest>) -> Answer<proto::AdmitResponse> {
        let caller = caller(&request)?;
        let ticket_to = request.extensions().get().map(|TicketTo(sender)| sender.clone());
        let request =
            request::admit(request.into_inner(), &pidfd::still(&caller)).map_err(status)?;
        let task = self
            .service
            .admit(caller, AdmitRequest { ticket_to, ..request })
            .await
            .map_err(status)?;
        Ok(Response::new(proto::AdmitResponse { task: Some(task) }))
    }

    async fn release(
        &self,
        request: Request<proto::ReleaseRequest>,
    ) -> Answer<proto::ReleaseResponse> {
        let caller = caller(&request)?;
        let id = request::task_id(&request.get_ref().id).map_err(status)?;
        self.service.release(caller, id).await.map_err(status)?;
        Ok(Response::new(proto::ReleaseResponse {}))
    }

    async fn set_priority(
        &self,
        request: Request<proto::SetPriorityRequest>,
    ) -> Answer<proto::Task> {
        let caller = caller(&request)?;
        let id = request::task_id(&request.get_ref().id).map_err(status)?;
        let priority = Priority(request.get_ref().priority);
        Ok(Response::new(self.service.set_priority(caller, id, priority).await.map_err(status)?))
    }

    async fn set_job_priority(
        &self,
        request: Request<proto::SetJobPriorityRequest>,
    ) -> Answer<proto::SetJobPriorityResponse> {
        let caller = caller(&request)?;
        let request = request::job_priority(request.into_inner()).map_err(status)?;
        Ok(Response::new(self.service.set_job_priority(caller, request).await.map_err(status)?))
    }

    async fn drain(&self, request: Request<proto::DrainRequest>) -> Answer<proto::DrainResponse> {
        let caller = caller(&request)?;
        self.service.drain(caller).await.map_err(status)?;
        Ok(Response::new(proto::DrainResponse {}))
    }

    async fn resume(
        &self,
        request: Request<proto::ResumeRequest>,
    ) -> Answer<proto::ResumeResponse> {
        let caller = caller(&request)?;
        self.service.resume(caller).await.map_err(status)?;
        Ok(Response::new(proto::ResumeResponse {}))
    }

    async fn reload(
        &self,
        request: Request<proto::ReloadRequest>,
    ) -> Answer<proto::ReloadResponse> {
        let caller = caller(&request)?;
        let changed = self.service.reload(caller).await.map_err(status)?;
        Ok(Response::new(proto::ReloadResponse { changed }))
    }

    async fn get_config(
        &self,
        _: Request<proto::GetConfigRequest>,
    ) -> Answer<proto::GetConfigResponse> {
        let toml = self.service.snapshot().config_toml.to_string();
        let file = self.service.access().config_file.to_string_lossy().into_owned();
        Ok(Response::new(proto::GetConfigResponse { toml, file }))
    }

    async fn verify_tiers(
        &self,
        request: Request<proto::VerifyTiersRequest>,
    ) -> Answer<proto::VerifyTiersResponse> {
        let cgroup = self.service.verify_tiers(caller(&request)?).await.map_err(status)?;
        Ok(Response::new(proto::VerifyTiersResponse { cgroup: Some(cgroup) }))
    }

    type RecordStream = Pin<Box<dyn Stream<Item = Result<proto::RecordPiece, Status>> + Send>>;

    async fn record(&self, request: Request<proto::RecordRequest>) -> Answer<Self::RecordStream> {
        let recorded = self.service.record(caller(&request)?).await.map_err(status)?;
        Ok(Response::new(Box::pin(record::pieces(recorded).map_err(status)?)))
    }

    async fn explain(
        &self,
        request: Request<proto::ExplainRequest>,
    ) -> Answer<proto::ExplainResponse> {
        Ok(Response::new(
            query::explain(self.service.access(), &request.get_ref().id).map_err(status)?,
        ))
    }

    async fn evaluate_job(
        &self,
        request: Request<proto::EvaluateJobRequest>,
    ) -> Answer<proto::EvaluateJobResponse> {
        Ok(Response::new(
            query::evaluate(&self.service.snapshot(), request.into_inner()).map_err(status)?,
        ))
    }

    async fn evaluate_jobs(
        &self,
        request: Request<proto::EvaluateJobsRequest>,
    ) -> Answer<proto::EvaluateJobsResponse> {
        Ok(Response::new(
            query::evaluate_all(&self.service.snapshot(), request.into_inner()).map_err(status)?,
        ))
    }

    async fn get_yarn(&self, _: Request<proto::GetYarnRequest>) -> Answer<proto::YarnStatus> {
        Ok(Response::new(query::yarn(&self.service.snapshot())))
    }

    async fn hint(&self, request: Request<proto::HintRequest>) -> Answer<proto::HintResponse> {
        let caller = caller(&request)?;
        let hints = request::hints(request.into_inner()).map_err(status)?;
        self.service.hint(caller, hints).await.map_err(status)?;
        Ok(Response::new(proto::HintResponse {}))
    }

    async fn report_integration(
        &self,
        request: Request<proto::ReportIntegrationRequest>,
    ) -> Answer<proto::ReportIntegrationResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let changes = request::changes(request.changes).map_err(status)?;
        let yarn = request.yarn.map(Box::new);
        self.service.report_integration(caller, yarn, changes).await.map_err(status)?;
        Ok(Response::new(proto::ReportIntegrationResponse {}))
    }
}

/// Tasks after `after`, at most `size` and at most [`MAX_PAGE_BYTES`].
fn page(
    snapshot: &Snapshot,
    reader: Reader,
    after: Option<TaskId>,
    size: usize,
) -> proto::ListTasksResponse {
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
        tasks.push(reader.task(task));
        last = Some(id);
    }
    proto::ListTasksResponse { tasks, next_page_token: String::new() }
}
