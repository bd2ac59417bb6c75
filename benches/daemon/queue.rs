//! What it costs to list a full node and a long queue.

use std::path::PathBuf;
use std::time::Duration;

use lrs::clock::boot_time;
use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use tonic::transport::Endpoint;

use crate::node::Node;
use crate::{Effort, cost, section};
use lrs_bench::stats::Spread;

/// Requests that wait on one connection.
const STREAMS: usize = 100;

pub fn run(effort: Effort) {
    let (tasks, waiters, times) = effort.pick((2_000, 10_000, 20), (50, 200, 3));
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

    println!("| what | median ms | p99 ms | daemon CPU ms |\n|---|---|---|---|");
    let page = || proto::ListQueueRequest::default();
    row(&node, "ListQueue, the first page of 1,000", times, &|node| {
        node.rpc().call(async |mut client| client.list_queue(page()).await);
    });
    for (name, command) in [("lrsctl queue", "queue"), ("lrsctl tasks", "tasks")] {
        row(&node, name, times, &|node| {
            let listed = node.ctl(&[command]).output().expect("lrsctl runs");
            assert!(listed.status.success(), "{listed:?}");
        });
    }
    node.end_all();
}

fn row(node: &Node, name: &str, times: u32, what: &dyn Fn(&Node)) {
    let cpu = cost::cpu_of(node.pid());
    let readings: Vec<Duration> = (0..times)
        .map(|_| {
            let begun = boot_time();
            what(node);
            boot_time().since(begun)
        })
        .collect();
    let cpu = (cost::cpu_of(node.pid()) - cpu).as_secs_f64() * 1e3 / f64::from(times);
    let spread = Spread::millis(&readings).expect("readings");
    println!("| {name} | {:.1} | {:.1} | {cpu:.1} |", spread.median(), spread.quantile(0.99));
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
