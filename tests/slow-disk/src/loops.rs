//! A loop device over the medium (loop(4)), which brings the block layer and its I/O scheduler.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux_raw_sys::loop_device::{
    LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO, LOOP_CONFIGURE, LOOP_CTL_GET_FREE, loop_config,
};

use lrs_term::Failure;

/// Others look for free devices too, and a free one may be taken between two calls.
const TRIES: u32 = 16;

/// Between two tries: one that is being taken apart is named as free for a moment longer.
const PAUSE: Duration = Duration::from_millis(1);

/// A loop device that is taken apart by the kernel when it is no more open or mounted.
#[derive(Debug)]
pub(super) struct LoopDevice {
    /// `loop3`
    pub(super) name: String,
    open: File,
}

impl LoopDevice {
    /// Binds a free device to `medium`, past the page cache.
    pub(super) fn bind(medium: &File) -> Result<LoopDevice, Failure> {
        let control = "/dev/loop-control";
        let control = File::open(control).map_err(|error| {
            Failure::failed(format!("cannot open {control}: {error}"))
                .hint("the modelled disk needs loop devices (CONFIG_BLK_DEV_LOOP) and root")
        })?;
        for _ in 0..TRIES {
            let number = free(&control).map_err(|error| {
                Failure::failed(format!("the kernel has no free loop device: {error}"))
                    .hint("`losetup -a` shows who has them")
            })?;
            let name = format!("loop{number}");
            let path = Path::new("/dev").join(&name);
            let open = File::options().read(true).write(true).open(&path).map_err(|error| {
                Failure::failed(format!("cannot open {}: {error}", path.display()))
                    .hint("in a container, pass loop devices in")
            })?;
            match configure(&open, medium) {
                Ok(()) => {
                    let device = LoopDevice { name, open };
                    device.past_the_page_cache()?;
                    return Ok(device);
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    return Err(Failure::failed(format!(
                        "cannot set up {}: {error}",
                        path.display()
                    ))
                    .hint("LOOP_CONFIGURE needs Linux 5.8"));
                }
            }
        }
        Err(Failure::failed(format!("others took {TRIES} loop devices before this could"))
            .hint("run it again"))
    }

    /// `/dev/loop3`
    pub(super) fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// A file below `/sys/block/loop3`.
    fn attribute(&self, file: &str) -> PathBuf {
        Path::new("/sys/block").join(&self.name).join(file)
    }

    fn past_the_page_cache(&self) -> Result<(), Failure> {
        let path = self.attribute("loop/dio");
        match std::fs::read_to_string(&path) {
            Ok(text) if text.trim() == "1" => Ok(()),
            Ok(_) => Err(Failure::failed(format!(
                "{}: the kernel refused direct I/O, so the page cache would hide the disk",
                path.display()
            ))),
            Err(error) => Err(Failure::failed(format!("cannot read {}: {error}", path.display()))),
        }
    }

    /// Makes it a disk with an arm, under `scheduler`.
    ///
    /// A loop device over FUSE says of itself that it is not rotational, and BFQ then does not
    /// wait for the next request of a sequential reader before it serves another.
    pub(super) fn schedule_by(&self, scheduler: &str) -> Result<Scheduled, Failure> {
        let path = self.attribute("queue/scheduler");
        let offered = std::fs::read_to_string(&path)
            .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?;
        std::fs::write(&path, scheduler).map_err(|error| {
            Failure::failed(format!(
                "{} takes no `{scheduler}`: {error}; it offers {}",
                path.display(),
                offered.trim()
            ))
            .hint(format!("`modprobe {scheduler}`, or another scheduler in [disk]"))
        })?;
        let before = chosen(&offered).map(str::to_owned);
        let scheduled = Scheduled { path, before };
        let path = self.attribute("queue/rotational");
        std::fs::write(&path, "1").map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(scheduled)
    }

    /// Lets go of the device; from then on only who mounted it holds it.
    pub(super) fn leave(self) {
        drop(self.open);
    }
}

/// A device keeps its scheduler when it is taken apart; dropping this gives back the one before.
#[derive(Debug)]
pub(super) struct Scheduled {
    path: PathBuf,
    before: Option<String>,
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It took this one before, and no caller is left for the error.
            let _ = std::fs::write(&self.path, before);
        }
    }
}

fn free(control: &File) -> io::Result<i32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
    if number < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

fn configure(device: &File, medium: &File) -> io::Result<()> {
    // SAFETY: loop_config is plain data for which all zeros is the default (linux/loop.h).
    let mut config: loop_config = unsafe { std::mem::zeroed() };
    config.fd = medium.as_raw_fd().unsigned_abs();
    config.block_size = 4096;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR as u32 | LO_FLAGS_DIRECT_IO as u32;
    // SAFETY: `config` is what LOOP_CONFIGURE reads, and outlives the call.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The word in brackets of `queue/scheduler` (block/switching-sched.rst).
fn chosen(offered: &str) -> Option<&str> {
    offered.split_once('[')?.1.split_once(']').map(|(chosen, _)| chosen)
}
