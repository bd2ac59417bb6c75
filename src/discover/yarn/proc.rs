//! What /proc tells of a process that may be a container.
//!
//! All of it may be gone between two readings: `None` is a process that is not there. What cannot
//! be read for another reason (no descriptor left, no right) is an error, for such a process may
//! well be there. Command lines and environments are their owners' text, read up to a bound and
//! taken as UTF-8 where it is.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::discover::proc_file::{self, Stat, beginning};
use crate::units::{Pid, ProcessRef};

/// Most of a command line or an environment that is read; the kernel lets both together have
/// 6 MiB, and what is asked for here stands near their beginning.
const MAX_BYTES: usize = 1 << 20;

/// A process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) process: ProcessRef,
    pub(super) parent: Option<Pid>,
    /// Whether it leads its session.
    pub(super) leads: bool,
}

/// How old a process is before its command line is taken for its last: what starts a daemon or a
/// task is a shell first.
pub(super) const GROWN: Duration = Duration::from_secs(60);

/// `None` for one that is gone, has ended, or is a thread of the kernel.
pub(super) fn look(pid: Pid) -> io::Result<Option<Process>> {
    let Some(text) = gone_is_none(read(pid, "stat"))? else { return Ok(None) };
    let stat = Stat::parse(&text).ok_or_else(|| malformed(pid, "stat"))?;
    let seen = Process {
        process: ProcessRef { pid, start_ticks: stat.start_ticks },
        parent: Pid::new(stat.parent),
        leads: stat.session == pid.raw(),
    };
    Ok((!stat.ended() && !stat.is_kernel_thread()).then_some(seen))
}

/// Whether it runs still. One that cannot be looked at just now counts as there: what is known of
/// it is not forgotten for want of a descriptor.
pub(super) fn is_there(process: ProcessRef) -> bool {
    look(process.pid).map_or(true, |seen| seen.is_some_and(|seen| seen.process == process))
}

/// All processes of the node that may be looked at.
pub(super) fn all() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in Path::new("/proc").read_dir()? {
        match proc_file::pid(&entry?.file_name()).map(look) {
            Some(Ok(seen)) => all.extend(seen),
            // Another user's, hidden by the mount option hidepid.
            Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Some(Err(error)) => return Err(error),
            None => {}
        }
    }
    Ok(all)
}

/// Effective uid.
pub(super) fn owner(pid: Pid) -> io::Result<Option<u32>> {
    let Some(text) = gone_is_none(read(pid, "status"))? else { return Ok(None) };
    proc_file::effective_user(&text).map(Some).ok_or_else(|| malformed(pid, "status"))
}

/// The command line.
pub(super) fn arguments(pid: Pid) -> io::Result<Vec<String>> {
    let text = read(pid, "cmdline")?;
    let words = proc_file::arguments(&text).split(|&b| b == 0);
    Ok(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// The value of one variable of the environment the process began with (its last exec).
pub(super) fn variable(pid: Pid, name: &str) -> io::Result<Option<String>> {
    let text = read(pid, "environ")?;
    let value = proc_file::variable(&text, name);
    Ok(value.map(|value| String::from_utf8_lossy(value).into_owned()))
}

fn read(pid: Pid, file: &str) -> io::Result<Vec<u8>> {
    beginning(Path::new(&format!("/proc/{pid}/{file}")), MAX_BYTES)
}

fn malformed(pid: Pid, file: &str) -> io::Error {
    let what = format!("/proc/{pid}/{file} is not what proc_pid_{file}(5) says");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn gone_is_none<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) use crate::kernfs::process::started;

/// Whether the error says that the process is gone.
pub(super) use proc_file::vanished as is_gone;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there_and_an_unused_number_is_not() {
        let own = Pid::new(std::process::id() as i32).unwrap();
        let seen = look(own).unwrap().unwrap();
        assert_eq!(owner(own).unwrap(), Some(rustix::process::geteuid().as_raw()));
        assert!(is_there(seen.process) && all().unwrap().contains(&seen));
        let earlier = ProcessRef { start_ticks: seen.process.start_ticks + 1, ..seen.process };
        assert!(!is_there(earlier), "the number was used again");
        let unused = Pid::new(i32::MAX).unwrap();
        assert_eq!((look(unused).unwrap(), owner(unused).unwrap()), (None, None));
    }
}
