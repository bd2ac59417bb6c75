//! One process as a finder reads it: as much of it as is asked for, each file once.
//!
//! A process may end between two reads, and another may get its number. The first is known from
//! [`ProcessReader::gone`] and is no error; the second from comparing the start times before and after
//! ([`ProcessReader::still_there`]), which whoever acts on what was read has to ask for.
//!
//! Command lines and environments are what the process says of itself: it may have overwritten
//! both. Beyond [`MAX_TEXT`] they count as not readable, so that no user makes a pass slow by
//! filling megabytes of arguments.
//!
//! The directory is a parameter, so that tests read trees they have made up.

use std::io;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};

use super::proc_file::{self, Stat, beginning, vanished};
use super::rules::Subject;
use crate::cgroup::{Membership, below};
use crate::kernfs::files::Explained;
use crate::units::{Pid, ProcessRef};

/// Longest command line or environment that is looked at, in bytes; Java's with a long class path
/// stays below.
pub const MAX_TEXT: usize = 256 << 10;

/// Most of the other files; the kernel's own are far shorter.
const MAX_FILE: usize = 64 << 10;

/// Where processes are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proc {
    /// `/proc`.
    pub root: PathBuf,
    /// The group that is mounted as the top of the hierarchy with the cpu controller: `/` but in
    /// a container that sees its host's paths.
    pub mount_root: String,
}

impl Default for Proc {
    fn default() -> Proc {
        Proc { root: PathBuf::from("/proc"), mount_root: String::from("/") }
    }
}

/// A process in the list of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub pid: Pid,
    /// The inode of its directory, which comes with the list. The kernel makes a new one for a
    /// new process, and now and then for an old one: a change means "look again".
    pub inode: u64,
}

/// A file that is there and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// `/proc/42/environ`
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

impl Proc {
    /// All processes, in the order of the directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            let pid = proc_file::pid(&entry.file_name());
            listed.extend(pid.map(|pid| Listed { pid, inode: entry.ino() }));
        }
        Ok(listed)
    }

    /// Begins to read a process. `None`: it is gone.
    ///
    /// # Errors
    /// Its stat file is there and cannot be read or understood.
    pub fn open(&self, pid: Pid) -> Result<Option<ProcessReader<'_>>, Unreadable> {
        let Some(stat) = self.stat(pid)? else { return Ok(None) };
        let reader = ProcessReader {
            proc: self,
            pid,
            stat,
            user: Once::Unread,
            command: Once::Unread,
            cgroup: Once::Unread,
            environment: Once::Unread,
            gone: false,
            trouble: None,
        };
        Ok(Some(reader))
    }

    fn stat(&self, pid: Pid) -> Result<Option<Stat>, Unreadable> {
        let path = self.file(pid, "stat");
        match read(&path, MAX_FILE) {
            Ok(text) => match Stat::parse(&text) {
                Some(stat) => Ok(Some(stat)),
                None => Err(unreadable(path, "is not what proc_pid_stat(5) says")),
            },
            Err(error) if vanished(&error) => Ok(None),
            Err(error) => Err(unreadable(path, Explained(&error))),
        }
    }

    fn file(&self, pid: Pid, name: &str) -> PathBuf {
        let mut path = self.root.join(pid.to_string());
        path.push(name);
        path
    }

    /// The path in the hierarchy with the cpu controller: the one that lists it (v1), else the
    /// unified one (v2). `None`: outside of what the mount shows.
    fn cpu_group(&self, membership: &[u8]) -> Option<String> {
        let membership = Membership::parse(membership);
        let root = self.mount_root.trim_end_matches('/');
        let root = if root.is_empty() { "/" } else { root };
        membership.with_cpu().and_then(|path| below(path, root)).map(str::to_owned)
    }
}

fn unreadable(path: PathBuf, reason: impl ToString) -> Unreadable {
    Unreadable { path, reason: reason.to_string() }
}

/// A value that is read when it is first asked for.
#[derive(Debug)]
enum Once<T> {
    Unread,
    Read(Option<T>),
}

