//! A `Shaper` that answers from a script and remembers what it was asked: the wire without a
//! daemon behind it, so that the client's own behaviour is what a test sees.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use lrs::proto::shaper_server::{Shaper, ShaperServer};
use lrs::proto::*;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status as Failure};

/// What the fake answers, and what it was asked.
#[derive(Default)]
pub struct Script {
    pub status: Status,
    /// Pages of ListTasks.
    pub pages: Vec<Vec<Task>>,
    /// Answers of Admit in order; when it runs dry a task is admitted.
    pub admit: VecDeque<Failure>,
    /// Whether no slot comes free, however long a request waits.
    pub full: bool,
    /// After so many admissions none comes free either.
    pub full_after: Option<usize>,
    /// Requests that found it full.
    pub waiting: usize,
    /// What such a task is, beside its id and tier.
    pub task: Task,
    pub admitted: Vec<AdmitRequest>,
    /// Peer pid of each Admit.
    pub peers: Vec<Option<i32>>,
    pub reserve: Option<Failure>,
    pub priorities: Vec<SetPriorityRequest>,
    pub job_priorities: Vec<SetJobPriorityRequest>,
    pub events: Vec<event_stream_item::Item>,
    /// Whether the event stream stays open after `events`.
    pub follow: bool,
    pub story: ExplainResponse,
    /// The first page of ListHistory; the second is empty.
    pub history: Vec<EndedTask>,
    pub history_asked: Vec<ListHistoryRequest>,
    pub figures: Vec<NodeFigures>,
    pub node_asked: Vec<ListNodeHistoryRequest>,
    pub queue: Vec<Queued>,
    pub toml: String,
    pub yarn: YarnStatus,
}

/// A running fake; it ends with the process.
pub struct Fake {
    pub script: Arc<Mutex<Script>>,
    dir: tempfile::TempDir,
}

struct Served(Arc<Mutex<Script>>);

impl Fake {
    pub fn start(script: Script) -> Fake {
        let fake = Fake::new(script);
        fake.serve();
        fake
    }

    /// Not serving yet.
    pub fn new(script: Script) -> Fake {
        Fake { script: Arc::new(Mutex::new(script)), dir: tempfile::tempdir().unwrap() }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("lrsd.sock")
    }

    /// Listens from here on; accepts on a thread of its own.
    pub fn serve(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = {
            let _inside = runtime.enter();
            tokio::net::UnixListener::bind(self.socket()).unwrap()
        };
        let service = ShaperServer::new(Served(Arc::clone(&self.script)));
        std::thread::spawn(move || {
            runtime.block_on(
                tonic::transport::Server::builder()
                    .serve_with_incoming(service, UnixListenerStream::new(listener)),
            )
        });
    }

    pub fn command(&self, args: &[&str]) -> Command {
        lrsctl(&self.socket(), args)
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        Ended::from(self.command(args).output().unwrap())
    }
}

