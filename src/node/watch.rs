//! What the loop waits for: ends of processes, empty cgroups, messages, commands, time.
//!
//! One epoll set. A process is watched by its pidfd (pidfd_open(2)), which becomes readable
//! when the process ends and, unlike a pid, can never mean another one. `cgroup.events` is the
//! second source: it also tells of unknown processes, but at most once in 10 ms per file
//! (kernel: CGROUP_FILE_NOTIFY_MIN_INTV), so it is too slow to be the first.
//!
//! Limits: one descriptor a watched process. Where they run out, `cgroup.events` and the check
//! of every cycle remain; where inotify is used up, pidfds and that check do.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::core::model::TaskId;
use crate::executor::turn::End;
use crate::executor::world::Key;
use crate::kernfs::process::{Stat, proc_file, read_proc};
use crate::units::Pid;

/// Tokens below this are fixed; those from it on are processes.
const FIRST_PROCESS: u64 = 16;
const COMMANDS: u64 = 0;
const MESSAGES: u64 = 1;
const GROUPS: u64 = 2;

/// Most events taken in one turn; the rest comes in the next.
const BATCH: usize = 256;

/// Something to look after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// A process or a group.
    End(End),
    /// Commands may wait.
    Commands,
    /// Messages of the other threads may wait.
    Messages,
}

/// A process that has ended, with its pidfd.
#[derive(Debug)]
pub struct Ended {
    /// The task that it was of.
    pub task: TaskId,
    /// Which.
    pub pid: Pid,
    /// It had ended before, and its parent has waited for it now.
    pub reaped: bool,
    fd: OwnedFd,
}

impl Ended {
    /// Readable, and hung up once the parent has waited for the process (Linux 6.9 and later).
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The epoll set of the loop.
#[derive(Debug)]
pub struct Watcher {
    epoll: OwnedFd,
    /// `None`: there is no inotify to be had.
    groups: Option<OwnedFd>,
    /// Why groups are not watched, once one was not.
    unwatched: Option<String>,
    messages: std::sync::Arc<OwnedFd>,
    processes: HashMap<u64, Watched>,
    /// Until [`Watcher::take_ended`].
    ended: Vec<Ended>,
    group_tasks: HashMap<i32, TaskId>,
    task_groups: HashMap<TaskId, i32>,
    next: u64,
}

#[derive(Debug)]
struct Watched {
    task: TaskId,
    pid: Pid,
    fd: OwnedFd,
    /// It has ended, and its parent has not waited for it.
    is_zombie: bool,
}

/// Wakes the loop from another thread.
#[derive(Clone, Debug)]
pub struct Waker(std::sync::Arc<OwnedFd>);

impl Waker {
    /// Makes the loop look at its messages.
    pub fn wake(&self) {
        // EAGAIN means the counter is at its top, so the loop is woken anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Watcher {
    /// An empty set that also wakes for `commands`.
    pub fn new(commands: BorrowedFd<'_>) -> io::Result<Watcher> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let messages = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let groups = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK);
        let unwatched = groups.as_ref().err().map(|errno| no_inotify(*errno));
        if let Some(why) = &unwatched {
            tracing::warn!("{why}");
        }
        let groups = groups.ok();
        let fixed = [(Some(commands), COMMANDS), (Some(messages.as_fd()), MESSAGES)];
        let groups_fd = groups.as_ref().map(|fd| fd.as_fd());
        for (fd, token) in fixed.into_iter().chain([(groups_fd, GROUPS)]) {
            if let Some(fd) = fd {
                epoll::add(&epoll, fd, EventData::new_u64(token), EventFlags::IN)?;
            }
        }
        Ok(Watcher {
            epoll,
            groups,
            unwatched,
            messages: std::sync::Arc::new(messages),
            processes: HashMap::new(),
            ended: Vec::new(),
            group_tasks: HashMap::new(),
            task_groups: HashMap::new(),
            next: FIRST_PROCESS,
        })
    }

    /// For the other threads.
    pub fn waker(&self) -> Waker {
        Waker(std::sync::Arc::clone(&self.messages))
    }

    /// Watches a process of `task` until it ends. `Ok(None)`: it has ended already, or the number is now that of
    /// a process that did not start at `start_ticks`.
    pub fn watch_process(
        &mut self,
        task: TaskId,
        pid: Pid,
        start_ticks: Option<u64>,
    ) -> io::Result<Option<Key>> {
        let Some(raw) = rustix::process::Pid::from_raw(pid.raw()) else { return Ok(None) };
        match pidfd_open(raw, PidfdFlags::empty()) {
            // Read after it was opened: what is seen is of the process that is pinned. If it is gone by now
            // the pidfd tells.
            Ok(_)
                if start_ticks
                    .is_some_and(|ticks| started(pid).is_some_and(|now| now != ticks)) =>
            {
                Ok(None)
            }
            Ok(fd) => self.watch_pidfd(task, pid, fd).map(Some),
            Err(Errno::SRCH) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// As [`Watcher::watch_process`], for a process that is pinned already.
    pub fn watch_pidfd(&mut self, task: TaskId, pid: Pid, fd: OwnedFd) -> io::Result<Key> {
        self.watch(Watched { task, pid, fd, is_zombie: false }, EventFlags::IN)
    }

    fn watch(&mut self, watched: Watched, until: EventFlags) -> io::Result<Key> {
        let token = self.next;
        epoll::add(&self.epoll, &watched.fd, EventData::new_u64(token), until)?;
        self.next += 1;
        self.processes.insert(token, watched);
        Ok(Key(token))
    }

    /// Those that ended, or were waited for by their parents, since the last call.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Takes the pidfd of `ended` out of the set. It stays readable, and the set keeps it as long as
    /// another thread has it open.
    pub fn forget_ended(&self, ended: &Ended) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, &ended.fd)?)
    }

