//! `lrsctl __disk`: the process that is the modelled disk.
//!
//! It makes everything, says so in one line, and takes everything down when its standard input
//! ends or a signal asks it to.

use std::convert::Infallible;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::loops::{LoopDevice, Scheduled};
use super::medium::{Medium, Mounted};
use super::model::Arm;
use super::room::enough_memory;
use super::{DiskSpec, Word};
use lrs_term::{Failure, Output};

use crate::args::DiskArgs;
use lrs_core::units::Bytes;

/// How long a task that still has files on the disk may hold it up.
const RELEASE: Duration = Duration::from_secs(5);

/// Serves the disk until it is not wanted any more.
pub(crate) fn serve(args: &DiskArgs, out: &mut Output) -> Result<(), Failure> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    // Before there is a second thread, which inherits the mask.
    let signals = signals
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC))
        .map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))?;
    let word = match make(args) {
        Ok(made) => {
            let ready = tell(out, &Word::Ready { device: made.device.clone() });
            if ready.is_ok() {
                wait(&signals);
            }
            made.take_down();
            return ready;
        }
        Err(Failure::Message { message, hint, .. }) => Word::Failed { message, hint },
        Err(other) => Word::Failed { message: other.to_string(), hint: None },
    };
    tell(out, &word)
}

fn tell(out: &mut Output, word: &Word) -> Result<(), Failure> {
    let line = serde_json::to_string(word)
        .map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    out.line(line)?;
    Ok(out.flush()?)
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
    let spec: DiskSpec = serde_json::from_str(&args.spec)
        .map_err(|error| Failure::usage(format!("--spec: {error}")))?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::failed("a modelled disk is mounted, which takes root")
            .hint("run it as root, or without [disk]"));
    }
    enough_memory(Bytes(spec.size_bytes))?;
    let (sender, released) = channel();
    let arm = Arm::new(spec.bandwidth_bytes_per_sec, spec.seek);
    let Mounted { file, timed } = Medium::mount(spec.size_bytes, arm, sender).map_err(|error| {
        Failure::failed(format!("cannot make the modelled disk: {error}"))
            .hint("it needs FUSE (CONFIG_FUSE_FS, /dev/fuse) and Linux 5.8 or later")
    })?;
    let device = LoopDevice::bind(&file)?;
    // From here on only the device holds the medium.
    drop(file);
    let scheduled = device.schedule_by(&spec.scheduler)?;
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
        match self.released.recv_timeout(RELEASE) {
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
    let output = String::from_utf8_lossy(&done.stderr);
    Err(Failure::failed(format!("mkfs.ext4 failed ({}): {}", done.status, output.trim())))
}
