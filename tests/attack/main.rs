//! What a user without any right can do to the daemon and to others by asking and not reading.
//!
//! The tests are root in order to be other users as well. They are alone in their binary, for
//! they look at the memory of the whole process.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../grpc/bench.rs"]
#[allow(dead_code)]
mod bench;
mod flood;
mod held;
#[path = "../grpc/played.rs"]
#[allow(dead_code)]
mod played;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use lrs::clock::boot_time;
use lrs::core::event::{Event, EventKind};
use lrs::proto::event_stream_item::Item;
use lrs::proto::shaper_client::ShaperClient;
use lrs::proto::{self, EventStreamItem};
use lrs::publish::EventRing;
use lrs::serve::Limits;
use prost::Message as _;
use tokio::io::AsyncReadExt as _;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::bench::{Bench, event, soon, task, task_id};
use crate::flood::{HUGE, ask, connect_as, memory, reset};

/// Of no user on any node.
const USER: u32 = 4_000_001;
const OTHER: u32 = 4_000_002;

const WATCH_EVENTS: &str = "/lrs.v1.Shaper/WatchEvents";

fn from_the_beginning() -> Vec<u8> {
    proto::WatchEventsRequest { since: Some(0), no_follow: false }.encode_to_vec()
}

/// A server that other users can reach, with a history of `events`.
fn bench(limits: Limits, events: u64) -> Bench {
    let history = (1..=events).map(happened);
    let bench = Bench::with(limits, EventRing::new(events as usize, history));
    let search = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bench.path.parent().unwrap(), search).unwrap();
    bench
}

fn happened(seq: u64) -> Event {
    let long = "x".repeat(120);
    Event { reason: Some(long), ..event(seq, EventKind::Admitted, "t0000001-1") }
}

fn connection(bench: &Bench, uid: u32) -> UnixStream {
    connect_as(uid, &bench.path).expect("this test needs root, and /tmp open to everybody")
}

async fn channel(bench: &Bench, uid: u32, endpoint: Endpoint) -> Channel {
    let stream = connection(bench, uid);
    stream.set_nonblocking(true).unwrap();
    let mut stream = Some(TokioIo::new(tokio::net::UnixStream::from_std(stream).unwrap()));
    let connect = tower::service_fn(move |_| {
        let stream = stream.take().ok_or(std::io::Error::from(std::io::ErrorKind::NotConnected));
        async move { stream }
    });
    soon(endpoint.connect_with_connector(connect)).await.unwrap()
}

async fn user(bench: &Bench, uid: u32) -> ShaperClient<Channel> {
    ShaperClient::new(channel(bench, uid, Endpoint::from_static("http://localhost")).await)
}

async fn watch_status(
    client: &mut ShaperClient<Channel>,
) -> Result<Streaming<proto::Status>, Status> {
    let stream = soon(client.watch_status(proto::WatchStatusRequest {})).await?;
    Ok(stream.into_inner())
}

async fn watch_events(
    client: &mut ShaperClient<Channel>,
    since: u64,
) -> Result<Streaming<EventStreamItem>, Status> {
    let request = proto::WatchEventsRequest { since: Some(since), no_follow: false };
    Ok(soon(client.watch_events(request)).await?.into_inner())
}