/// A process that is being read.
#[derive(Debug)]
pub struct ProcessReader<'a> {
    proc: &'a Proc,
    pid: Pid,
    stat: Stat,
    user: Once<u32>,
    command: Once<Vec<u8>>,
    cgroup: Once<String>,
    environment: Once<Vec<u8>>,
    gone: bool,
    trouble: Option<Unreadable>,
}

impl ProcessReader<'_> {
    /// The process that is read.
    pub fn process(&self) -> ProcessRef {
        ProcessRef { pid: self.pid, start_ticks: self.stat.start_ticks }
    }

    /// The first content of its stat file.
    pub fn stat(&self) -> Stat {
        self.stat
    }

    /// Whether it ended while it was read: what is missing then means nothing.
    pub fn gone(&self) -> bool {
        self.gone
    }

    /// The first file that could not be read although its process is there.
    pub fn trouble(&mut self) -> Option<Unreadable> {
        self.trouble.take()
    }

    /// Whether all that was read was of one process, which has not ended.
    pub fn still_there(&self) -> bool {
        let now = self.proc.stat(self.pid).ok().flatten();
        now.is_some_and(|now| now.start_ticks == self.stat.start_ticks && !now.ended())
    }

    /// The command line, if anybody asked for it.
    pub fn command_read(&self) -> Option<&[u8]> {
        match &self.command {
            Once::Read(command) => command.as_deref(),
            Once::Unread => None,
        }
    }

    fn read(&mut self, name: &str, most: usize) -> Option<Vec<u8>> {
        let path = self.proc.file(self.pid, name);
        match read(&path, most) {
            Ok(text) => Some(text),
            Err(error) if vanished(&error) => {
                self.gone = true;
                None
            }
            Err(error) => {
                self.trouble.get_or_insert_with(|| unreadable(path, Explained(&error)));
                None
            }
        }
    }
}

impl Subject for ProcessReader<'_> {
    fn user(&mut self) -> Option<u32> {
        if let Once::Read(user) = self.user {
            return user;
        }
        let user = self.read("status", MAX_FILE).as_deref().and_then(proc_file::effective_user);
        self.user = Once::Read(user);
        user
    }

    fn command(&mut self) -> Option<&[u8]> {
        if let Once::Unread = self.command {
            let joined = self.read("cmdline", MAX_TEXT).map(|text| {
                let blank = |&byte: &u8| if byte == 0 { b' ' } else { byte };
                proc_file::arguments(&text).iter().map(blank).collect()
            });
            self.command = Once::Read(joined);
        }
        self.command_read()
    }

    fn cgroup(&mut self) -> Option<&str> {
        if let Once::Unread = self.cgroup {
            let membership = self.read("cgroup", MAX_FILE);
            let path = membership.and_then(|text| self.proc.cpu_group(&text));
            self.cgroup = Once::Read(path);
        }
        match &self.cgroup {
            Once::Read(cgroup) => cgroup.as_deref(),
            Once::Unread => None,
        }
    }

    fn variable(&mut self, name: &str) -> Option<&[u8]> {
        if let Once::Unread = self.environment {
            self.environment = Once::Read(self.read("environ", MAX_TEXT));
        }
        let Once::Read(Some(environment)) = &self.environment else { return None };
        proc_file::variable(environment, name)
    }
}

