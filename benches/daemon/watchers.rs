//! A thousand clients that watch the status, each on a connection of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use lrs::clock::boot_time;
use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use tonic::transport::Endpoint;

use crate::node::Node;
use crate::{Effort, cost, section};
use lrs_bench::stats::Spread;

/// Changes have to reach a watcher within this, or it has fallen behind.
const BEHIND: Duration = Duration::from_secs(2);

pub fn run(effort: Effort) {
    let (watchers, changes) = effort.pick((1_000, 100), (50, 10));
    section(&format!("{watchers} watchers, {changes} changes"));
    lrs::kernfs::files::raise_descriptor_limit().expect("the limit of descriptors");
    let mut node = Node::start("slots.expand = false\nslots.passive = 2000");
    node.nest(100);
    let seen: Arc<Vec<AtomicU32>> = Arc::new((0..watchers).map(|_| AtomicU32::new(0)).collect());
    let connected = Arc::new(AtomicUsize::new(0));
    let (socket, seen_by, counted) = (node.socket(), Arc::clone(&seen), Arc::clone(&connected));
    // Ends with the benchmark; its streams end with the daemon.
    std::thread::spawn(move || watch_all(socket, &seen_by, &counted));
    node.until(|_| connected.load(Ordering::Relaxed) == watchers);

    // Each change is one more reservation, so a watcher that saw the n-th saw all before.
    let mut times = Vec::new();
    let mut behind = 0;
    let cpu = cost::cpu_of(node.pid());
    for change in 1..=changes {
        let request = proto::ReserveRequest { ttl_ms: Some(600_000), ..Default::default() };
        let begun = boot_time();
        node.rpc().call(async |mut client| client.reserve(request).await);
        let late = || seen.iter().filter(|seen| seen.load(Ordering::Relaxed) < change).count();
        while late() > 0 && boot_time().since(begun) < BEHIND {
            std::thread::sleep(Duration::from_micros(200));
        }
        behind += late();
        times.push(boot_time().since(begun));
    }
    let cpu = (cost::cpu_of(node.pid()) - cpu).as_secs_f64() * 1e3 / f64::from(changes);
    let spread = Spread::millis(&times).expect("readings");
    println!(
        "| until the last watcher has it: median ms | p99 ms | fallen behind | daemon CPU per change ms |"
    );
    println!("|---|---|---|---|");
    println!("| {:.1} | {:.1} | {behind} | {cpu:.1} |", spread.median(), spread.quantile(0.99));
    node.end_all();
}

fn watch_all(socket: PathBuf, seen: &Arc<Vec<AtomicU32>>, connected: &Arc<AtomicUsize>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    for watcher in 0..seen.len() {
        let uri = format!("unix:{}", socket.display());
        let (seen, connected) = (Arc::clone(seen), Arc::clone(connected));
        local.spawn_local(async move {
            let endpoint = Endpoint::from_shared(uri).expect("an address");
            let channel = endpoint.connect().await.expect("lrsd listens");
            let request = proto::WatchStatusRequest {};
            let stream = ShaperClient::new(channel).watch_status(request).await;
            let mut stream = stream.expect("a stream").into_inner();
            connected.fetch_add(1, Ordering::Relaxed);
            // The daemon's end is the stream's.
            while let Ok(Some(status)) = stream.message().await {
                let slots = status.slots.unwrap_or_default();
                let reserved = slots.active.unwrap_or_default().reserved
                    + slots.passive.unwrap_or_default().reserved;
                seen[watcher].store(reserved, Ordering::Relaxed);
            }
        });
    }
    runtime.block_on(local);
}
