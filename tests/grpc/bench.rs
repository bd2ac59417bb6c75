//! A server in this process, and the loop's ends of its channels in the hands of the test.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lrs::command::{self, Command, CommandReceiver};
use lrs::core::event::{Event, EventKind};
use lrs::core::model::TaskId;
use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use lrs::publish::{Access, EventRing, Snapshot};
use lrs::serve::{self, Health, Limits, ServeError};
use lrs::units::WallTime;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

/// Longer than anything here takes, so that a hang fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Bench {
    pub path: PathBuf,
    pub commands: mpsc::UnboundedReceiver<Command>,
    pub snapshot: watch::Sender<Arc<Snapshot>>,
    pub events: Arc<EventRing>,
    pub health: Health,
    pub server: JoinHandle<Result<(), ServeError>>,
    stop: Option<oneshot::Sender<()>>,
    _dir: tempfile::TempDir,
}

impl Bench {
    pub fn start() -> Bench {
        Bench::with(Limits::default(), EventRing::new(1000, []))
    }

    pub fn with(limits: Limits, events: EventRing) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lrsd.sock");
        let socket = serve::bind(&path).unwrap();
        let (sender, receiver) = command::queue().unwrap();
        let (snapshot, newest) = watch::channel(Arc::default());
        let events = Arc::new(events);
        let access = Access { commands: sender, snapshot: newest, events: Arc::clone(&events) };
        let health = Health::new();
        let (stop, stopped) = oneshot::channel();
        let server =
            tokio::spawn(serve::serve_with(socket, access, health.clone(), limits, async move {
                stopped.await.unwrap_or_default()
            }));
        let (out, commands) = mpsc::unbounded_channel();
        tokio::spawn(forward(receiver, out));
        Bench { path, commands, snapshot, events, health, server, stop: Some(stop), _dir: dir }
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("unix:{}", self.path.display())).unwrap()
    }

    pub async fn channel(&self) -> Channel {
        soon(self.endpoint().connect()).await.unwrap()
    }

    pub async fn client(&self) -> ShaperClient<Channel> {
        ShaperClient::new(self.channel().await)
    }

    pub fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        let mut snapshot = Snapshot::clone(&self.snapshot.borrow());
        change(&mut snapshot);
        self.snapshot.send_replace(Arc::new(snapshot));
    }

    pub async fn next_command(&mut self) -> Command {
        soon(self.commands.recv()).await.unwrap()
    }

    pub fn begin_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }
}

/// The loop's side of the queue, woken by its descriptor as the loop is.
async fn forward(mut receiver: CommandReceiver, out: mpsc::UnboundedSender<Command>) {
    let wake = receiver.wake_fd().try_clone_to_owned().unwrap();
    // SAFETY: `wake` owns its descriptor, which stays open and the same until it is dropped.
    let wake = unsafe { AsyncFd::register(wake) }.unwrap();
    loop {
        let mut ready = wake.readable().await.unwrap();
        ready.clear_ready();
        receiver.clear_wake();
        while let Some(command) = receiver.try_next() {
            if out.send(command).is_err() {
                return;
            }
        }
    }
}

/// `future`, or a failed test.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("took too long")
}

pub fn task_id(number: u64) -> TaskId {
    TaskId { epoch: 1, number }
}

/// A task with everything a running one has.
pub fn task(number: u64) -> proto::Task {
    let id = task_id(number);
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 123_456_000 });
    proto::Task {
        id: id.to_string(),
        name: Some(format!("attempt_1700000000000_0001_m_{number:06}_0")),
        job: Some("job_1700000000000_0001".into()),
        kind: Some("map".into()),
        pid: Some(123_456),
        uid: Some(1000),
        tier: proto::Tier::Passive.into(),
        priority: Some(0),
        class: proto::Class::Moderate.into(),
        computing_rate: Some(0.5),
        computing_rate_raw: Some(0.25),
        cpu_seconds: Some(12.5),
        cpu_share: Some(0.01),
        write_bytes_per_sec: Some(1e6),
        read_bytes_per_sec: Some(1e6),
        elapsed_seconds: Some(33.25),
        admitted_at: at(1_767_323_045),
        promoted_at: at(1_767_323_046),
        attachment: proto::Attachment::Own.into(),
        cgroup: Some(format!("/lrs/{id}")),
        ratio_group: Some("/lrs".into()),
        kernel: Some(proto::Kernel {
            cpu_weight: Some(100),
            cpu_idle: Some(true),
            io_weight: Some(10),
        }),
        resident_bytes: Some(1 << 28),
        unit: None,
        ..Default::default()
    }
}

pub fn event(seq: u64, kind: EventKind, task: &str) -> Event {
    Event {
        seq,
        at: WallTime::from_unix_micros(1_767_323_045_000_006),
        kind,
        task: Some(task.to_owned()),
        from: None,
        to: Some("active".to_owned()),
        reason: Some("a slot was free".to_owned()),
        inputs: serde_json::Map::from_iter([("free".to_owned(), 1.into())]),
    }
}