    /// Watches a process that has ended until its parent has waited for it, where the kernel says so;
    /// then [`Watcher::take_ended`] has it again.
    pub fn await_reaped(&mut self, ended: Ended) -> io::Result<Key> {
        let Ended { task, pid, fd, .. } = ended;
        // A hang-up is reported unasked (epoll_ctl(2)).
        self.watch(Watched { task, pid, fd, is_zombie: true }, EventFlags::empty())
    }

    /// Ends a watch. Closing the descriptor takes it out of the set (epoll(7)).
    pub fn forget_process(&mut self, key: Key) {
        self.processes.remove(&key.0);
    }

    /// Watches `cgroup.events` in `dir`. That there is no inotify for it is logged once, and in
    /// [`Watcher::warning`].
    pub fn watch_group(&mut self, task: TaskId, dir: &Path) -> io::Result<()> {
        let Some(groups) = &self.groups else { return Ok(()) };
        let file = dir.join("cgroup.events");
        let wd = match inotify::add_watch(groups, &file, inotify::WatchFlags::MODIFY) {
            Ok(wd) => wd,
            Err(errno @ Errno::NOSPC) => {
                if self.unwatched.is_none() {
                    let why = no_watch(errno);
                    tracing::warn!(task = %task, "{why}");
                    self.unwatched = Some(why);
                }
                return Ok(());
            }
            Err(errno) => return Err(errno.into()),
        };
        if self.task_groups.get(&task).is_some_and(|before| *before != wd) {
            self.forget_group(task);
        }
        self.group_tasks.insert(wd, task);
        self.task_groups.insert(task, wd);
        Ok(())
    }

    /// Why groups of tasks are not watched, for status.
    pub fn warning(&self) -> Option<String> {
        self.unwatched.clone()
    }

    /// Ends the watch on the group of `task`.
    pub fn forget_group(&mut self, task: TaskId) {
        if let Some(wd) = self.task_groups.remove(&task) {
            self.group_tasks.remove(&wd);
            if let Some(groups) = &self.groups {
                // EINVAL: the group was removed, and the watch with it.
                let _ = inotify::remove_watch(groups, wd);
            }
        }
    }

