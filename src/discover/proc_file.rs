//! The files of `/proc/PID`: reading one up to a bound, and what is in them.
//!
//! What a process says of itself (`cmdline`, `environ`) it may have overwritten, with anything and
//! with megabytes of it; so nothing here allocates more than it is told to, and nothing is decoded
//! that need not be. Whoever reads two files of a number compares start times: the process may
//! have ended in between, and another one have its number.

use std::io::{self, Read as _};
use std::path::Path;

use crate::units::Pid;

/// The fields of `/proc/PID/stat` (proc_pid_stat(5)) that matter to finders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its parent's number; 0: none that can be seen.
    pub parent: i32,
    /// The number of its session's leader.
    pub session: i32,
    /// Clock ticks since boot.
    pub start_ticks: u64,
    /// A thread of the kernel.
    pub kernel: bool,
    /// It has ended and waits for its parent. One whose first thread alone has ended runs on.
    pub ended: bool,
}

impl Stat {
    /// The command name may hold anything, also `)` and blanks: fields count from the last `)`.
    /// `None`: not what the manual page says.
    pub fn parse(text: &[u8]) -> Option<Stat> {
        /// `PF_KTHREAD` of include/linux/sched.h; part of the file's ABI since 2.6.
        const PF_KTHREAD: u64 = 0x0020_0000;
        let end = text.iter().rposition(|&byte| byte == b')')?;
        let mut fields = std::str::from_utf8(text.get(end + 1..)?).ok()?.split_ascii_whitespace();
        let state = fields.next()?; // field 3 of the manual page
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?; // 6
        let flags: u64 = fields.nth(2)?.parse().ok()?; // 9
        let threads: i64 = fields.nth(10)?.parse().ok()?; // 20
        let start_ticks = fields.nth(1)?.parse().ok()?; // 22
        Some(Stat {
            parent,
            session,
            start_ticks,
            kernel: flags & PF_KTHREAD != 0,
            ended: matches!(state, "Z" | "X" | "x") && threads <= 1,
        })
    }
}

/// The effective user of a `status` file: `Uid:`, then the real, effective, saved and file
/// system one (proc_pid_status(5)). `None`: there is none.
pub fn effective_user(status: &[u8]) -> Option<u32> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
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

/// The process whose directory has this name; `None`: it is no process's.
pub fn pid(name: &std::ffi::OsStr) -> Option<Pid> {
    Pid::new(name.to_str()?.parse().ok()?)
}

/// The first `most` bytes of a file. One buffer: files of /proc tell no size.
///
/// # Errors
/// It cannot be read; whether because it is gone is said by [`vanished`].
pub fn beginning(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    const ROOM: usize = 1024;
    let mut text = Vec::with_capacity(ROOM);
    std::fs::File::open(path)?.take(most as u64).read_to_end(&mut text)?;
    Ok(text)
}

/// ENOENT: no such process; ESRCH: it went while the file was open.
pub fn vanished(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_file_is_read_behind_any_name() {
        let stat = b"42 (a) R 1 (b) S 7 42 41 0 -1 2097216 1 0 0 0 2 3 0 0 -11 0 5 0 1234 1 1\n";
        let stat = Stat::parse(stat).unwrap();
        let expected =
            Stat { parent: 7, session: 41, start_ticks: 1234, kernel: true, ended: false };
        assert_eq!(stat, expected);
        for broken in ["", "42 (a", "42 (a) S", "42 (a) S x 42 41 0 -1 1 1"] {
            assert_eq!(Stat::parse(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn a_process_has_ended_with_its_last_thread() {
        let ended = |state: &str, threads: u32| {
            let stat = format!("7 (x) {state} 1 7 7 0 -1 0 1 0 0 0 2 3 0 0 20 0 {threads} 0 9 1 1");
            Stat::parse(stat.as_bytes()).unwrap().ended
        };
        assert!(ended("Z", 1) && ended("X", 0) && ended("x", 1));
        assert!(!ended("Z", 2) && !ended("S", 1));
    }
}
