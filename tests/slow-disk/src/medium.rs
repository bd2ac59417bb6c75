//! The medium: a FUSE file system that is one file, served one request after the other.
//!
//! The root of the file system is the file itself, and it is mounted nowhere: fsmount(2) gives a
//! mount that no path leads to. No other process comes across it, and it is gone with the last
//! reference, so that nothing has to be unmounted when the server is killed.
//!
//! The bytes are in memory (memfd_create(2)), not in a file of the machine's own disk: that disk
//! would add its times to the model's, and its scheduler would order what ours has ordered.
//!
//! The serving threads have file descriptors of their own (`CLONE_FILES` of unshare(2)), and only
//! those have the FUSE device. The main thread waits for the device it serves, uninterruptibly,
//! when it mounts it, changes its scheduler or unmounts it. Killed then, it is not gone before
//! its request is answered; with the descriptor among its own the kernel would never end the
//! connection, and it would wait for ever. So the end of the serving threads alone closes the
//! device, and whoever waits for it gets an error.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyWrite,
    Request, Session, SessionACL, WriteFlags,
};
use rustix::fs::MemfdFlags;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::{UnshareFlags, clock_nanosleep_absolute, gettid, unshare_unsafe};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::model::Arm;
use lrs_term::say;

/// The most of one request. The kernel's own limit without a sysctl is 256 pages
/// (fs.fuse.max_pages_limit), so that a larger request of the block layer comes in pieces that
/// follow each other.
const LARGEST_REQUEST: u32 = 1 << 20;

/// More than the block layer ever has under way (hw_queue_depth of a loop device, 128).
const QUEUE: u16 = 256;

/// The attributes never change.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

/// Serves requests as the modelled disk would.
#[derive(Debug)]
pub(super) struct Medium {
    bytes: File,
    size: u64,
    arm: Mutex<Arm>,
    /// What the last read answered, for its room.
    read: Mutex<Vec<u8>>,
    timed: Arc<AtomicBool>,
}

/// The mounted medium.
#[derive(Debug)]
pub(super) struct Mounted {
    /// The file, for a loop device. The medium is released when all copies are closed.
    pub(super) file: File,
    /// Whether requests take their time. They take none while the disk is made ready and after
    /// the signal to end.
    pub(super) timed: Arc<AtomicBool>,
}

impl Medium {
    /// Makes and serves a medium of `size` bytes until it is open no more; the channel of
    /// `released` ends then.
    pub(super) fn mount(size: u64, arm: Arm, released: Sender<Infallible>) -> io::Result<Mounted> {
        let timed = Arc::new(AtomicBool::new(false));
        let (tell, path) = channel();
        let (opened, until_opened) = channel();
        let shared = Arc::clone(&timed);
        std::thread::Builder::new().name(String::from("lrs-disk")).spawn(move || {
            serve(|| Medium::make(size, arm, shared), &tell, &until_opened);
            // The kernel's FUSE_RELEASE would tell the same, but the last close ends the
            // connection too, and then that request may be dropped unread.
            drop(released);
        })?;
        let path: PathBuf =
            path.recv().map_err(|_| io::Error::other("the thread that serves it ended"))??;
        let file =
            File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
        drop(opened);
        Ok(Mounted { file, timed })
    }

    /// Its descriptors are those of the calling thread.
    fn make(size: u64, arm: Arm, timed: Arc<AtomicBool>) -> io::Result<Medium> {
        let bytes = File::from(rustix::fs::memfd_create("lrs-disk", MemfdFlags::CLOEXEC)?);
        bytes.set_len(size)?;
        let (arm, read) = (Mutex::new(arm), Mutex::new(Vec::new()));
        Ok(Medium { bytes, size, arm, read, timed })
    }

    /// Its file system, and a mount of it that no path leads to.
    fn session(self) -> io::Result<(Session<Medium>, OwnedFd)> {
        let device = File::options().read(true).write(true).open("/dev/fuse").map_err(|error| {
            io::Error::new(error.kind(), format!("cannot open /dev/fuse: {error}"))
        })?;
        // Options of fs/fuse/inode.c; the root is a regular file (S_IFREG, octal).
        let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let descriptor = device.as_raw_fd().to_string();
        let options =
            [("fd", &*descriptor), ("rootmode", "100600"), ("user_id", "0"), ("group_id", "0")];
        for (key, value) in options {
            fsconfig_set_string(context.as_fd(), key, value)?;
        }
        fsconfig_create(context.as_fd())?;
        let mount =
            fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let session = Session::from_fd(self, device.into(), SessionACL::Owner, Config::default())?;
        Ok((session, mount))
    }

