//! A daemon out of descriptors. Alone in its binary: the limit is the whole process's.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use lrs::access::Access;
use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use lrs::publish::EventRing;
use lrs::serve::{self, Health};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tonic::transport::Endpoint;

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[tokio::test]
async fn out_of_descriptors_the_server_waits_without_spinning_and_recovers() {
    const DESCRIPTORS: u64 = 128;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let socket = serve::bind(&path).unwrap();
    let (commands, _receiver) = lrs::access::queue().unwrap();
    let (_snapshot, newest) = tokio::sync::watch::channel(Arc::default());
    let access = Access::new(commands, newest, Arc::new(EventRing::new(1, [])));
    let server = tokio::spawn(serve::serve(socket, access, Health::new(), std::future::pending()));
    let endpoint = Endpoint::from_shared(format!("unix:{}", path.display())).unwrap();
    let mut old = ShaperClient::new(endpoint.connect().await.unwrap());
    old.get_status(proto::GetStatusRequest {}).await.unwrap();

    let limit = Rlimit { current: Some(DESCRIPTORS), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    // Clients and server share the limit: the last clients are in the kernel's queue, and
    // nothing is left to accept them with.
    let mut hoard = Vec::new();
    while let Ok(stream) = UnixStream::connect(&path) {
        hoard.push(stream);
    }
    assert!(hoard.len() > 10);
    // A call makes the server turn; it meets the shortage in the same turns.
    for _ in 0..3 {
        old.get_status(proto::GetStatusRequest {}).await.unwrap();
    }
    let before = cpu_time();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let spent = cpu_time().saturating_sub(before);
    assert!(spent < Duration::from_millis(100), "{spent:?} of CPU in 500 ms of shortage");
    old.get_status(proto::GetStatusRequest {}).await.unwrap();

    drop(hoard);
    let mut new = ShaperClient::new(endpoint.connect().await.unwrap());
    new.get_status(proto::GetStatusRequest {}).await.unwrap();
    assert!(!server.is_finished());
}
