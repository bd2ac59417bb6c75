//! `lrs-slow-disk`: a modelled slow disk, so that what tiers of disk are worth can be measured on a
//! machine with a disk of its own that is too fast to be waited for.
//!
//! ```text
//! tasks -> ext4 -> loop device, queue under BFQ -> FUSE file -> lrs-slow-disk: one arm, memory
//! ```
//!
//! It makes everything, prints the name of its device in one line (`loop3`), and takes everything
//! down when its standard input ends or a signal asks it to. `lrs-bench` starts it for a suite with
//! `[disk]`; it is a process of its own, which a busy bench cannot delay, and a test program: no
//! package has it. As root:
//!
//! ```text
//! cargo build --release -p lrs-slow-disk
//! target/release/lrs-slow-disk --size-bytes 1073741824 --bandwidth-bytes-per-sec 83886080 \
//!     --seek-micros 4000 --mount /mnt
//! ```
//!
//! The block layer above is the kernel's own, so that its scheduler decides who is served by
//! the weights of the tasks' cgroups; a limit on bytes a second (blkio.throttle) would sit above
//! the scheduler and leave it nothing to decide. What a request costs is in [`model`].
//!
//! Limits: no write cache (a flush costs nothing, a write is down when it is answered), no
//! distance between places, no command queue. The page cache of ext4 is as ever: what was read
//! or written lately is not read again. On cgroup v1 what the kernel writes back by itself is
//! of no task; what fsync(2) writes is the task's own. The bytes take up memory.
//!
//! The settings of the device are BFQ's defaults and `rotational = 1`. Measured once each, on a
//! busy machine, with two writers of weights 1000 and 10 (80 MiB/s, 4 ms; Linux 6.18, cgroup v1):
//! direct requests of 256 KiB share 55:1 to 100:1, 4 KiB reads 70:1, files of 2 MiB with fsync
//! 2.5:1 to 5:1, of 16 MiB 2:1 to 3:1, for there the journal of the file system is in common.
//! `low_latency = 0` halves the first and ends the third; `slice_idle = 0` ends the second and
//! the third. `rotational = 0` and strict_guarantees made no difference beyond the spread.
//!
//! Two traces of it in the system outlast a server that was killed: the mount, and the scheduler,
//! which a loop device keeps when it is taken apart and would bring to its next user. `lrs-bench`
//! takes both away. Loop device and FUSE mount are taken apart by the kernel when mount and server
//! are gone, in whichever order. A server killed in the moment between choosing the scheduler and
//! mounting leaves the scheduler.

mod loops;
mod medium;
mod model;
mod room;

use std::convert::Infallible;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use clap::Parser;
use lrs_core::units::Bytes;
use lrs_term::{Failure, Output};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use loops::{LoopDevice, Scheduled};
use medium::{Medium, Mounted};
use model::Arm;
use room::enough_memory;

/// How long a task that still has files on the disk may hold it up.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// A modelled slow disk with ext4, in memory: for tests and suites of lrs-bench, as root
///
/// Prints the name of its block device when the disk is mounted, and takes it down when standard
/// input ends or on SIGINT, SIGTERM and SIGHUP.
#[derive(Parser)]
#[command(name = "lrs-slow-disk", version)]
struct DiskArgs {
    /// Size of the device; a file system has a little less
    #[arg(long, value_name = "N")]
    size_bytes: u64,
    /// Of all requests together
    #[arg(long, value_name = "N")]
    bandwidth_bytes_per_sec: u64,
    /// What a request costs that does not begin where the one before ended
    #[arg(long, value_name = "N", default_value_t = 0)]
    seek_micros: u64,
    /// As in queue/scheduler of sysfs
    #[arg(long, value_name = "NAME", default_value = "bfq")]
    scheduler: String,
    /// Where to mount its file system
    #[arg(long, value_name = "DIR")]
    mount: PathBuf,
}

fn main() -> ExitCode {
    match serve(&DiskArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report("lrs-slow-disk");
            failure.exit()
        }
    }
}

/// Serves the disk until standard input ends or a signal comes.
fn serve(args: &DiskArgs) -> Result<(), Failure> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    // Before there is a second thread, which inherits the mask.
    let signals = signals
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC))
        .map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))?;
    let disk = make(args)?;
    let mut out = Output::stdout(false);
    let written = out.line(&disk.device).and_then(|()| Ok(out.flush()?));
    if written.is_ok() {
        wait(&signals);
    }
    disk.take_down();
    written
}

/// Until standard input ends or a signal comes.
fn wait(signals: &SignalFd) {
    let stdin = std::io::stdin();
    let mut watched = [
        PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
    ];
    while poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
}

/// The disk as it stands.
struct Made<'a> {
    device: String,
    mount: &'a Path,
    timed: std::sync::Arc<std::sync::atomic::AtomicBool>,
    released: Receiver<Infallible>,
    scheduled: Scheduled,
}

fn make(args: &DiskArgs) -> Result<Made<'_>, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::failed("a modelled disk is mounted, which takes root")
            .hint("run it as root, or a suite without [disk]"));
    }
    enough_memory(Bytes(args.size_bytes))?;
    let (sender, released) = channel();
    let arm = Arm::new(args.bandwidth_bytes_per_sec, Duration::from_micros(args.seek_micros));
    let Mounted { file, timed } = Medium::mount(args.size_bytes, arm, sender).map_err(|error| {
        Failure::failed(format!("cannot make the modelled disk: {error}"))
            .hint("it needs FUSE (CONFIG_FUSE_FS, /dev/fuse) and Linux 5.8 or later")
    })?;
    let device = LoopDevice::bind(&file)?;
    // From here on only the device holds the medium.
    drop(file);
    let scheduled = device.schedule_by(&args.scheduler)?;
    format(&device)?;
    let options = c"noinit_itable";
    let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
    mount(device.path(), &args.mount, "ext4", flags, options).map_err(|error| {
        Failure::failed(format!(
            "cannot mount {} at {}: {error}",
            device.path().display(),
            args.mount.display()
        ))
    })?;
    let name = device.name.clone();
    device.leave();
    timed.store(true, Ordering::Relaxed);
    Ok(Made { device: name, mount: &args.mount, timed, released, scheduled })
}

impl Made<'_> {
    /// Dirty pages are written out at once, without the arm.
    fn take_down(self) {
        self.timed.store(false, Ordering::Relaxed);
        // While the device is surely still ours.
        drop(self.scheduled);
        // Another may have unmounted it.
        let _ = unmount(self.mount, UnmountFlags::DETACH);
        // Who still has a file open gets errors from here on.
        match self.released.recv_timeout(RELEASE_TIMEOUT) {
            Ok(never) => match never {},
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
        }
    }
}

/// ext4 with everything initialised, so that no kernel thread writes later.
fn format(device: &LoopDevice) -> Result<(), Failure> {
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-m", "0"]);
    command.args(["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]);
    command.arg(device.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let done = command.output().map_err(|error| {
        Failure::failed(format!("cannot run mkfs.ext4: {error}"))
            .hint("it is in the package e2fsprogs; PATH may lack /usr/sbin")
    })?;
    if done.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&done.stderr);
    Err(Failure::failed(format!("mkfs.ext4 failed ({}): {}", done.status, message.trim())))
}

#[cfg(test)]
mod tests;
