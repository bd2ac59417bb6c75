//! A server in this process, and the loop's ends of its channels in the hands of the test.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use lrs::publish::EventRing;
use lrs::serve::{self, Health, Limits, ServeError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use crate::played::Played;
pub use crate::played::{event, soon, task_id};

pub struct Bench {
    pub path: PathBuf,
    played: Played,
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
        let (played, access) = Played::new(events);
        let health = Health::new();
        let (stop, stopped) = oneshot::channel();
        let server =
            tokio::spawn(serve::serve_with(socket, access, health.clone(), limits, async move {
                stopped.await.unwrap_or_default()
            }));
        Bench { path, played, health, server, stop: Some(stop), _dir: dir }
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
