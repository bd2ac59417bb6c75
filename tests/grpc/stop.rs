//! The end: bounded, told to everybody, and nothing left behind.

use std::time::Duration;

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

    // One whose window is full, and who never reads on.
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
    assert!(took < Duration::from_millis(1200), "took {took:?}");
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
    let mut bench = Bench::start();
    let mut client = bench.client().await;
    let call = tokio::spawn(async move { client.drain(proto::DrainRequest {}).await });
    let Command::Drain { reply, .. } = bench.next_command().await else {
        panic!("not a Drain");
    };
    let began = Instant::now();
    bench.begin_stop();
    // The socket goes first, so the stop has begun.
    while bench.path.exists() {
        tokio::task::yield_now().await;
    }
    reply.send(Ok(())).unwrap();
    soon(call).await.unwrap().unwrap();
    soon(&mut bench.server).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_millis(700), "nothing held the end up");
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
