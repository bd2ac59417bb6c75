//! The server with readings that are made up: what it answers, and what scrapers may cost.

#![allow(clippy::unwrap_used)] // tests, helpers included

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lrs_exporter::pages::{Pages, Source};
use lrs_exporter::server::{Limits, serve};
use lrs_exporter::settings::Settings;
use lrs_metrics::Reading;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

struct Made {
    collections: AtomicUsize,
    is_there: AtomicBool,
    /// A collection goes on when it gets a permit.
    gate: Semaphore,
    /// Tasks of the reading.
    tasks: usize,
}

impl Source for Made {
    async fn collect(&self) -> Result<(Settings, Reading), String> {
        self.collections.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        if !self.is_there.load(Ordering::SeqCst) {
            return Err("it is away".into());
        }
        let task = |number| lrs_api::proto::Task {
            job: Some(format!("{}{number}", "j".repeat(200))),
            ..Default::default()
        };
        let mut settings = Settings::default();
        settings.metrics.jobs = u64::MAX;
        let tasks = (0..self.tasks).map(task).collect();
        Ok((settings, Reading { tasks, ..Reading::default() }))
    }
}

struct Server {
    at: SocketAddr,
    made: Arc<Made>,
    _running: JoinSet<()>,
}

async fn server(permits: usize, tasks: usize) -> Server {
    server_with(Limits::default(), permits, tasks).await
}

async fn server_with(limits: Limits, permits: usize, tasks: usize) -> Server {
    let made = Arc::new(Made {
        collections: AtomicUsize::new(0),
        is_there: AtomicBool::new(true),
        gate: Semaphore::new(permits),
        tasks,
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut running = JoinSet::new();
    running.spawn(serve(listener, Arc::new(Pages::new(Arc::clone(&made))), limits));
    Server { at, made, _running: running }
}

/// The whole answer to a request.
async fn ask(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn get(path: &str, accept: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n")
}

const MANY: usize = 1 << 20;

#[tokio::test]
async fn it_serves_both_formats_and_its_health_and_nothing_else() {
    let server = server(MANY, 1).await;
    let own = ask(server.at, &get("/metrics", "*/*")).await;
    assert!(own.starts_with("HTTP/1.1 200") && own.contains("\nlrs_up 1"), "{own}");
    assert!(own.contains("content-type: text/plain; version=0.0.4") && !own.contains("# EOF"));
    let open = ask(server.at, &get("/metrics", "application/openmetrics-text;version=1.0.0")).await;
    assert!(open.contains("content-type: application/openmetrics-text"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    let health = ask(server.at, &get("/healthz", "*/*")).await;
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok\n"), "{health}");
    assert!(ask(server.at, &get("/etc/passwd", "*/*")).await.starts_with("HTTP/1.1 404"));
    let post =
        ask(server.at, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
    assert!(post.starts_with("HTTP/1.1 405") && post.contains("allow: GET, HEAD"), "{post}");
    let head = ask(server.at, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(ask(server.at, "\0\0\0 what\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    let huge = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let huge = ask(server.at, &huge).await;
    assert!(huge.starts_with("HTTP/1.1 431"), "{huge}");
}

#[tokio::test]
async fn scrapes_at_once_share_a_collection_that_the_first_one_may_leave() {
    let server = server(0, 1).await;
    // It begins the collection and goes away in the middle of it.
    let mut first = TcpStream::connect(server.at).await.unwrap();
    first.write_all(get("/metrics", "*/*").as_bytes()).await.unwrap();
    while server.made.collections.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(first);
    let mut scrapes = JoinSet::new();
    for _ in 0..50 {
        let at = server.at;
        scrapes.spawn(async move { ask(at, &get("/metrics", "*/*")).await });
    }
    server.made.gate.add_permits(1);
    while let Some(scrape) = scrapes.join_next().await {
        assert!(scrape.unwrap().contains("\nlrs_up 1"));
    }
    assert_eq!(server.made.collections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_lrsd_that_is_away_is_a_figure_and_no_older_ones_are_shown() {
    let server = server(MANY, 1).await;
    server.made.is_there.store(false, Ordering::SeqCst);
    let away = ask(server.at, &get("/metrics", "*/*")).await;
    assert!(away.starts_with("HTTP/1.1 200") && away.contains("\nlrs_up 0"), "{away}");
    assert!(!away.contains("lrs_tasks"), "{away}");
    let health = ask(server.at, &get("/healthz", "*/*")).await;
    assert!(health.starts_with("HTTP/1.1 503") && health.contains("it is away"), "{health}");
    server.made.is_there.store(true, Ordering::SeqCst);
    while !ask(server.at, &get("/metrics", "*/*")).await.contains("\nlrs_up 1") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn five_thousand_connections_that_say_nothing_keep_no_scraper_out() {
    let server = server(MANY, 1).await;
    let mut silent = std::collections::VecDeque::new();
    for number in 0..5_000 {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        // Half of a request, or nothing.
        if number % 2 == 0 {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHo").await.unwrap();
        }
        silent.push_back(stream);
        // The client's own descriptors: those that the server has closed.
        if silent.len() > Limits::default().connections + 100 {
            let mut oldest = silent.pop_front().unwrap();
            // Its end or a reset: the server holds it no more.
            let ended = oldest.read(&mut [0]).await;
            assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        }
        if number % 1_000 == 999 {
            let text = ask(server.at, &get("/metrics", "*/*")).await;
            assert!(text.contains("\nlrs_up 1"), "{text}");
        }
    }
}

#[tokio::test]
async fn slow_readers_do_not_hold_up_others() {
    // Some MB, more than the buffers of the kernel have room for.
    let server = server(MANY, 20_000).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        stream.write_all(get("/metrics", "*/*").as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let text = ask(server.at, &get("/metrics", "*/*")).await;
    assert!(text.len() > 4 << 20, "{} bytes", text.len());
    // They get all of it when they read at last, if that is within the time of a connection.
    let mut one = slow.pop().unwrap();
    let mut first = [0; 15];
    one.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_connection_ends_after_its_time_whatever_of_it_is_slow() {
    let limits = Limits { whole: Duration::from_millis(300), ..Limits::default() };
    let server = server_with(limits, MANY, 20_000).await;
    for sent in ["", "GET /metr"] {
        assert_eq!(ask(server.at, sent).await, "", "its end and no answer");
    }
    // The page has 14 MB, more than the kernel holds of an answer that is not read.
    let mut stream = TcpStream::connect(server.at).await.unwrap();
    stream.write_all(get("/metrics", "*/*").as_bytes()).await.unwrap();
    // Closed by the other side: nothing can be written any more.
    while stream.write_all(b" ").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.len() < 12 << 20, "{} bytes", rest.len());
}
