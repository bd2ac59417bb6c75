//! One run: a job from its submission to its end, and what the node did meanwhile.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::disk::Disk;
use crate::loads::{Prepared, Running};
use crate::record::{Run, Turn};
use crate::rest;

/// How often containers are counted. Each count reads a few small files for each.
const LOOK: Duration = Duration::from_millis(250);

/// A job that takes longer is stuck.
const LONGEST: Duration = Duration::from_secs(900);

/// Runs and checks one. Nothing of it is left when it returns.
///
/// On the slow disk everything is read from the disk, and not from what an earlier run has left in
/// memory.
pub fn run(
    turn: &Turn,
    cluster: &mut Cluster,
    prepared: &mut Prepared,
    disk: Option<&Disk>,
) -> Run {
    prepared.prepare(turn.load, cluster);
    emptied(cluster);
    let daemon = turn.setting.enter(cluster);
    disk.inspect(|disk| disk.forget_pages());
    let served = disk.map(Disk::busy);
    let cpu = CpuTime::now();
    let began = Instant::now();
    let mut running = prepared.start(turn.load, cluster);
    let containers_most = watch(&mut running, cluster, began);
    let client = began.elapsed();
    let [busy, waiting, stolen] = CpuTime::now().shares_since(&cpu);
    let served = disk.zip(served).map(|(disk, before)| disk.busy().saturating_sub(before));
    let done = running.succeeded(cluster);
    let seconds = elapsed(cluster, &done.ended.application()).as_secs_f64();
    emptied(cluster);
    turn.setting.leave(cluster, daemon);
    prepared.check(&done, cluster);
    Run {
        scheduler: turn.scheduling,
        load: turn.load,
        setting: turn.setting.name().to_owned(),
        round: turn.round,
        place: turn.place,
        seconds,
        client_seconds: client.as_secs_f64(),
        containers_most,
        cpu_busy: busy,
        cpu_iowait: waiting,
        cpu_stolen: stolen,
        disk_busy: served.map(|time| time.as_secs_f64() / client.as_secs_f64()),
    }
}

/// A master lives on for seconds after its application has ended, and its files a moment longer:
/// the next run is not to pay for their removal.
fn emptied(cluster: &Cluster) {
    cluster.patiently("the end of all containers", |c| c.containers().is_empty().then_some(()));
    cluster.patiently("the removal of their files", |c| {
        let users = c.local_dir(0).join("usercache");
        let applications =
            |user: PathBuf| fs::read_dir(user.join("appcache")).into_iter().flatten();
        let users = fs::read_dir(users).into_iter().flatten().flatten();
        (users.flat_map(|user| applications(user.path())).count() == 0).then_some(())
    });
}

/// Waits for the client's end; answers the most containers seen at a time.
fn watch(running: &mut Running, cluster: &Cluster, began: Instant) -> usize {
    let mut most = 0;
    while running.job.runs() {
        assert!(began.elapsed() < LONGEST, "a job runs longer than {LONGEST:?}");
        most = most.max(cluster.containers().len());
        std::thread::sleep(LOOK);
    }
    most
}

/// From the submission to the end of an application, as the ResourceManager has it.
fn elapsed(cluster: &Cluster, application: &str) -> Duration {
    let address = format!("{}/ws/v1/cluster/apps/{application}", cluster.manager_url());
    // The client hears from the master, which ends a moment before the ResourceManager knows.
    let millis = cluster.patiently("a finished application", |_| {
        let answer = rest::get(&address)?;
        let app = &answer["app"];
        assert!(app["finalStatus"] != "FAILED" && app["finalStatus"] != "KILLED", "{app}");
        let number = |key: &str| app[key].as_u64().filter(|&number| number > 0);
        number("finishedTime")?.checked_sub(number("startedTime")?)
    });
    Duration::from_millis(millis)
}

/// CPU time of the whole node in clock ticks: proc_stat(5).
struct CpuTime {
    all: u64,
    idle: u64,
    waiting: u64,
    stolen: u64,
}

impl CpuTime {
    fn now() -> CpuTime {
        let text = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
        let line = text.lines().next().unwrap_or_default();
        // Time of guests is in that of user and nice already.
        let fields: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
        let all = fields.iter().sum();
        CpuTime { all, idle: fields[3], waiting: fields[4], stolen: fields[7] }
    }

    /// Busy, idle with a thread that waits for a disk, and taken by the hypervisor.
    fn shares_since(&self, before: &CpuTime) -> [f64; 3] {
        let all = (self.all - before.all).max(1) as f64;
        // The kernel takes iowait back at times.
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / all;
        let (idle, waiting) = (share(self.idle, before.idle), share(self.waiting, before.waiting));
        let stolen = share(self.stolen, before.stolen);
        [(1.0 - idle - waiting - stolen).max(0.0), waiting, stolen]
    }
}
