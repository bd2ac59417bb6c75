//! The files of `/proc/PID`: reading one up to a bound, and what is in them.
//!
//! What a process says of itself (`cmdline`, `environ`) it may have overwritten, with anything and
//! with megabytes of it; so nothing here allocates more than its limit, and nothing is decoded
//! that need not be. Whoever reads two files of a number compares start times: the process may
//! have ended in between, and another one have its number.

pub use crate::kernfs::process::{Stat, beginning, vanished};
use crate::units::{Pid, Uids};

/// The effective user of a `status` file (proc_pid_status(5)). `None`: there is none.
pub fn effective_user(status: &[u8]) -> Option<u32> {
    Uids::parse(status).map(|uids| uids.effective)
}

/// A `cmdline` without the NUL after its last argument, which one that was overwritten may lack.
pub fn arguments(cmdline: &[u8]) -> &[u8] {
    cmdline.strip_suffix(b"\0").unwrap_or(cmdline)
}

/// A variable of an `environ`; the first of two of one name, as getenv(3) has it.
pub fn variable<'t>(environ: &'t [u8], name: &str) -> Option<&'t [u8]> {
    environ
        .split(|&byte| byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The process with a directory of this name; `None`: it is no process's.
pub fn pid(name: &std::ffi::OsStr) -> Option<Pid> {
    Pid::new(name.to_str()?.parse().ok()?)
}
