//! What /proc tells of a process that may be a container.
//!
//! All of it may be gone between two readings: `None` is a process that is not there. What cannot
//! be read for another reason (no descriptor left, no right) is an error, for such a process may
//! well be there. Command lines and environments are their owners' text, read up to a bound and
//! taken as UTF-8 where it is.

use std::fs;
use std::io::{self, Read as _};
use std::time::Duration;

use procfs::FromRead as _;
use procfs::process::Stat;

use crate::units::{BootTime, Pid, ProcessRef};

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

/// How old a process is before its command line is taken for its last: what starts a daemon or a
/// task is a shell first.
pub(super) const GROWN: Duration = Duration::from_secs(60);

/// `None` for one that is gone, has ended, or is a thread of the kernel.
pub(super) fn look(pid: Pid) -> io::Result<Option<Seen>> {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let Some(text) = gone_is_none(read(pid, "stat"))? else { return Ok(None) };
    let stat = Stat::from_read(text.as_slice()).map_err(|error| malformed(pid, "stat", &error))?;
    let ended = matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1;
    let seen = Seen {
        process: ProcessRef { pid, start_ticks: stat.starttime },
        parent: Pid::new(stat.ppid),
        leads: stat.session == pid.raw(),
    };
    Ok((!ended && stat.flags & PF_KTHREAD == 0).then_some(seen))
}

/// Whether it runs still. One that cannot be looked at just now counts as there: what is known of
/// it is not forgotten for want of a descriptor.
pub(super) fn is_there(process: ProcessRef) -> bool {
    look(process.pid).map_or(true, |seen| seen.is_some_and(|seen| seen.process == process))
}

/// All processes of the node that may be looked at.
pub(super) fn all() -> io::Result<Vec<Seen>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::new);
        match pid.map(look) {
            Some(Ok(seen)) => all.extend(seen),
            // Another user's, hidden by the mount option hidepid.
            Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Some(Err(error)) => return Err(error),
            None => {}
        }
    }
    Ok(all)
}

/// When it began.
pub(super) fn started(process: ProcessRef) -> BootTime {
    let ticks = procfs::ticks_per_second().max(1);
    BootTime(Duration::from_micros(process.start_ticks.saturating_mul(1_000_000) / ticks))
}

/// Effective uid.
pub(super) fn owner(pid: Pid) -> io::Result<Option<u32>> {
    let Some(text) = gone_is_none(read(pid, "status"))? else { return Ok(None) };
    // Uid: real, effective, saved, file system (proc_pid_status(5)).
    let uids = text.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"Uid:"));
    let effective = uids.and_then(|uids| std::str::from_utf8(uids).ok()?.split_whitespace().nth(1));
    match effective.map(str::parse) {
        Some(Ok(uid)) => Ok(Some(uid)),
        Some(Err(error)) => Err(malformed(pid, "status", &error)),
        None => Err(malformed(pid, "status", &"there is no effective uid")),
    }
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

fn malformed(pid: Pid, file: &str, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/{file}: {why}"))
}

fn gone_is_none<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the error says that the process is gone.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there_and_a_number_nobody_has_is_not() {
        let own = Pid::new(std::process::id() as i32).unwrap();
        let seen = look(own).unwrap().unwrap();
        assert_eq!(owner(own).unwrap(), Some(rustix::process::geteuid().as_raw()));
        assert!(is_there(seen.process) && all().unwrap().contains(&seen));
        let earlier = ProcessRef { start_ticks: seen.process.start_ticks + 1, ..seen.process };
        assert!(!is_there(earlier), "the number was used again");
        let nobody = Pid::new(i32::MAX).unwrap();
        assert_eq!((look(nobody).unwrap(), owner(nobody).unwrap()), (None, None));
    }
}
