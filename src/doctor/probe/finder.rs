//! The daemon's thread that finds tasks: by the names and states of its threads, since any user may
//! read them.
//!
//! Limits: a thread that hangs in anything but a disk looks like one that waits; the warnings of
//! `lrsctl status` tell it.

use std::path::Path;
use std::time::Duration;

use super::reading::Reading;
use super::socket::Socket;

/// As `/proc/PID/task/TID/comm` has it.
pub(in crate::doctor) const THREAD: &str = "lrs-find";

/// A disk that works answers within it.
const SECOND_LOOK: Duration = Duration::from_millis(300);

/// The thread of the daemon that finds tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum Finder {
    /// There is none.
    Absent,
    /// It is there.
    There,
    /// It waits for a disk, and did a moment ago (`D` of proc_pid_stat(5)).
    Stuck,
}

/// `None`: no daemon is seen.
pub(in crate::doctor) fn read(proc: &Path, socket: &Socket) -> Option<Reading<Finder>> {
    let Socket::Served { pid: Some(pid), .. } = socket else { return None };
    let threads = proc.join(format!("{pid}/task"));
    let first = look(&threads);
    if first != Ok(Finder::Stuck) {
        return Some(first);
    }
    std::thread::sleep(SECOND_LOOK);
    Some(look(&threads))
}

fn look(threads: &Path) -> Reading<Finder> {
    let failed = |error| format!("cannot list {}: {error}", threads.display());
    for thread in std::fs::read_dir(threads).map_err(failed)? {
        let thread = thread.map_err(failed)?.path();
        // One that has just ended is none that counts.
        let Ok(stat) = std::fs::read_to_string(thread.join("stat")) else { continue };
        let Some((head, state)) = stat.rsplit_once(')') else { continue };
        if head.split_once('(').is_some_and(|(_, name)| name == THREAD) {
            let is_stuck = state.trim_start().starts_with('D');
            return Ok(if is_stuck { Finder::Stuck } else { Finder::There });
        }
    }
    Ok(Finder::Absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(dir: &Path, tid: u32, stat: &str) {
        let dir = dir.join(format!("7/task/{tid}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("stat"), stat).unwrap();
    }

    #[test]
    fn the_thread_is_recognised_by_its_name_and_state() {
        let proc = tempfile::tempdir().unwrap();
        let served = Socket::Served { pid: Some(7), answers: true };
        let read = || read(proc.path(), &served);
        assert!(matches!(read(), Some(Err(reason)) if reason.contains("task")));
        thread(proc.path(), 7, "7 (lrsd) S 1 7 7 0");
        thread(proc.path(), 8, "8 (lrs-loop) S 1 7 7 0");
        assert_eq!(read(), Some(Ok(Finder::Absent)));
        thread(proc.path(), 9, "9 (lrs-find) S 1 7 7 0");
        assert_eq!(read(), Some(Ok(Finder::There)));
        thread(proc.path(), 9, "9 (lrs-find) D 1 7 7 0");
        assert_eq!(read(), Some(Ok(Finder::Stuck)));
        assert_eq!(super::read(proc.path(), &Socket::Absent), None);
    }
}