/// The file, if it has at most `most` bytes.
fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let text = beginning(path, most + 1)?;
    if text.len() > most {
        let much = format!("has more than {} KiB, which are not looked at", most >> 10);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, much));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::made_up::Tree;

    #[test]
    fn a_process_is_read_as_it_is() {
        let tree = Tree::new();
        tree.process(7, 100)
            .command(&["/bin/sh", "-c", "a  b\n\"c\" \u{fc}", ""])
            .environment(&["A=1", "A=2", "AB=3", "EMPTY=", "B=x=y"])
            .user(1000)
            .cgroup("12:cpuset:/wrong\n4:cpu,cpuacct:/a:b/c\n0::/unified");
        let proc = tree.proc();
        let mut reader = proc.open(Pid::new(7).unwrap()).unwrap().unwrap();
        assert_eq!(reader.process().start_ticks, 100);
        assert_eq!(reader.command().unwrap(), "/bin/sh -c a  b\n\"c\" \u{fc} ".as_bytes());
        assert_eq!(reader.user(), Some(1000));
        assert_eq!(reader.cgroup(), Some("/a:b/c"));
        let value =
            |reader: &mut ProcessReader<'_>, name| reader.variable(name).map(<[u8]>::to_vec);
        assert_eq!(value(&mut reader, "A"), Some(b"1".to_vec()));
        assert_eq!(value(&mut reader, "B"), Some(b"x=y".to_vec()));
        assert_eq!(value(&mut reader, "EMPTY"), Some(Vec::new()));
        assert_eq!(value(&mut reader, "C"), None);
        assert!(reader.still_there() && !reader.gone() && reader.trouble().is_none());
    }

    #[test]
    fn bytes_are_not_lost() {
        let tree = Tree::new();
        tree.process(7, 100).raw("cmdline", b"a\xff\0\n\xfe\0");
        let proc = tree.proc();
        let mut reader = proc.open(Pid::new(7).unwrap()).unwrap().unwrap();
        assert_eq!(reader.command(), Some(&b"a\xff \n\xfe"[..]));
    }

    #[test]
    fn who_vanishes_is_gone_and_no_error() {
        let tree = Tree::new();
        tree.process(7, 100).command(&["x"]);
        let proc = tree.proc();
        let mut reader = proc.open(Pid::new(7).unwrap()).unwrap().unwrap();
        tree.remove(7);
        assert_eq!(reader.command(), None);
        assert!(reader.gone() && reader.trouble().is_none() && !reader.still_there());
        assert!(proc.open(Pid::new(7).unwrap()).unwrap().is_none());
        tree.process(7, 200).command(&["y"]);
        assert!(!reader.still_there(), "another one has the number");
    }

    #[test]
    fn what_is_read_once_stays() {
        let tree = Tree::new();
        tree.process(7, 100).command(&["x"]);
        let proc = tree.proc();
        let mut reader = proc.open(Pid::new(7).unwrap()).unwrap().unwrap();
        assert_eq!(reader.command(), Some(&b"x"[..]));
        tree.process(7, 100).command(&["y"]);
        assert_eq!(reader.command(), Some(&b"x"[..]));
    }

    #[test]
    fn monstrous_arguments_are_not_looked_at() {
        let tree = Tree::new();
        tree.process(7, 100).raw("cmdline", &vec![b'x'; MAX_TEXT + 1]);
        let proc = tree.proc();
        let mut reader = proc.open(Pid::new(7).unwrap()).unwrap().unwrap();
        assert_eq!(reader.command(), None);
        let trouble = reader.trouble().unwrap();
        assert!(trouble.path.ends_with("7/cmdline") && trouble.reason.contains("256 KiB"));
    }

    #[test]
    fn a_group_is_seen_from_the_mount() {
        let group = |proc: &Proc, text: &[u8]| proc.cpu_group(text);
        let mut proc = Proc::default();
        assert_eq!(group(&proc, b"0::/a/b\n").as_deref(), Some("/a/b"));
        assert_eq!(group(&proc, b"1:cpu:/\n0::/a/b\n").as_deref(), Some("/"));
        assert_eq!(group(&proc, b"0::/../b\n"), None);
        assert_eq!(group(&proc, b"3:memory:/x\n"), None);
        proc.mount_root = String::from("/docker/1");
        assert_eq!(group(&proc, b"0::/docker/1/a\n").as_deref(), Some("/a"));
        assert_eq!(group(&proc, b"0::/docker/1\n").as_deref(), Some("/"));
        assert_eq!(group(&proc, b"0::/docker/12\n"), None);
    }

    #[test]
    fn the_list_tells_new_processes_from_old_ones() {
        let tree = Tree::new();
        tree.process(7, 100);
        tree.raw("sys", b"");
        let first = tree.proc().list().unwrap();
        assert_eq!(first.iter().map(|listed| listed.pid.raw()).collect::<Vec<_>>(), [7]);
        assert_eq!(tree.proc().list().unwrap(), first);
    }
}