    /// Waits until something is ready or `timeout` is over; fills `ready`, ends of processes
    /// first: promotion is the promise with a deadline.
    pub fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(BATCH);
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout))
        {
            Ok(_) => {}
            // A signal for another thread of the process; the next turn waits again.
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        let mut later = Vec::new();
        for event in &events {
            match event.data.u64() {
                COMMANDS => later.push(Ready::Commands),
                MESSAGES => {
                    // EAGAIN: another thread was faster; there is no other failure here.
                    let _ = rustix::io::read(&*self.messages, &mut [0u8; 8]);
                    later.push(Ready::Messages);
                }
                GROUPS => self.read_groups(&mut later)?,
                token => {
                    if let Some(watched) = self.processes.remove(&token) {
                        let Watched { task, pid, fd, is_zombie } = watched;
                        if !is_zombie {
                            ready.push(Ready::End(End::Process(task, pid)));
                        }
                        self.ended.push(Ended { task, pid, reaped: is_zombie, fd });
                    }
                }
            }
        }
        ready.append(&mut later);
        Ok(())
    }

    fn read_groups(&mut self, ready: &mut Vec<Ready>) -> io::Result<()> {
        let Some(groups) = &self.groups else { return Ok(()) };
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(groups, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    if event.events().contains(inotify::ReadFlags::IGNORED) {
                        if let Some(task) = self.group_tasks.remove(&event.wd()) {
                            self.task_groups.remove(&task);
                        }
                    } else if let Some(task) = self.group_tasks.get(&event.wd()) {
                        ready.push(Ready::End(End::Group(*task)));
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// When a process started, also of a zombie; `None`: there is none to be read.
fn started(pid: Pid) -> Option<u64> {
    Some(Stat::parse(&read_proc(&proc_file(pid, "stat")).ok()?)?.start_ticks)
}

/// How ends are noticed without inotify.
const WITHOUT: &str =
    "the end of a task is noticed in the next cycle only, once its main process is gone";

fn no_inotify(errno: Errno) -> String {
    let remedy = match errno {
        // Descriptors would have run out for the eventfd made just before.
        Errno::MFILE => {
            "this user has as many inotify instances as fs.inotify.max_user_instances \
                         allows: raise it (sysctl) and restart lrsd"
        }
        _ => "see inotify_init1(2)",
    };
    format!(
        "groups of tasks are not watched, so {WITHOUT}: no inotify instance ({errno}); {remedy}"
    )
}

fn no_watch(errno: Errno) -> String {
    format!(
        "groups of some tasks are not watched, so {WITHOUT}: no inotify watch ({errno}); this user \
         has as many as fs.inotify.max_user_watches allows: raise it (sysctl)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_is_reported_once_and_before_anything_else() {
        let (_, commands) = crate::access::queue().unwrap();
        let mut watcher = Watcher::new(commands.wake_fd()).unwrap();
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = Pid::new(child.id() as i32).unwrap();
        let task = TaskId { epoch: 1, number: 1 };
        assert_eq!(watcher.watch_process(task, pid, Some(1)).unwrap(), None, "another process");
        watcher.watch_process(task, pid, started(pid)).unwrap().unwrap();
        watcher.waker().wake();
        let mut ready = Vec::new();
        watcher.wait(Duration::from_secs(10), &mut ready).unwrap();
        assert_eq!(ready, [Ready::Messages]);
        drop(child.stdin.take());
        child.wait().unwrap();
        watcher.waker().wake();
        watcher.wait(Duration::from_secs(10), &mut ready).unwrap();
        assert_eq!(ready, [Ready::End(End::Process(task, pid)), Ready::Messages]);
        assert_eq!(watcher.take_ended().len(), 1);
        watcher.wait(Duration::ZERO, &mut ready).unwrap();
        assert!(ready.is_empty());
        assert_eq!(watcher.watch_process(task, pid, None).unwrap(), None, "ended already");
    }
}