    /// Sleeps until the request would be done. There is one thread, so the next one waits.
    fn carry(&self, offset: u64, bytes: usize) {
        if !self.timed.load(Ordering::Relaxed) {
            return;
        }
        let begun = clock_gettime(ClockId::Monotonic);
        let takes = self
            .arm
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .carry(offset, u64::try_from(bytes).unwrap_or(u64::MAX));
        let Some(end) = Timespec::try_from(takes).ok().and_then(|takes| begun.checked_add(takes))
        else {
            return;
        };
        while clock_nanosleep_absolute(ClockId::Monotonic, &end) == Err(rustix::io::Errno::INTR) {}
    }

    fn attributes(&self) -> FileAttr {
        FileAttr {
            ino: INodeNo::ROOT,
            size: self.size,
            blocks: self.size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// The bytes from `offset` on in `into`, `size` of them where there are so many.
    fn read_at(&self, offset: u64, size: u32, into: &mut Vec<u8>) -> io::Result<()> {
        let there = self.size.saturating_sub(offset).min(u64::from(size));
        into.resize(usize::try_from(there).unwrap_or(0), 0);
        self.bytes.read_exact_at(into, offset)
    }

    /// The file would grow beyond the disk.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = u64::try_from(data.len()).ok().and_then(|length| offset.checked_add(length));
        if end.is_none_or(|end| end > self.size) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.bytes.write_all_at(data, offset)
    }
}

/// The serving thread from its beginning to its end. `tell` gets the path at which the main
/// thread opens the file; `until_opened` ends when it has, or when it is not wanted any more.
fn serve(
    make: impl FnOnce() -> io::Result<Medium>,
    tell: &Sender<io::Result<PathBuf>>,
    until_opened: &Receiver<Infallible>,
) {
    let (serving, mount) = match own_descriptors().and_then(|()| make()).and_then(run) {
        Ok(running) => running,
        Err(error) => {
            // The receiver waits for this word alone.
            let _ = tell.send(Err(error));
            return;
        }
    };
    // The number means something among the descriptors of this thread alone.
    let (thread, descriptor) = (gettid().as_raw_nonzero(), mount.as_raw_fd());
    let _ = tell.send(Ok(PathBuf::from(format!("/proc/self/task/{thread}/fd/{descriptor}"))));
    let _ = until_opened.recv();
    // Or it would hold the medium as an open file does.
    drop(mount);
    match serving.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => say(format_args!("lrs-slow-disk: the modelled disk ended: {error}")),
        Err(_) => say(format_args!("lrs-slow-disk: the modelled disk ended: its thread panicked")),
    }
}

/// Gives the calling thread descriptors of its own: a copy of what is open now.
fn own_descriptors() -> io::Result<()> {
    // SAFETY: of the descriptors opened before, this thread and those it starts use none but
    // standard error, which is the same in both tables, and none of theirs is used elsewhere.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }.map_err(io::Error::from)
}

/// Starts to answer requests, on a thread with the descriptors of this one.
fn run(medium: Medium) -> io::Result<(JoinHandle<io::Result<()>>, OwnedFd)> {
    let (session, mount) = medium.session()?;
    let name = String::from("lrs-disk-fuse");
    let serving = std::thread::Builder::new().name(name).spawn(move || session.run())?;
    Ok((serving, mount))
}

impl Filesystem for Medium {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The answer is what the kernel allows at most, and it takes that then.
        let wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_MAX_PAGES;
        let _ = config.add_capabilities(wanted & config.capabilities());
        if let Err(most) = config.set_max_write(LARGEST_REQUEST) {
            let _ = config.set_max_write(most);
        }
        let _ = config.set_max_background(QUEUE);
        let _ = config.set_congestion_threshold(QUEUE);
        Ok(())
    }

    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes());
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Called on the one thread that serves.
        favour_this_thread();
        flush_from_this_thread();
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match self.read_at(offset, size, &mut bytes) {
            Ok(()) => {
                self.carry(offset, bytes.len());
                reply.data(&bytes);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_at(offset, data) {
            Ok(()) => {
                self.carry(offset, data.len());
                // a request has at most LARGEST_REQUEST bytes
                reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// The modelled disk has no write cache: what was answered is on the platter.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Part of close(2).
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Hardware does not wait for a CPU: SCHED_FIFO (sched(7)). Between requests the thread sleeps,
/// and in one it copies a mebibyte at most. Without the right to it the disk is a little slower
/// when the CPUs are busy.
fn favour_this_thread() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameters` outlives the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}

/// Memory this thread needs is not taken by writing to disks, of which one would wait for this
/// thread (PR_SET_IO_FLUSHER(2const)). Linux before 5.6 does not know it (EINVAL), and without
/// CAP_SYS_RESOURCE it is refused (EPERM); the disk then needs a machine with memory to spare,
/// which [`super::room`] has looked at.
fn flush_from_this_thread() {
    match configure_io_flusher_behavior(true) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
        Err(error) => say(format_args!(
            "lrs-slow-disk: the modelled disk may hang when memory is short: PR_SET_IO_FLUSHER: {error}"
        )),
    }
}
