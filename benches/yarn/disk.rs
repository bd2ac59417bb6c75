//! The modelled slow disk of `lrs-bench`, under a cluster: that of the suite six-loads-slow. Its program
//! is beside lrsctl after `cargo build --release -p lrs-slow-disk`.
//!
//! It has the NodeManager's local directories and the data of the jobs. Before each run its files
//! are no longer in memory, and while it runs only [`DIRTY_BYTES`] of what is written may wait there:
//! on a node with its memory used by containers neither would be otherwise, and with this node's
//! page cache no job would ever meet its disk.
//!
//! Limits: on cgroup v1 what the kernel writes back by itself has no owner, and so no tier.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise, syncfs};
use serde::Deserialize;

use crate::cpus;

/// The suite that uses the disk.
const SUITE: &str = include_str!("../../config/bench/six-loads-slow.toml");

/// Pages of the disk that may wait to be written.
const DIRTY_BYTES: u64 = 64 << 20;

/// In the supervisor's directory.
const MOUNT: &str = "disk";

/// The server waits 5 s for those who have files open.
const GONE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Suite {
    disk: Spec,
}

#[derive(Deserialize)]
struct Spec {
    size: String,
    size_per_core: String,
    bandwidth: String,
    seek: String,
    scheduler: String,
}

impl Spec {
    fn read() -> Spec {
        toml::from_str::<Suite>(SUITE).expect("the suite's disk").disk
    }
}

/// The disk; it is there until it is dropped.
pub struct Disk {
    server: Child,
    mount: PathBuf,
    /// `loop3`.
    device: String,
}

/// For the description of the node.
pub fn describe() -> String {
    let Spec { bandwidth, seek, scheduler, .. } = Spec::read();
    format!(
        "modelled as in six-loads-slow: {bandwidth}/s, {seek} for each request that does not follow \
         the one before, {scheduler}; nothing in the page cache at first, at most {} MiB dirty",
        DIRTY_BYTES >> 20
    )
}

impl Disk {
    /// Makes and mounts it in the supervisor's directory.
    pub fn make() -> Disk {
        let spec = Spec::read();
        let seek = suffixed(&spec.seek, "ms");
        let size = (mib(&spec.size) + mib(&spec.size_per_core) * u64::from(cpus())) << 20;
        let mount = std::env::temp_dir().join(MOUNT);
        fs::create_dir_all(&mount).expect("a place for the disk");
        let program = Path::new(env!("CARGO_BIN_EXE_lrsctl")).with_file_name("lrs-slow-disk");
        let mut server = Command::new(&program)
            .args(["--size-bytes", &size.to_string()])
            .args(["--bandwidth-bytes-per-sec", &(mib(&spec.bandwidth) << 20).to_string()])
            .args(["--seek-micros", &(seek * 1000).to_string()])
            .args(["--scheduler", &spec.scheduler, "--mount"])
            .arg(&mount)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{}: {error}; cargo build --release -p lrs-slow-disk", program.display())
            });
        let mut word = String::new();
        let stdout = server.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut word).expect("the server's word");
        let device = word.trim().to_owned();
        assert!(!device.is_empty(), "no modelled disk; its error is above");
        let disk = Disk { server, mount, device };
        // strict_limit first: without it the other is a share of a limit that is not reached yet.
        disk.set("strict_limit", 1);
        disk.set("max_bytes", DIRTY_BYTES);
        disk
    }

    fn set(&self, name: &str, value: u64) {
        let file = Path::new("/sys/block").join(&self.device).join("bdi").join(name);
        fs::write(&file, value.to_string())
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// A new directory on it.
    pub fn fresh(&self) -> PathBuf {
        let named = tempfile::Builder::new().prefix("data-").tempdir_in(&self.mount);
        named.expect("a directory on the disk").keep()
    }

    /// Writes out what is to be written, and takes all of its files out of memory.
    pub fn forget_pages(&self) {
        syncfs(File::open(&self.mount).expect("the disk")).expect("syncfs");
        let mut dirs = vec![self.mount.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in there(fs::read_dir(&dir)).into_iter().flatten() {
                let Some(entry) = there(entry) else { continue };
                let Some(kind) = there(entry.file_type()) else { continue };
                if kind.is_dir() {
                    dirs.push(entry.path());
                } else if kind.is_file()
                    && let Some(file) = there(File::open(entry.path()))
                {
                    fadvise(&file, 0, None, Advice::DontNeed).expect("fadvise");
                }
            }
        }
    }

    /// For how long it has had requests since it was made: `io_ticks` of the kernel's
    /// Documentation/block/stat.rst.
    pub fn busy(&self) -> Duration {
        let path = Path::new("/sys/block").join(&self.device).join("stat");
        let text = fs::read_to_string(&path).expect("the disk's counters");
        let ticks = text.split_whitespace().nth(9).and_then(|word| word.parse().ok());
        Duration::from_millis(ticks.expect("io_ticks"))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        // It takes the disk down and ends, within its own limit.
        self.server.wait().expect("the server of the disk");
    }
}

/// For the supervisor: waits until the server, which ends after the process that had it, has taken
/// its disk away.
pub fn await_gone(scratch: &Path) {
    let mount = scratch.join(MOUNT);
    let began = Instant::now();
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let needle = format!(" {} ", mount.display());
    while mounts().contains(&needle) {
        if began.elapsed() > GONE {
            eprintln!("left behind: a disk at {}", mount.display());
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A NodeManager goes on removing what an application had after its end.
fn there<T>(read: io::Result<T>) -> Option<T> {
    match read {
        Ok(found) => Some(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => panic!("the modelled disk: {error}"),
    }
}

fn mib(words: &str) -> u64 {
    suffixed(words, "MiB")
}

fn suffixed(words: &str, unit: &str) -> u64 {
    let number = words.strip_suffix(unit).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{words} of the suite's disk is not in {unit}"))
}
