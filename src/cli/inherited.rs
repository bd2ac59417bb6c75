//! What this process inherited and Rust's start-up code changed before `main`.
//!
//! std sets SIGPIPE to "ignore" and opens /dev/null on closed standard descriptors, both
//! before `main` runs. A command started by `lrsctl run` must find them as its parent left
//! them, so they are recorded by a constructor: the C runtime calls the functions of
//! `.init_array` before it calls `main`, and with that before std's start-up code (ELF gABI,
//! "Initialization and Termination Functions"). The compiler switch that leaves SIGPIPE
//! alone (`-Zon-broken-pipe`) is unstable, and resetting it to the default would be wrong
//! below a parent that ignores it on purpose (nohup-like tools, Python's subprocess with
//! `restore_signals=False`).
//!
//! Limit: Linux only, like all of LRS. The signal mask needs nothing: neither std nor tokio
//! changes it in this process.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The kernel's default, with which a process starts.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// Bit N: descriptor N (0, 1, 2) was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

/// Runs before std is set up, so it may use system calls and plain memory only.
extern "C" fn record() {
    // SAFETY: a null `act` makes sigaction(2) a mere query into `present`, which is valid for
    // writes and for which all-zero bytes are a value.
    let ignored = unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut present) == 0
            && present.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_IGNORED.store(ignored, Ordering::Relaxed);
    let closed = (0..3).fold(0, |closed, fd| {
        // SAFETY: F_GETFD takes no pointer and changes nothing.
        let open = unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
        if open { closed } else { closed | 1 << fd }
    });
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Gives SIGPIPE and the standard descriptors back as they were inherited. For the moment
/// right before an exec: from here on a write to a closed pipe may end the process.
pub(super) fn restore() -> std::io::Result<()> {
    if !SIGPIPE_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: SIG_DFL runs no code of ours.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        if before == libc::SIG_ERR {
            return Err(std::io::Error::last_os_error());
        }
    }
    let closed = CLOSED.load(Ordering::Relaxed);
    for fd in (0..3).filter(|fd| closed & 1 << fd != 0) {
        // SAFETY: F_SETFD takes no pointer; the descriptor is std's /dev/null, and it is only
        // marked, not closed, so that a failed exec can still be reported.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}