/// The binary under test against the socket.
pub fn lrsctl(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lrsctl"));
    command
        .env("LRS_ENDPOINT", format!("unix:{}", socket.display()))
        .env_remove("CLICOLOR_FORCE")
        .args(args)
        .stdin(Stdio::null());
    command
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

type Answer<T> = Result<Response<T>, Failure>;
type Stream<T> = std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Failure>> + Send>>;

#[tonic::async_trait]
impl Shaper for Served {
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Answer<Status> {
        Ok(Response::new(self.0.lock().unwrap().status.clone()))
    }

    type WatchStatusStream = Stream<Status>;
    async fn watch_status(
        &self,
        _: Request<WatchStatusRequest>,
    ) -> Answer<Self::WatchStatusStream> {
        Err(Failure::unimplemented("not in the fake"))
    }

    async fn list_tasks(&self, request: Request<ListTasksRequest>) -> Answer<ListTasksResponse> {
        let script = self.0.lock().unwrap();
        let page: usize = request.into_inner().page_token.parse().unwrap_or(0);
        let more = page + 1 < script.pages.len();
        Ok(Response::new(ListTasksResponse {
            tasks: script.pages.get(page).cloned().unwrap_or_default(),
            next_page_token: if more { (page + 1).to_string() } else { String::new() },
        }))
    }

    async fn get_task(&self, request: Request<GetTaskRequest>) -> Answer<Task> {
        let id = request.into_inner().id;
        let script = self.0.lock().unwrap();
        let task = script.pages.iter().flatten().find(|task| task.id == id);
        task.cloned().map(Response::new).ok_or_else(|| Failure::not_found(format!("no task {id}")))
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Answer<ListJobsResponse> {
        let job = Job { job: "wordcount".into(), running: 1, ..Job::default() };
        Ok(Response::new(ListJobsResponse { jobs: vec![job] }))
    }

    async fn list_history(
        &self,
        request: Request<ListHistoryRequest>,
    ) -> Answer<ListHistoryResponse> {
        let mut script = self.0.lock().unwrap();
        let tasks = script.history.clone();
        script.history_asked.push(request.into_inner());
        // The second page is that of a server that repeats itself.
        let next_page_token = if script.history_asked.len() == 1 { "7" } else { "" }.to_owned();
        let tasks = if next_page_token.is_empty() { Vec::new() } else { tasks };
        Ok(Response::new(ListHistoryResponse { tasks, next_page_token }))
    }

    async fn wait_task(&self, request: Request<WaitTaskRequest>) -> Answer<EndedTask> {
        let (script, id) = (self.0.lock().unwrap(), request.into_inner().id);
        let ended = script.history.iter().find(|task| task.id == id);
        ended
            .cloned()
            .map(Response::new)
            .ok_or_else(|| Failure::not_found("the end of none is kept"))
    }

    async fn list_node_history(
        &self,
        request: Request<ListNodeHistoryRequest>,
    ) -> Answer<ListNodeHistoryResponse> {
        let mut script = self.0.lock().unwrap();
        script.node_asked.push(request.into_inner());
        let (figures, next_page_token) = (script.figures.clone(), String::new());
        Ok(Response::new(ListNodeHistoryResponse { figures, next_page_token }))
    }

    async fn list_queue(&self, request: Request<ListQueueRequest>) -> Answer<ListQueueResponse> {
        let (script, asked) = (self.0.lock().unwrap(), request.into_inner());
        let is_asked_for = |entry: &&Queued| {
            asked.id.as_ref().is_none_or(|id| *id == entry.id)
                && asked.pid.is_none_or(|_| entry.place.is_some())
        };
        let queue: Vec<_> = script.queue.iter().filter(is_asked_for).cloned().collect();
        if asked.id.is_some() && queue.is_empty() {
            return Err(Failure::not_found("no request waits for a slot as that"));
        }
        Ok(Response::new(ListQueueResponse { queue, ..ListQueueResponse::default() }))
    }

    type WatchEventsStream = Stream<EventStreamItem>;
    async fn watch_events(
        &self,
        _: Request<WatchEventsRequest>,
    ) -> Answer<Self::WatchEventsStream> {
        use tokio_stream::StreamExt;
        let script = self.0.lock().unwrap();
        let items = script.events.clone().into_iter();
        let past = tokio_stream::iter(items.map(|item| Ok(EventStreamItem { item: Some(item) })));
        if script.follow {
            Ok(Response::new(Box::pin(past.chain(tokio_stream::pending()))))
        } else {
            Ok(Response::new(Box::pin(past)))
        }
    }

    async fn reserve(&self, _: Request<ReserveRequest>) -> Answer<Reservation> {
        match self.0.lock().unwrap().reserve.clone() {
            Some(failure) => Err(failure),
            None => {
                Ok(Response::new(Reservation { id: "r0000000-1".into(), ..Default::default() }))
            }
        }
    }

    async fn cancel_reservation(
        &self,
        _: Request<CancelReservationRequest>,
    ) -> Answer<CancelReservationResponse> {
        Ok(Response::new(CancelReservationResponse {}))
    }

    async fn admit(&self, request: Request<AdmitRequest>) -> Answer<AdmitResponse> {
        let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        let request = request.into_inner();
        let full = {
            let mut script = self.0.lock().unwrap();
            let full = script.full_after.is_some_and(|most| script.admitted.len() >= most);
            script.waiting += usize::from(full || script.full);
            full || script.full
        };
        if full {
            if request.wait_forever {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(request.wait_ms)).await;
            return Err(Failure::deadline_exceeded("no slot came free in time"));
        }
        let mut script = self.0.lock().unwrap();
        script.peers.push(peer.and_then(|peer| peer.pid()));
        script.admitted.push(request);
        match script.admit.pop_front() {
            Some(failure) if failure.code() != tonic::Code::Ok => Err(failure),
            _ => {
                let id = format!("t0000000-{}", script.admitted.len());
                let task = Task { id, tier: Tier::Active as i32, ..script.task.clone() };
                Ok(Response::new(AdmitResponse { task: Some(task) }))
            }
        }
    }

    async fn release(&self, _: Request<ReleaseRequest>) -> Answer<ReleaseResponse> {
        Err(Failure::permission_denied("task t0000000-1 belongs to uid 7; ask them or root"))
    }

    async fn set_priority(&self, request: Request<SetPriorityRequest>) -> Answer<Task> {
        self.0.lock().unwrap().priorities.push(request.into_inner());
        Ok(Response::new(Task::default()))
    }

    async fn set_job_priority(
        &self,
        request: Request<SetJobPriorityRequest>,
    ) -> Answer<SetJobPriorityResponse> {
        self.0.lock().unwrap().job_priorities.push(request.into_inner());
        Ok(Response::new(SetJobPriorityResponse { tasks: 2, waiting: 1 }))
    }

    async fn drain(&self, _: Request<DrainRequest>) -> Answer<DrainResponse> {
        Ok(Response::new(DrainResponse {}))
    }

    async fn resume(&self, _: Request<ResumeRequest>) -> Answer<ResumeResponse> {
        Ok(Response::new(ResumeResponse {}))
    }

    async fn reload(&self, _: Request<ReloadRequest>) -> Answer<ReloadResponse> {
        Ok(Response::new(ReloadResponse { changed: vec!["slots.expand".into()] }))
    }

    async fn get_config(&self, _: Request<GetConfigRequest>) -> Answer<GetConfigResponse> {
        Ok(Response::new(GetConfigResponse {
            toml: self.0.lock().unwrap().toml.clone(),
            ..Default::default()
        }))
    }

    async fn verify_tiers(&self, _: Request<VerifyTiersRequest>) -> Answer<VerifyTiersResponse> {
        let cgroup = self.0.lock().unwrap().status.cgroup.clone();
        Ok(Response::new(VerifyTiersResponse { cgroup }))
    }

    type RecordStream = Stream<RecordPiece>;

    async fn record(&self, _: Request<RecordRequest>) -> Answer<Self::RecordStream> {
        Err(Failure::permission_denied("recording needs an admin"))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Answer<ExplainResponse> {
        let (script, asked) = (self.0.lock().unwrap(), request.into_inner());
        if script.queue.iter().any(|queued| queued.name.as_ref() == Some(&asked.id)) {
            return Err(Failure::not_found("no id"));
        }
        Ok(Response::new(script.story.clone()))
    }

    async fn get_yarn(&self, _: Request<GetYarnRequest>) -> Answer<YarnStatus> {
        Ok(Response::new(self.0.lock().unwrap().yarn.clone()))
    }

    async fn hint(&self, _: Request<HintRequest>) -> Answer<HintResponse> {
        Err(Failure::unimplemented("not in the fake"))
    }

    async fn report_integration(
        &self,
        _: Request<ReportIntegrationRequest>,
    ) -> Answer<ReportIntegrationResponse> {
        Err(Failure::unimplemented("not in the fake"))
    }

    async fn evaluate_jobs(&self, _: Request<EvaluateJobsRequest>) -> Answer<EvaluateJobsResponse> {
        Err(Failure::unimplemented("not in the fake"))
    }

    async fn evaluate_job(&self, _: Request<EvaluateJobRequest>) -> Answer<EvaluateJobResponse> {
        Err(Failure::unimplemented("not in the fake"))
    }
}
