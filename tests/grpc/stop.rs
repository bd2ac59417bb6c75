//! The end: bounded, announced to all clients, and nothing left behind.

use std::sync::Arc;
use std::time::Duration;

use lrs::access::Access;
use lrs::command::Command;
use lrs::core::event::EventKind;
use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use lrs::publish::EventRing;
use lrs::serve::{self, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::Code;
use tonic_health::pb::health_client::HealthClient;

use crate::bench::{Bench, event, soon};

#[tokio::test]
async fn stopping_is_bounded_whatever_is_open() {
    let events = (1..=20_000).map(|seq| event(seq, EventKind::Admitted, "t0000001-1"));
    let mut bench = Bench::with(Limits::default(), EventRing::new(20_000, events));
    let mut client = bench.client().await;
    let mut status = client.watch_status(proto::WatchStatusRequest {}).await.unwrap().into_inner();
    soon(status.message()).await.unwrap().unwrap();
    let follow = proto::WatchEventsRequest { since: None, no_follow: false };
    let mut events = client.watch_events(follow).await.unwrap().into_inner();
    let mut health = HealthClient::new(bench.channel().await)
        .watch(tonic_health::pb::HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    soon(health.message()).await.unwrap().unwrap();

    // One with a full window that never reads on.
    let endpoint = bench.endpoint().initial_stream_window_size(4096);
    let mut stuck_client = ShaperClient::new(soon(endpoint.connect()).await.unwrap());
    let past = proto::WatchEventsRequest { since: Some(1), no_follow: false };
    let stuck = stuck_client.watch_events(past).await.unwrap();

    let waiting = {
        let mut client = bench.client().await;
        let request = proto::AdmitRequest { pid: 1, wait_forever: true, ..Default::default() };
        tokio::spawn(async move { client.admit(request).await })
    };
    let Command::Admit { mut reply, .. } = bench.next_command().await else {
        panic!("not an Admit");
    };
    let mut silent = UnixStream::connect(&bench.path).await.unwrap();
    let mut begun = UnixStream::connect(&bench.path).await.unwrap();
    begun.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    // Answered, so that all of the above has been accepted.
    client.get_status(proto::GetStatusRequest {}).await.unwrap();

    let began = Instant::now();
    bench.begin_stop();
    for code in [
        soon(status.message()).await.unwrap_err().code(),
        soon(events.message()).await.unwrap_err().code(),
        soon(waiting).await.unwrap().unwrap_err().code(),
    ] {
        assert_eq!(code, Code::Unavailable);
    }
    // Its state changes on the way out: NOT_SERVING may come first.
    let health_ended = loop {
        match soon(health.message()).await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(health_ended.unwrap_err().code(), Code::Unavailable);
    soon(reply.closed()).await;
    soon(&mut bench.server).await.unwrap().unwrap();
    let took = began.elapsed();
    // The bound is 1 s; the rest is for a machine that is busy with other tests.
    assert!(took < Duration::from_secs(2), "took {took:?}");
    for (name, stream) in [("silent", &mut silent), ("begun", &mut begun)] {
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = soon(stream.read_to_end(&mut rest)).await;
        assert!(rest.len() < 200, "{name}: {rest:?}");
    }
    assert!(!bench.path.exists());
    drop(stuck);
}

#[tokio::test]
async fn an_answer_under_way_still_arrives() {
    let minutes = Duration::from_secs(600);
    let limits = Limits { stop_grace: minutes, stop_within: minutes, ..Limits::default() };
    let mut bench = Bench::with(limits, EventRing::new(10, []));
    let mut client = bench.client().await;
    let call = tokio::spawn(async move { client.drain(proto::DrainRequest {}).await });
    let Command::Drain { reply, .. } = bench.next_command().await else {
        panic!("not a Drain");
    };
    bench.begin_stop();
    // The socket goes first, so the stop has begun.
    while bench.path.exists() {
        tokio::task::yield_now().await;
    }
    reply.send(Ok(())).unwrap();
    soon(call).await.unwrap().unwrap();
    // With nothing left open the end waits for neither bound.
    soon(&mut bench.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_served_socket_is_not_taken_over_and_a_left_one_is() {
    let mut bench = Bench::start();
    let mut client = bench.client().await;
    let error = serve::bind(&bench.path).unwrap_err();
    assert!(matches!(error, serve::ServeError::InUse { .. }), "{error}");
    client.get_status(proto::GetStatusRequest {}).await.unwrap();

    // As after kill -9: the task is gone, its socket file put back as it was.
    let kept = bench.path.with_extension("kept");
    std::fs::hard_link(&bench.path, &kept).unwrap();
    bench.begin_stop();
    soon(&mut bench.server).await.unwrap().unwrap();
    std::fs::rename(&kept, &bench.path).unwrap();
    let again = serve::bind(&bench.path).unwrap();
    UnixStream::connect(again.path()).await.unwrap();
}

#[tokio::test]
async fn a_client_that_comes_before_the_daemon_is_ready_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let socket = serve::bind(&path).unwrap();
    let mut early = UnixStream::connect(&path).await.unwrap();
    early.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    assert!(early.try_read(&mut [0; 1]).is_err(), "no server answers yet");

    let (commands, _receiver) = lrs::access::queue().unwrap();
    let (_snapshot, newest) = tokio::sync::watch::channel(Arc::default());
    let access = Access::new(commands, newest, Arc::new(EventRing::new(1, [])));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve::serve(socket, access, serve::Health::new(), async move {
        stopped.await.unwrap_or_default();
    }));
    let mut head = [0; 9];
    soon(early.read_exact(&mut head)).await.unwrap();
    assert_eq!(head[3], 4, "the settings of the server");
    stop.send(()).unwrap();
    soon(server).await.unwrap().unwrap();
    assert!(!path.exists());
}
