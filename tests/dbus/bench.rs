//! The door in this process on a private bus, and the loop's ends of its channels in the hands
//! of the test.

use std::sync::Arc;
use std::time::Duration;

use lrs::command::{self, Command, CommandReceiver};
use lrs::config;
use lrs::core::event::{Event, EventKind};
use lrs::core::model::TaskId;
use lrs::dbus::{self, Limits};
use lrs::proto;
use lrs::publish::{Access, EventRing, Snapshot};
use lrs::units::WallTime;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::bus::Bus;
use crate::client::{NAME, soon};

pub struct Bench {
    pub bus: Bus,
    pub commands: mpsc::UnboundedReceiver<Command>,
    pub snapshot: watch::Sender<Arc<Snapshot>>,
    pub events: Arc<EventRing>,
    pub door: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

/// The daemon's limits, with short pauses.
pub fn limits() -> Limits {
    let retry = (Duration::from_millis(10), Duration::from_millis(50));
    Limits { retry, ..Limits::default() }
}

impl Bench {
    pub async fn start() -> Bench {
        Bench::with(Bus::start(), limits()).await
    }

    /// Serves, and has the name when this returns.
    pub async fn with(bus: Bus, limits: Limits) -> Bench {
        let bench = Bench::closed(bus, limits);
        bench.open().await;
        bench
    }

    /// As [`Bench::with`], without waiting for the name.
    pub fn closed(bus: Bus, limits: Limits) -> Bench {
        let (sender, receiver) = command::queue().unwrap();
        let (snapshot, newest) = watch::channel(Arc::default());
        let events = Arc::new(EventRing::new(1000, []));
        let access = Access { commands: sender, snapshot: newest, events: Arc::clone(&events) };
        let (stop, stopped) = oneshot::channel::<()>();
        let address = config::Bus::Address(bus.address());
        let (tried, _) = oneshot::channel();
        let door = tokio::spawn(dbus::serve_with(address, access, limits, tried, async move {
            stopped.await.unwrap_or_default()
        }));
        let (out, commands) = mpsc::unbounded_channel();
        tokio::spawn(forward(receiver, out));
        Bench { bus, commands, snapshot, events, door, stop: Some(stop) }
    }

    /// Waits until the door has its name.
    pub async fn open(&self) {
        name_owned(&self.bus).await;
    }

    pub fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        let mut snapshot = Snapshot::clone(&self.snapshot.borrow());
        change(&mut snapshot);
        snapshot.last_event = self.events.last();
        self.snapshot.send_replace(Arc::new(snapshot));
    }

    pub async fn next_command(&mut self) -> Command {
        soon(self.commands.recv()).await.unwrap()
    }

    pub fn begin_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }
}

/// Waits until somebody owns the name on `bus`: first listening, then looking.
pub async fn name_owned(bus: &Bus) {
    use tokio_stream::StreamExt as _;
    let client = bus.connect().await;
    let proxy = zbus::fdo::DBusProxy::new(&client).await.unwrap();
    let mut changes = proxy.receive_name_owner_changed_with_args(&[(0, NAME)]).await.unwrap();
    while !proxy.name_has_owner(NAME.try_into().unwrap()).await.unwrap() {
        soon(changes.next()).await.unwrap();
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

pub fn task_id(number: u64) -> TaskId {
    TaskId { epoch: 1, number }
}

pub fn task_path(number: u64) -> String {
    format!("/org/lrs/Shaper1/task/{}", task_id(number).to_string().replace('-', "_"))
}

/// A task with everything a running one has but a kind.
pub fn task(number: u64) -> proto::Task {
    let id = task_id(number);
    proto::Task {
        id: id.to_string(),
        name: Some("n/ä".into()),
        job: Some("j".into()),
        kind: None,
        pid: Some(123_456),
        uid: Some(1000),
        tier: proto::Tier::Passive.into(),
        priority: Some(-2),
        class: proto::Class::Moderate.into(),
        computing_rate: Some(0.5),
        cpu_seconds: Some(12.5),
        admitted_at: Some(prost_types::Timestamp { seconds: 1_767_323_045, nanos: 6_000 }),
        attachment: proto::Attachment::Own.into(),
        cgroup: Some(format!("/lrs/{id}")),
        ratio_group: Some("/lrs".into()),
        kernel: Some(proto::Kernel {
            cpu_weight: Some(100),
            cpu_idle: Some(true),
            io_weight: None,
        }),
        resident_bytes: Some(1 << 28),
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

/// A status with something everywhere.
pub fn status() -> proto::Status {
    proto::Status {
        node: Some(proto::Node {
            hostname: "h".into(),
            cores: 2,
            cpu: Some(proto::CpuUse { effective: Some(0.25), ..Default::default() }),
            period_ms: 3000,
            ..Default::default()
        }),
        slots: Some(proto::Slots {
            active: Some(proto::ActiveSlots { capacity: 2, used: 1, reserved: 0, free: 1 }),
            passive: Some(proto::PassiveSlots {
                capacity: 2,
                base: 2,
                max: 8,
                free: 2,
                ..Default::default()
            }),
        }),
        lowest_active_priority: Some(-1),
        state: proto::NodeState::Accepting.into(),
        mode: proto::Mode::Enforce.into(),
        guard: Some(proto::Guard::default()),
        cgroup: Some(proto::CgroupStatus {
            version: 2,
            root: "/lrs".into(),
            cpu_tiers: "idle".into(),
            io_tiers: "none".into(),
            reason: "r".into(),
        }),
        totals: Some(proto::Totals { admitted: 1, ..Default::default() }),
        version: "0".into(),
        waiting: 0,
        warnings: vec!["w".into()],
        started_at: Some(prost_types::Timestamp { seconds: 1_767_323_045, nanos: 0 }),
    }
}
