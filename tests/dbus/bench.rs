//! The server in this process on a private bus, and the loop's ends of its channels in the hands
//! of the test.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use lrs::config;
use lrs::dbus::{self, Limits};
use lrs::proto;
use lrs::publish::EventRing;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::bus::Bus;
use crate::client::NAME;
use crate::played::{Played, soon};
pub use crate::played::{event, task_id};

pub struct Bench {
    pub bus: Bus,
    pub played: Played,
    pub server: JoinHandle<()>,
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
        let (played, access) = Played::new(EventRing::new(1000, []));
        let (stop, stopped) = oneshot::channel::<()>();
        let address = config::Bus::Address(bus.address());
        let (tried, _) = oneshot::channel();
        let server = tokio::spawn(dbus::serve_with(address, access, limits, tried, async move {
            stopped.await.unwrap_or_default()
        }));
        Bench { bus, played, server, stop: Some(stop) }
    }

    /// Waits until the server has its name.
    pub async fn open(&self) {
        name_owned(&self.bus).await;
    }

    pub fn begin_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }
}

impl Deref for Bench {
    type Target = Played;

    fn deref(&self) -> &Played {
        &self.played
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Played {
        &mut self.played
    }
}

/// Waits until the name has an owner on `bus`: first listening, then looking.
pub async fn name_owned(bus: &Bus) {
    use tokio_stream::StreamExt as _;
    let client = bus.connect().await;
    let proxy = zbus::fdo::DBusProxy::new(&client).await.unwrap();
    let mut changes = proxy.receive_name_owner_changed_with_args(&[(0, NAME)]).await.unwrap();
    while !proxy.name_has_owner(NAME.try_into().unwrap()).await.unwrap() {
        soon(changes.next()).await.unwrap();
    }
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

/// A status with something everywhere.
pub fn status() -> proto::Status {
    proto::Status {
        last_turn_seconds: None,
        daemon: None,
        running: Some(proto::Running { tasks: 1, rated: 1, rate_sum: 0.5, ..Default::default() }),
        node: Some(proto::Node {
            hostname: "h".into(),
            cores: 2,
            cpu: Some(proto::CpuUse { effective: Some(0.25), ..Default::default() }),
            period_ms: 3000,
            labels: [("rack".to_owned(), "r1".to_owned())].into(),
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
            root_weight: Some(200),
            version: 2,
            root: "/lrs".into(),
            cpu_tiers: "idle".into(),
            io_tiers: "none".into(),
            reason: "r".into(),
            ..Default::default()
        }),
        totals: Some(proto::Totals { admitted: 1, ..Default::default() }),
        version: "0".into(),
        waiting: 0,
        warnings: vec!["w".into()],
        started_at: Some(prost_types::Timestamp { seconds: 1_767_323_045, nanos: 0 }),
    }
}
