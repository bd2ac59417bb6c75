//! What /proc tells of a process that may be a container.
//!
//! All of it may be gone between two readings: `None` is a process that is not there. Command
//! lines and environments are their owners' text, read up to a bound and taken as UTF-8 where
//! it is.

use std::fs;
use std::io::{self, Read as _};

use procfs::process::Process;

use crate::units::{Pid, ProcessRef};

/// Most of a command line or an environment that is read; the kernel lets both together have
/// 6 MiB, and what is asked for here stands near their beginning.
const MAX_BYTES: u64 = 1 << 20;

/// A process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) process: ProcessRef,
    pub(super) parent: Option<Pid>,
    /// Whether it leads its session.
    pub(super) leads: bool,
}

/// `None` for one that is gone, has ended, or is a thread of the kernel.
pub(super) fn look(pid: Pid) -> Option<Seen> {
    seen(&Process::new(pid.raw()).ok()?)
}

/// All processes of the node.
pub(super) fn all() -> io::Result<Vec<Seen>> {
    let processes = procfs::process::all_processes().map_err(io::Error::other)?;
    Ok(processes.filter_map(|process| seen(&process.ok()?)).collect())
}

fn seen(process: &Process) -> Option<Seen> {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let stat = process.stat().ok()?;
    let ended = matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1;
    let pid = Pid::new(stat.pid)?;
    (!ended && stat.flags & PF_KTHREAD == 0).then_some(Seen {
        process: ProcessRef { pid, start_ticks: stat.starttime },
        parent: Pid::new(stat.ppid),
        leads: stat.session == stat.pid,
    })
}

/// Effective uid.
pub(super) fn owner(pid: Pid) -> Option<u32> {
    Some(Process::new(pid.raw()).ok()?.status().ok()?.euid)
}

/// The command line.
pub(super) fn arguments(pid: Pid) -> io::Result<Vec<String>> {
    let text = read(pid, "cmdline")?;
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    Ok(text.split(|&b| b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// The value of one variable of the environment the process began with (its last exec).
pub(super) fn variable(pid: Pid, name: &str) -> io::Result<Option<String>> {
    let text = read(pid, "environ")?;
    let value = text.split(|&b| b == 0).find_map(|entry| {
        entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
    });
    Ok(value.map(|value| String::from_utf8_lossy(value).into_owned()))
}

fn read(pid: Pid, file: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(format!("/proc/{pid}/{file}"))?.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// Whether the error says that the process is gone.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}
