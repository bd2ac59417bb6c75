//! The modelled slow disk of a suite with `[disk]`.
//!
//! The disk is a program of its own, `lrs-slow-disk` (`tests/slow-disk` of the source), a test program
//! that no package has. Here is what starts it, watches it and takes away what it leaves: the bench
//! itself makes no file system and no device.
//!
//! Two traces of it in the system outlast a server that was killed: the mount, and the scheduler,
//! which a loop device keeps when it is taken apart and would bring to its next user. Whoever
//! holds the server takes both away, and so does the sweep ([`sweep`]). A server
//! killed in the moment between choosing the scheduler and mounting leaves the scheduler.

mod place;

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lrs_testbed::sweep::{children, end_processes};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use procfs::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};
use tokio::time::Instant;

use crate::lrs::beside_or_in_path;
use lrs_core::units::Bytes;
use lrs_term::Failure;

pub(crate) use place::describe_directory;

/// The program that serves the disk.
const PROGRAM: &str = "lrs-slow-disk";

/// The file system of the disk, in the working directory.
const MOUNT: &str = "disk";

/// Making the file system takes a fraction of a second.
const READY: Duration = Duration::from_secs(30);

/// How long the server may take to end; its own limit is below it.
const GONE: Duration = Duration::from_secs(8);

/// Which disk.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    server: Server,
}

/// The program that serves a modelled disk.
///
/// # Errors
/// It is not there.
pub(crate) fn program() -> Result<PathBuf, Failure> {
    beside_or_in_path(PROGRAM).ok_or_else(|| {
        Failure::failed(format!(
            "the suite has a modelled disk, and {PROGRAM} is neither beside this program nor in PATH"
        ))
        .hint(format!(
            "it is a test program of LRS's source: cargo build --release -p {PROGRAM}; nothing was run"
        ))
    })
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
        Ok(Disk { mount, device, spec: spec.clone(), server })
    }

    /// Says so when the server has ended, for what is measured then is an error of the disk.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.server.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Failure::failed(format!(
                "the server of the modelled disk has ended ({status}), and with it the bench"
            ))
            .hint("the kernel's log says whether it was short of memory")),
            Err(error) => Err(Failure::failed(format!(
                "cannot tell whether the modelled disk is still served: {error}"
            ))),
        }
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
        let mut command = Command::new(program()?);
        command.args(["--size-bytes", &spec.size_bytes.to_string()]);
        command.args(["--bandwidth-bytes-per-sec", &spec.bandwidth_bytes_per_sec.to_string()]);
        command.args(["--seek-micros", &spec.seek.as_micros().to_string()]);
        // The mount is the last word, by which a server is known (`is_server`).
        command.args(["--scheduler", &spec.scheduler, "--mount"]).arg(mount);
        // Ctrl-C is for the bench, which ends its tasks before it takes their disk away.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| Failure::failed(format!("cannot start the modelled disk: {error}")))?;
        let keeps = child.stdin.take();
        Ok(Server { child, keeps, mount: mount.to_owned() })
    }

    /// Waits until it prints its device, a line.
    fn ready(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if let Some(stdout) = self.child.stdout.take() {
            if !readable(&stdout, READY)? {
                return Err(Failure::failed(format!(
                    "the modelled disk was not ready after {} s",
                    READY.as_secs()
                )));
            }
            // A line this short is written at once (pipe(7)).
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        let device = line.trim();
        if device.is_empty() {
            return Err(Failure::failed(format!("{PROGRAM} made no disk; its error is above")));
        }
        Ok(device.to_owned())
    }
}

/// Whether there is something to read within `limit`, be it the end.
fn readable(stdout: &ChildStdout, limit: Duration) -> Result<bool, Failure> {
    let begun = Instant::now();
    loop {
        let left = Timespec::try_from(limit.saturating_sub(begun.elapsed())).ok();
        let mut watched = [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN)];
        match poll(&mut watched, left.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(Failure::failed(format!(
                    "cannot wait for the modelled disk: poll: {error}"
                )));
            }
        }
    }
}

impl Drop for Server {
    /// Lets the server end by itself, for it waits until the device is released; takes the disk
    /// down in its place where it cannot.
    fn drop(&mut self) {
        drop(self.keeps.take());
        wait_while(|| matches!(self.child.try_wait(), Ok(None)));
        // An ended process cannot be killed, and a mount that is gone cannot be detached.
        let _ = self.child.kill();
        // The sweep tries what failed again, and tells.
        let _ = take_down(&self.mount);
        let _ = self.child.wait();
        let _ = std::fs::remove_dir(&self.mount);
    }
}

/// For a supervisor after its bench was killed: lets the server of its modelled disk take the disk
/// down and end by itself. What waits for that disk cannot be ended before it is answered, so
/// the server is the last that is killed, and only when it took too long.
pub(crate) fn release(workdir: &Path) {
    let is_ours = |pid: &Pid| is_server(pid.as_raw(), workdir);
    let mut servers: Vec<Pid> = children().into_iter().filter(is_ours).collect();
    if servers.is_empty() {
        return;
    }
    let kept: Vec<u32> =
        servers.iter().filter_map(|pid| u32::try_from(pid.as_raw()).ok()).collect();
    // What is left then is reported when the server is gone too.
    let _ = end_processes(&kept);
    wait_while(|| {
        servers.retain(|server| {
            matches!(waitpid(*server, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive))
        });
        !servers.is_empty()
    });
}

/// While a server ends, [`GONE`] at most.
fn wait_while(mut runs: impl FnMut() -> bool) {
    let begun = Instant::now();
    while runs() && begun.elapsed() < GONE {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether process `pid` serves the disk of `workdir`. One that has ended serves nothing.
fn is_server(pid: i32, workdir: &Path) -> bool {
    let mount = workdir.join(MOUNT);
    let words = Process::new(pid).and_then(|process| process.cmdline());
    words.is_ok_and(|words| {
        words.first().is_some_and(|word| Path::new(word).file_name() == Some(PROGRAM.as_ref()))
            && words.last().is_some_and(|word| Path::new(word) == mount)
    })
}

/// For a supervisor after its bench was killed and the processes below it are gone: detaches the
/// disk of `workdir`, if there is one, and answers what it could not. Its device and its medium
/// go by themselves.
pub(crate) fn sweep(workdir: &Path) -> Vec<String> {
    take_down(&workdir.join(MOUNT))
}

/// Takes away what a killed server leaves; answers what stays. Nothing is there in most cases.
fn take_down(mount: &Path) -> Vec<String> {
    let mut left = Vec::new();
    // Before the mount goes, which proves which device it is.
    if let Some(scheduler) = place::scheduler_of_loop(mount)
        && let Err(error) = std::fs::write(&scheduler, "none")
    {
        left.push(format!("the scheduler in {} ({error})", scheduler.display()));
    }
    // EINVAL: not a mount; ENOENT: no such directory (umount(2)).
    match unmount(mount, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
        // Who may not unmount could not mount.
        Err(rustix::io::Errno::PERM) => {}
        Err(error) => left.push(format!("mount {} ({error})", mount.display())),
    }
    left
}

#[cfg(test)]
mod tests;
