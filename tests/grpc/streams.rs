//! Watching: status, events, health; slow readers; many watchers.

use std::sync::Arc;

use lrs::core::event::EventKind;
use lrs::proto;
use lrs::proto::event_stream_item::Item;
use lrs::proto::shaper_client::ShaperClient;
use lrs::publish::EventRing;
use lrs::serve::Limits;
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::bench::{Bench, event, soon};

fn waiting(bench: &Bench, waiting: u32) {
    bench.publish(|snapshot| {
        snapshot.status = Arc::new(proto::Status { waiting, ..Default::default() });
    });
}

async fn next_waiting(stream: &mut Streaming<proto::Status>) -> u32 {
    soon(stream.message()).await.unwrap().unwrap().waiting
}

#[tokio::test]
async fn a_status_watcher_sees_now_and_every_change_once() {
    let bench = Bench::start();
    waiting(&bench, 1);
    let mut client = bench.client().await;
    let mut stream = client.watch_status(proto::WatchStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(next_waiting(&mut stream).await, 1);
    waiting(&bench, 1); // equal, though another object
    bench.publish(|snapshot| snapshot.colocation_threshold = 1.0); // not of the status
    waiting(&bench, 2);
    assert_eq!(next_waiting(&mut stream).await, 2);
    // Nothing is read between these: the newest is enough.
    waiting(&bench, 3);
    waiting(&bench, 4);
    assert_eq!(next_waiting(&mut stream).await, 4);
}

#[tokio::test]
async fn a_status_watcher_learns_when_the_loop_ends() {
    let mut bench = Bench::start();
    let mut client = bench.client().await;
    let mut stream = client.watch_status(proto::WatchStatusRequest {}).await.unwrap().into_inner();
    next_waiting(&mut stream).await;
    bench.snapshot = tokio::sync::watch::channel(Arc::default()).0;
    let error = soon(stream.message()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

fn promoted(seq: u64) -> lrs::core::event::Event {
    event(seq, EventKind::Promoted, "t0000001-1")
}

async fn watch(
    client: &mut ShaperClient<tonic::transport::Channel>,
    since: Option<u64>,
    no_follow: bool,
) -> Streaming<proto::EventStreamItem> {
    client.watch_events(proto::WatchEventsRequest { since, no_follow }).await.unwrap().into_inner()
}

async fn next_item(stream: &mut Streaming<proto::EventStreamItem>) -> Option<Item> {
    soon(stream.message()).await.unwrap().map(|item| item.item.unwrap())
}

/// Sequence number, or minus the number lost.
fn position(item: &Item) -> i64 {
    match item {
        Item::Event(event) => event.seq as i64,
        Item::Lost(lost) => -(*lost as i64),
    }
}

#[tokio::test]
async fn events_are_resumable_and_say_what_is_gone() {
    let bench = Bench::with(Limits::default(), EventRing::new(100, (1..=150).map(promoted)));
    let mut client = bench.client().await;
    for (since, first) in [(0, -50), (1, -50), (30, -21), (51, 51), (149, 149)] {
        let mut stream = watch(&mut client, Some(since), true).await;
        let mut seen = Vec::new();
        while let Some(item) = next_item(&mut stream).await {
            seen.push(position(&item));
        }
        assert_eq!(seen[0], first, "since {since}");
        let events: Vec<i64> = seen.into_iter().filter(|position| *position > 0).collect();
        assert_eq!(events, (since.max(51) as i64..=150).collect::<Vec<_>>());
    }
    for since in [Some(151), Some(u64::MAX), None] {
        let mut stream = watch(&mut client, since, true).await;
        assert_eq!(next_item(&mut stream).await, None, "{since:?}");
    }
}

#[tokio::test]
async fn events_follow() {
    let bench = Bench::with(Limits::default(), EventRing::new(100, (1..=3).map(promoted)));
    let mut client = bench.client().await;
    let mut from_now = watch(&mut client, None, false).await;
    let mut from_two = watch(&mut client, Some(2), false).await;
    assert_eq!(position(&next_item(&mut from_two).await.unwrap()), 2);
    assert_eq!(position(&next_item(&mut from_two).await.unwrap()), 3);
    for seq in 4..=200 {
        bench.events.push(promoted(seq));
        for stream in [&mut from_now, &mut from_two] {
            assert_eq!(position(&next_item(stream).await.unwrap()), seq as i64);
        }
    }
}

#[tokio::test]
async fn a_slow_reader_stops_no_other_and_learns_what_it_lost() {
    const EVENTS: u64 = 5_000;
    let bench = Bench::with(Limits::default(), EventRing::new(100, []));
    // Small windows, so that HTTP/2 does not read ahead for the slow reader.
    let endpoint = bench.endpoint().initial_stream_window_size(4096);
    let mut slow_client = ShaperClient::new(soon(endpoint.connect()).await.unwrap());
    let mut slow = watch(&mut slow_client, Some(1), false).await;
    let mut client = bench.client().await;
    let mut quick = watch(&mut client, Some(1), false).await;
    for seq in 1..=EVENTS {
        bench.events.push(promoted(seq));
        assert_eq!(position(&next_item(&mut quick).await.unwrap()), seq as i64);
    }
    let (mut expected, mut lost_in_all) = (1, 0);
    while expected <= EVENTS {
        match next_item(&mut slow).await.unwrap() {
            Item::Lost(lost) => {
                expected += lost;
                lost_in_all += lost;
            }
            Item::Event(event) => {
                assert_eq!(event.seq, expected);
                expected += 1;
            }
        }
    }
    assert!(lost_in_all > EVENTS / 2, "lost {lost_in_all}");
}

#[tokio::test]
async fn a_thousand_watchers() {
    const WATCHERS: usize = 1000;
    // Two descriptors for each, and some for the rest of this test binary.
    let needed = 2 * WATCHERS as u64 + 500;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert!(
        limit.maximum.is_none_or(|most| most >= needed),
        "this test needs {needed} descriptors; raise `ulimit -Hn`"
    );
    if limit.current.is_some_and(|now| now < needed) {
        let raised = rustix::process::Rlimit { current: Some(needed), ..limit };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    }
    let bench = Bench::start();
    waiting(&bench, 1);
    let mut streams = Vec::new();
    for _ in 0..WATCHERS {
        let mut client = bench.client().await;
        let stream = client.watch_status(proto::WatchStatusRequest {}).await.unwrap();
        streams.push((client, stream.into_inner()));
    }
    for round in 1..=3 {
        waiting(&bench, round);
        for (_, stream) in &mut streams {
            assert_eq!(next_waiting(stream).await, round);
        }
    }
}

#[tokio::test]
async fn a_thousand_watches_on_one_connection() {
    let bench = Bench::start();
    waiting(&bench, 1);
    let mut client = bench.client().await;
    let mut streams = Vec::new();
    for _ in 0..1000 {
        let stream = soon(client.watch_status(proto::WatchStatusRequest {})).await.unwrap();
        streams.push(stream.into_inner());
    }
    waiting(&bench, 2);
    for stream in &mut streams {
        while next_waiting(stream).await != 2 {}
    }
}

#[tokio::test]
async fn health_is_served_and_follows() {
    let bench = Bench::start();
    let mut client = HealthClient::new(bench.channel().await);
    let ask = |service: &str| tonic_health::pb::HealthCheckRequest { service: service.to_owned() };
    for service in ["", "lrs.v1.Shaper"] {
        let answer = client.check(ask(service)).await.unwrap();
        assert_eq!(answer.get_ref().status(), ServingStatus::Serving, "{service:?}");
    }
    assert_eq!(client.check(ask("other")).await.unwrap_err().code(), Code::NotFound);
    let mut stream = client.watch(ask("lrs.v1.Shaper")).await.unwrap().into_inner();
    let mut next = async || soon(stream.message()).await.unwrap().unwrap().status();
    assert_eq!(next().await, ServingStatus::Serving);
    bench.health.set_serving(false).await;
    assert_eq!(next().await, ServingStatus::NotServing);
    assert_eq!(client.check(ask("")).await.unwrap().get_ref().status(), ServingStatus::NotServing);
}

#[tokio::test]
async fn reflection_lists_the_services_to_new_and_old_clients() {
    macro_rules! services {
        ($version:ident, $bench:expr) => {{
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
            let mut client = ServerReflectionClient::new($bench.channel().await);
            let request = tonic_reflection::pb::$version::ServerReflectionRequest {
                host: String::new(),
                message_request: Some(MessageRequest::ListServices(String::new())),
            };
            let request = tokio_stream::once(request);
            let mut stream = client.server_reflection_info(request).await.unwrap().into_inner();
            let answer = soon(stream.message()).await.unwrap().unwrap().message_response.unwrap();
            let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
            let mut names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
            names.sort();
            names
        }};
    }
    let bench = Bench::start();
    let expected =
        ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "lrs.v1.Shaper"];
    assert_eq!(services!(v1, bench), expected);
    assert_eq!(services!(v1alpha, bench), expected);
}
