//! A modelled slow disk, so that what tiers of disk are worth can be measured on a machine
//! whose own disk is too fast to be waited for.
//!
//! ```text
//! tasks -> ext4 -> loop device, queue under BFQ -> FUSE file -> lrsctl __disk: one arm, memory
//! ```
//!
//! The block layer above is the kernel's own, so that its scheduler decides who is served by
//! the weights of the tasks' cgroups; a limit on bytes a second (blkio.throttle) would sit above
//! the scheduler and leave it nothing to decide. What a request costs is in [`model`]; the
//! server is a process of its own that a busy runtime of the bench cannot delay.
//!
//! Limits: no write cache (a flush costs nothing, a write is down when it is answered), no
//! distance between places, no command queue. The page cache of ext4 is as ever: what was read
//! or written lately is not read again. On cgroup v1 what the kernel writes back by itself is
//! nobody's; what fsync(2) writes is the task's own. The bytes take up memory.
//!
//! The settings of the device are BFQ's defaults and `rotational = 1`. Measured once each, on a
//! busy machine, with two writers of weights 1000 and 10 (80 MiB/s, 4 ms; Linux 6.18, cgroup v1):
//! direct requests of 256 KiB share 55:1 to 100:1, 4 KiB reads 70:1, files of 2 MiB with fsync
//! 2.5:1 to 5:1, of 16 MiB 2:1 to 3:1, for there the journal of the file system is in common.
//! `low_latency = 0` halves the first and ends the third; `slice_idle = 0` ends the second and
//! the third. `rotational = 0` and strict_guarantees made no difference beyond the spread.
//!
//! The one trace in the system is the mount. Loop device and FUSE mount are taken apart by the
//! kernel when the mount and the server are gone, in whichever order.

mod loops;
mod medium;
mod model;
mod place;
mod server;

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::cli::Failure;
use crate::rig::process::this_executable;
use crate::units::Bytes;

pub(crate) use place::describe_directory;
pub(crate) use server::serve;

/// The file system of the disk, in the working directory.
const MOUNT: &str = "disk";

/// Making the file system takes a fraction of a second.
const READY: Duration = Duration::from_secs(30);

/// How long the server may take to end; its own limit is below it.
const GONE: Duration = Duration::from_secs(8);

/// Which disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskSpec {
    /// Of the device; a file system has a little less.
    pub(crate) size_bytes: u64,
    /// Of all requests together.
    pub(crate) bandwidth_bytes_per_sec: u64,
    /// What a request costs that does not begin where the one before ended.
    pub(crate) seek: Duration,
    /// As in `queue/scheduler` of sysfs: `bfq`.
    pub(crate) scheduler: String,
}

/// A modelled disk; dropping it takes it down.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Root of its file system.
    pub(crate) mount: PathBuf,
    /// Name of the device in /sys/block and /proc/diskstats: `loop3`.
    pub(crate) device: String,
    spec: DiskSpec,
    /// Takes the disk down when dropped.
    _server: Server,
}

/// What the server says on its standard output: one line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Ready { device: String },
    Failed { message: String, hint: Option<String> },
}

impl Disk {
    /// Makes the disk and mounts it at `workdir/disk`. Blocks for a fraction of a second.
    pub(crate) fn make(spec: &DiskSpec, workdir: &Path) -> Result<Disk, Failure> {
        let mount = workdir.join(MOUNT);
        std::fs::create_dir(&mount).map_err(|error| {
            Failure::failed(format!("cannot create {}: {error}", mount.display()))
        })?;
        let mut server = Server::start(spec, &mount)?;
        let device = server.ready()?;
        Ok(Disk { mount, device, spec: spec.clone(), _server: server })
    }

    /// For the description of the machine.
    pub(crate) fn describe(&self) -> String {
        let DiskSpec { size_bytes, bandwidth_bytes_per_sec, seek, scheduler } = &self.spec;
        format!(
            "modelled: ext4 on {}, {}, {scheduler}; one request at a time, {}/s, and {} ms for \
             each that does not follow the one before; in memory",
            self.device,
            Bytes(*size_bytes),
            Bytes(*bandwidth_bytes_per_sec),
            seek.as_secs_f64() * 1e3,
        )
    }
}

/// The serving process and the pipe that keeps it.
#[derive(Debug)]
struct Server {
    child: Child,
    /// Closed at the latest when this process ends, however it ends; the server ends with it.
    keeps: Option<ChildStdin>,
    mount: PathBuf,
}

impl Server {
    fn start(spec: &DiskSpec, mount: &Path) -> Result<Server, Failure> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Failure::failed(format!("cannot {what} the modelled disk: {error}"))
        };
        let spec = serde_json::to_string(spec).map_err(|error| failed("describe", &error))?;
        let mut command = Command::new(this_executable());
        command.args(["__disk", "--spec", &spec, "--mount"]).arg(mount);
        // Ctrl-C is for the bench, which ends its tasks before it takes their disk away.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed("start", &error))?;
        let keeps = child.stdin.take();
        Ok(Server { child, keeps, mount: mount.to_owned() })
    }

    /// Waits for its word; the device.
    fn ready(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if let Some(stdout) = self.child.stdout.take() {
            let limit = Timespec::try_from(READY).ok();
            let answered = poll(
                &mut [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN)],
                limit.as_ref(),
            );
            if !answered.is_ok_and(|ready| ready > 0) {
                return Err(Failure::failed(format!(
                    "the modelled disk was not ready after {} s",
                    READY.as_secs()
                )));
            }
            // A line this short is written at once (pipe(7)).
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        match serde_json::from_str(&line) {
            Ok(Word::Ready { device }) => Ok(device),
            Ok(Word::Failed { message, hint: Some(hint) }) => {
                Err(Failure::failed(message).hint(hint))
            }
            Ok(Word::Failed { message, hint: None }) => Err(Failure::failed(message)),
            Err(_) => Err(Failure::failed("the modelled disk ended without a word")),
        }
    }
}

impl Drop for Server {
    /// Lets the server end by itself, for it waits until the device has let go; unmounts in its
    /// place where it cannot.
    fn drop(&mut self) {
        drop(self.keeps.take());
        let turn = Duration::from_millis(10);
        let mut turns = GONE.as_millis() / turn.as_millis();
        while turns > 0 && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(turn);
            turns -= 1;
        }
        // An ended process cannot be killed, and a mount that is gone cannot be detached.
        let _ = self.child.kill();
        let _ = unmount(&self.mount, UnmountFlags::DETACH);
        let _ = self.child.wait();
        let _ = std::fs::remove_dir(&self.mount);
    }
}

/// For a supervisor whose bench was killed, after the processes below it are gone: detaches the
/// disk of `workdir`, if there is one. Its device and its medium go by themselves.
pub(crate) fn sweep(workdir: &Path) -> Option<String> {
    let mount = workdir.join(MOUNT);
    // EINVAL: not a mount; ENOENT: no such directory (umount(2)).
    match unmount(&mount, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => None,
        // Who may not unmount could not mount.
        Err(rustix::io::Errno::PERM) => None,
        Err(error) => Some(format!("mount {} ({error})", mount.display())),
    }
}

#[cfg(test)]
mod tests;
