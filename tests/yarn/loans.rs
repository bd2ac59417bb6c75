//! Reduces that wait for maps hold active slots, for MapReduce starts them after 5 % of the maps
//! (`mapreduce.job.reduce.slowstart.completedmaps`), and lend them to maps that compute.
//!
//! It prints what docs/experiments/loans.md has of the same job with and without loans, beside a
//! service outside LRS, and asserts only whether there are loans. `LRS_ROUNDS`: how often both are tried.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lrs::clock::thread_cpu_time;

use crate::cluster::Cluster;
use crate::conf::Options;
use crate::frameworks::submit_streaming;
use crate::jobs::{Job, Words, text_of};
use crate::shaped::TWO;
use crate::site::Site;

const MAPS: u32 = 24;

const REDUCES: u32 = 3;

/// The master, the reduces, and four maps at a time.
const CONTAINERS: u32 = 8;

/// How often the tasks are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A job that takes longer is stuck.
const LONGEST: Duration = Duration::from_secs(600);

/// What a request to the service computes, and how long each of its threads pauses after one: two
/// thirds of a CPU.
const REQUEST: Duration = Duration::from_millis(8);
const PAUSE: Duration = Duration::from_millis(4);

/// A service with a thread for each CPU, in the group of this test.
struct Service {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u32>>,
    begun: Instant,
}

impl Service {
    fn start() -> Service {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = std::thread::available_parallelism().expect("the number of CPUs").get();
        let thread = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut served = 0;
                while !stop.load(Ordering::Relaxed) {
                    let until = thread_cpu_time() + REQUEST;
                    while thread_cpu_time() < until {}
                    served += 1;
                    // The load itself: a server between two requests.
                    std::thread::sleep(PAUSE);
                }
                served
            })
        };
        Service { threads: (0..cpus).map(thread).collect(), stop, begun: Instant::now() }
    }

    /// Requests a second of all threads.
    fn end(mut self) -> f64 {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        let served = self.threads.drain(..).map(|thread| thread.join().expect("a thread"));
        f64::from(served.sum::<u32>()) / seconds
    }
}

/// A test that fails leaves no thread that computes beside the next one.
impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What a job took, and what was found of its tasks.
#[derive(Default)]
struct Figures {
    seconds: f64,
    requests: f64,
    /// Looks at running maps beside reduces.
    looks: u32,
    /// Those of them with an active map.
    active: u32,
    /// With a map that borrows and a reduce that lends.
    on_loan: u32,
}

fn submit(cluster: &mut Cluster, words: &Words) -> (Job, PathBuf) {
    let compute = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done";
    let map = format!("{compute}\ntr -s ' ' '\\n' | sed '/^$/d'");
    let out = cluster.fresh("counts");
    let job = submit_streaming(cluster, &[], &[], words, &map, REDUCES, &out);
    (job, out)
}

fn run(site: &mut Site, words: &Words) -> Figures {
    let service = Service::start();
    let begun = Instant::now();
    let (mut job, out) = submit(&mut site.cluster, words);
    let mut figures = Figures::default();
    while job.runs() {
        assert!(begun.elapsed() < LONGEST, "the job runs longer than {LONGEST:?}");
        let tasks = site.daemon.tasks();
        let of = |kind: &'static str| tasks.iter().filter(move |task| task["kind"] == kind);
        let any = |kind, key: &str| of(kind).any(|task| task[key] == true);
        if of("map").next().is_some() && of("reduce").next().is_some() {
            figures.looks += 1;
            figures.active += u32::from(of("map").any(|task| task["tier"] == "active"));
            let lent = any("map", "loan") && any("reduce", "lends");
            figures.on_loan += u32::from(lent);
        }
        // What is measured are samples at even distances.
        std::thread::sleep(LOOK);
    }
    figures.seconds = begun.elapsed().as_secs_f64();
    figures.requests = service.end();
    job.succeeded(&site.cluster);
    words.check_counts(&text_of(&out));
    site.nothing_left();
    figures
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and streaming"]
fn reduces_that_wait_lend_their_slots_to_maps() {
    let options = Options { containers: CONTAINERS, ..Options::default() };
    let site = &mut Site::start("loans", options, TWO, "");
    let words = Words::write(&site.cluster.fresh("words"), MAPS, 500);
    let alone = Service::start();
    // The time over which its requests are counted.
    std::thread::sleep(Duration::from_secs(5));
    println!("the service alone: {:.1} requests a second", alone.end());
    let rounds = std::env::var("LRS_ROUNDS").map_or(1, |text| text.parse().expect("a number"));
    assert!(rounds > 0, "LRS_ROUNDS is 0");
    for round in 0..rounds {
        for lend in [round % 2 == 0, round % 2 != 0] {
            site.reload(&format!("{TWO}\nlend = {lend}"), "");
            let Figures { seconds, requests, looks, active, on_loan } = run(site, &words);
            println!(
                "lend = {lend}: {seconds:.1} s; the service {requests:.1} requests a second; of \
                 {looks} looks at maps beside reduces {active} with an active map, {on_loan} with \
                 one on loan"
            );
            assert!(looks > 0, "reduces came after the last map");
            assert_eq!(on_loan > 0, lend, "{lend}: {}", site.daemon.log());
        }
    }
}
