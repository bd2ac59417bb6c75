//! What it costs to list a full node and a long queue, and whether promotion waits for it.
//!
//! Limit: each request that waits is a call, and lrsd takes 8,192 of them at once.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lrs::clock::boot_time;
use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use rustix::process::Signal;
use tonic::transport::Endpoint;

use crate::client::Rpc;
use crate::harness::signal;
use crate::node::{Files, Node};
use crate::promotion::{Exits, Weights};
use crate::{Effort, cost, section};
use lrs_bench::stats::Spread;

/// Requests that wait on one connection.
const STREAMS: usize = 100;

pub fn run(effort: Effort) {
    let (tasks, waiters, times) = effort.pick((2_000, 8_000, 60), (50, 200, 3));
    section(&format!("{tasks} tasks and {waiters} requests that wait, listed {times} times"));
    lrs::kernfs::files::raise_descriptor_limit().expect("the limit of descriptors");
    let mut node = Node::start(&format!(
        "slots.active = 1\nslots.expand = false\nslots.passive = {}",
        tasks - 1
    ));
    node.nest(tasks);
    let socket = node.socket();
    // Ends with the benchmark.
    std::thread::spawn(move || wait_all(socket, waiters));
    node.until(|node| node.rpc().status().waiting as usize == waiters);

    println!(
        "| what | median ms | p99 ms | daemon CPU ms | of it the loop |\n|---|---|---|---|---|"
    );
    row(&node, "ListQueue, the first page of 1,000", times, &|node| {
        timed(|| first_page(node.rpc()))
    });
    for (name, command) in [("lrsctl queue", "queue"), ("lrsctl tasks", "tasks")] {
        row(&node, name, times, &|node| {
            timed(|| {
                let listed = node.ctl(&[command]).output().expect("lrsctl runs");
                assert!(listed.status.success(), "{listed:?}");
            })
        });
    }
    promotions(&node, times, "promotion, nothing listed");
    let stop = Arc::new(AtomicBool::new(false));
    let lister = |socket: PathBuf, stop: Arc<AtomicBool>| {
        let rpc = Rpc::connect(&socket).expect("lrsd answers");
        while !stop.load(Ordering::Relaxed) {
            first_page(&rpc);
        }
    };
    let listers: Vec<_> = (0..2)
        .map(|_| {
            let (socket, stop) = (node.socket(), Arc::clone(&stop));
            std::thread::spawn(move || lister(socket, stop))
        })
        .collect();
    promotions(&node, times, "promotion, two clients list the first page without a pause");
    stop.store(true, Ordering::Relaxed);
    for lister in listers {
        lister.join().expect("a client that lists");
    }
    node.end_all();
}

/// From the end of an active task to the weights of its successor.
fn promotions(node: &Node, times: u32, name: &str) {
    let (ends, weights) = (Exits::start(), Weights::start());
    let tasks = node.rpc().tasks();
    let active = tasks.iter().find(|task| task.tier == i32::from(proto::Tier::Active));
    let last = Cell::new(active.and_then(|task| task.pid).expect("an active task"));
    // In the order of admission, which is that of promotion.
    let passive = tasks.iter().filter(|task| task.tier == i32::from(proto::Tier::Passive));
    let passive = RefCell::new(passive);
    row(node, name, times, &|_| {
        let next = passive.borrow_mut().next().expect("a passive task");
        let watch = weights.watch(&Files::of(next));
        let pid = last.replace(next.pid.expect("a pid"));
        ends.arm(pid);
        signal(pid, Signal::KILL);
        let ended = ends.ended();
        weights.changed(watch).since(ended)
    });
    node.until(|node| {
        let tasks = node.rpc().tasks();
        let is_last = |task: &proto::Task| task.pid == Some(last.get());
        tasks.iter().any(|task| is_last(task) && task.tier == i32::from(proto::Tier::Active))
    });
}

fn first_page(rpc: &Rpc) {
    let request = proto::ListQueueRequest::default();
    rpc.call(async |mut client| client.list_queue(request).await);
}

/// How long it took.
fn timed(what: impl FnOnce()) -> Duration {
    let begun = boot_time();
    what();
    boot_time().since(begun)
}

fn row(node: &Node, name: &str, times: u32, what: &dyn Fn(&Node) -> Duration) {
    let spent = || (cost::cpu_of(node.pid()), cost::loop_cpu_of(node.pid()));
    let (all, of_loop) = spent();
    let readings: Vec<Duration> = (0..times).map(|_| what(node)).collect();
    let (all, of_loop) = (spent().0.saturating_sub(all), spent().1.saturating_sub(of_loop));
    let each = |spent: Duration| spent.as_secs_f64() * 1e3 / f64::from(times);
    let spread = Spread::millis(&readings).expect("readings");
    println!(
        "| {name} | {:.1} | {:.1} | {:.1} | {:.1} |",
        spread.median(),
        spread.quantile(0.99),
        each(all),
        each(of_loop)
    );
}

fn wait_all(socket: PathBuf, waiters: usize) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..waiters.div_ceil(STREAMS) {
            let uri = format!("unix:{}", socket.display());
            let endpoint = Endpoint::from_shared(uri).expect("an address");
            let channel = endpoint.connect().await.expect("lrsd listens");
            for _ in 0..STREAMS {
                let mut client = ShaperClient::new(channel.clone());
                waiting.spawn(async move {
                    let request =
                        proto::ReserveRequest { wait_forever: true, ..Default::default() };
                    // The daemon's end is the request's.
                    drop(client.reserve(request).await);
                });
            }
        }
        while waiting.join_next().await.is_some() {}
    });
}