/// Until `done` succeeds; there is no event to await in the server.
async fn until<T, E>(mut done: impl AsyncFnMut() -> Result<T, E>) -> T {
    soon(async {
        loop {
            match done().await {
                Ok(done) => return done,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

#[tokio::test]
#[ignore = "needs root and cgroups"]
async fn a_user_has_64_streams_over_all_its_connections() {
    let bench = bench(Limits::default(), 10);
    let mut clients = [user(&bench, USER).await, user(&bench, USER).await];
    let mut held = Vec::new();
    for turn in 0..64 {
        held.push(watch_status(&mut clients[turn % 2]).await.unwrap());
    }
    for client in &mut clients {
        let refused = watch_status(client).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("end some"), "{refused}");
        // What is no stream is still answered.
        soon(client.get_status(proto::GetStatusRequest {})).await.unwrap();
    }
    watch_status(&mut user(&bench, OTHER).await).await.unwrap();
    let mut root = bench.client().await;
    let mut roots = Vec::new();
    for _ in 0..100 {
        roots.push(watch_status(&mut root).await.unwrap());
    }
    held.pop();
    held.push(until(async || watch_status(&mut clients[0]).await).await);
}

#[tokio::test]
#[ignore = "needs root and cgroups"]
async fn unread_answers_of_a_user_are_bounded() {
    let mut bench = bench(Limits::default(), 10);
    bench.publish(|snapshot| {
        for number in 1..=5_000 {
            snapshot.tasks.insert(task_id(number), task(number).into());
        }
    });
    // A window that holds little of a page of over 1 MiB, which is not read any further.
    let endpoint = Endpoint::from_static("http://localhost").initial_stream_window_size(1_000);
    let mut grpc = tonic::client::Grpc::new(channel(&bench, USER, endpoint).await);
    grpc.ready().await.unwrap();
    let codec: ProstCodec<proto::ListTasksRequest, proto::ListTasksResponse> =
        ProstCodec::default();
    let path = PathAndQuery::from_static("/lrs.v1.Shaper/ListTasks");
    let request = proto::ListTasksRequest { page_size: 10_000, ..Default::default() };
    let unread = soon(grpc.server_streaming(Request::new(request), path, codec)).await;
    let mut unread = unread.unwrap().into_inner();
    let mut second = user(&bench, USER).await;
    // It is refused before it does anything, so a call that changes something was not carried out.
    let refused = soon(second.drain(proto::DrainRequest {})).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(bench.commands.try_recv().is_err());
    assert!(refused.message().contains("1 MiB"), "{refused}");
    soon(user(&bench, OTHER).await.get_status(proto::GetStatusRequest {})).await.unwrap();
    soon(bench.client().await.get_status(proto::GetStatusRequest {})).await.unwrap();
    // Read, it is whole, and the user is served again.
    let page = soon(unread.message()).await.unwrap().unwrap();
    assert!(page.encoded_len() > 1 << 20, "{}", page.encoded_len());
    until(async || second.get_status(proto::GetStatusRequest {}).await).await;
}

#[tokio::test]
#[ignore = "needs root and cgroups"]
async fn a_reader_that_stops_is_closed_with_the_number_it_lost() {
    const EVENTS: u64 = 2_000;
    let limits =
        Limits { slow_reader: Duration::from_millis(300), streams: 1, ..Limits::default() };
    let bench = bench(limits, EVENTS);
    // HTTP/2 reads ahead for the reader, but not all there is.
    let small = Endpoint::from_static("http://localhost").initial_stream_window_size(10_000);
    let mut client = ShaperClient::new(channel(&bench, USER, small).await);
    let mut stream = watch_events(&mut client, 1).await.unwrap();
    let mut seen = 0;
    let mut next = async || -> Result<u64, Status> {
        match soon(stream.message()).await?.unwrap().item.unwrap() {
            Item::Event(event) => Ok(event.seq),
            Item::Lost(lost) => panic!("lost {lost} on the way"),
        }
    };
    for _ in 0..3 {
        seen = next().await.unwrap();
    }
    // Its place is free when it is closed; what it has got meanwhile waits in its window.
    let began = boot_time();
    let other = until(async || watch_status(&mut client).await).await;
    assert!(
        boot_time().since(began) >= Duration::from_millis(200),
        "{:?}",
        boot_time().since(began)
    );
    let status = loop {
        match next().await {
            Ok(seq) => {
                assert_eq!(seq, seen + 1);
                seen = seq;
            }
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let lost = format!("{} events were not sent", EVENTS - seen);
    assert!(status.message().contains(&lost), "{status}");
    assert!(status.message().contains(&format!("since {}", seen + 1)), "{status}");
    assert!(seen < EVENTS, "nothing was lost");
    drop(other);
    let mut stream = until(async || watch_events(&mut client, seen + 1).await).await;
    assert!(matches!(
        soon(stream.message()).await.unwrap().unwrap().item.unwrap(),
        Item::Event(event) if event.seq == seen + 1
    ));
}

#[tokio::test]
#[ignore = "needs root and cgroups"]
async fn a_reader_that_goes_on_slowly_is_not_closed() {
    let limits = Limits { slow_reader: Duration::from_millis(400), ..Limits::default() };
    let bench = bench(limits, 300);
    let small = Endpoint::from_static("http://localhost").initial_stream_window_size(600);
    let mut client = ShaperClient::new(channel(&bench, USER, small).await);
    let mut stream = watch_events(&mut client, 1).await.unwrap();
    for seq in 1..=12 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        match soon(stream.message()).await.unwrap().unwrap().item.unwrap() {
            Item::Event(event) => assert_eq!(event.seq, seq),
            Item::Lost(lost) => panic!("lost {lost}"),
        }
    }
}

#[tokio::test]
#[ignore = "needs root and cgroups"]
async fn a_reader_without_any_window_is_reset() {
    /// RST_STREAM (RFC 9113, 6.4).
    const RESET: u8 = 3;
    let limits = Limits { slow_reader: Duration::from_millis(300), ..Limits::default() };
    let bench = bench(limits, 1_000);
    let mut connection = connection(&bench, USER);
    ask(&mut connection, WATCH_EVENTS, &from_the_beginning(), 64, 0).unwrap();
    connection.set_nonblocking(true).unwrap();
    let mut connection = tokio::net::UnixStream::from_std(connection).unwrap();
    let mut resets = 0;
    while resets < 64 {
        let mut head = [0; 9];
        soon(connection.read_exact(&mut head)).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        soon(connection.read_exact(&mut vec![0; length as usize])).await.unwrap();
        assert_ne!(head[3], 0, "DATA without a window");
        resets += usize::from(head[3] == RESET);
    }
    let mut client = user(&bench, USER).await;
    watch_events(&mut client, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and cgroups"]
async fn calls_that_are_taken_back_at_once_cost_a_user_its_connection_and_root_nothing() {
    let bench = bench(Limits::default(), 1_000);
    let mut root = bench.client().await;
    root.get_status(proto::GetStatusRequest {}).await.unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory(std::process::id(), "VmRSS");
    // A few are what any client does that loses interest, so the heads are good ones.
    let mut few = connection(&bench, USER);
    reset(&mut few, WATCH_EVENTS, &from_the_beginning(), 5).unwrap();
    few.set_nonblocking(true).unwrap();
    let mut few = tokio::net::UnixStream::from_std(few).unwrap();
    let mut head = [0; 9];
    soon(few.read_exact(&mut head)).await.unwrap();
    const SETTINGS: u8 = 4;
    assert_eq!(head[3], SETTINGS, "{head:?}");

    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let mut many = connection(&bench, USER);
        // The daemon closes it meanwhile.
        let _ = reset(&mut many, WATCH_EVENTS, &from_the_beginning(), 20_000);
        let began = boot_time();
        let mut root = bench.client().await;
        soon(root.get_status(proto::GetStatusRequest {})).await.unwrap();
        slowest = slowest.max(boot_time().since(began));
        many.set_nonblocking(true).unwrap();
        let mut many = tokio::net::UnixStream::from_std(many).unwrap();
        // Closed or reset; else this waits for ever.
        let _ = soon(many.read_to_end(&mut Vec::new())).await;
    }
    assert!(slowest < Duration::from_secs(1), "root waited {slowest:?}");
    let grown = memory(std::process::id(), "VmHWM").saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB");
    watch_status(&mut user(&bench, USER).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and cgroups"]
async fn four_thousand_unread_streams_cost_little_and_lock_no_user_out() {
    const EVENTS: u64 = 10_200;
    let limits = Limits { slow_reader: Duration::from_secs(2), ..Limits::default() };
    let mut bench = bench(limits, EVENTS);
    let mut root = bench.client().await;
    root.get_status(proto::GetStatusRequest {}).await.unwrap();
    // The peak counts from here (proc_pid_clear_refs(5)).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory(std::process::id(), "VmRSS");

    // As many as the daemon took on two connections, and as many on connections of which each
    // keeps to what the daemon grants it.
    let mut attackers = Vec::new();
    for (connections, calls) in [(2, 2_040), (40, 100)] {
        for _ in 0..connections {
            let mut connection = connection(&bench, USER);
            // The daemon may close on one that asks for more than it was granted.
            let _ = ask(&mut connection, WATCH_EVENTS, &from_the_beginning(), calls, HUGE);
            attackers.push(connection);
        }
    }
    let mut victim = user(&bench, USER).await;
    let refused = until(async || match watch_events(&mut victim, 0).await {
        Err(status) => Ok(status),
        Ok(_) => Err(()),
    })
    .await;
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let mut slowest = Duration::ZERO;
    for _ in 0..50 {
        let began = boot_time();
        let mut root = bench.client().await;
        soon(root.get_status(proto::GetStatusRequest {})).await.unwrap();
        slowest = slowest.max(boot_time().since(began));
    }
    assert!(slowest < Duration::from_secs(1), "root waited {slowest:?}");
    // They are closed for reading nothing, though their connections stay.
    until(async || watch_events(&mut victim, 0).await).await;
    let grown = memory(std::process::id(), "VmHWM").saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB");

    let began = boot_time();
    bench.begin_stop();
    soon(&mut bench.server).await.unwrap().unwrap();
    assert!(boot_time().since(began) < Duration::from_secs(2), "{:?}", boot_time().since(began));
}
