//! Groups on trial, with processes of lrsd's own: an admission before there is a task, the proof that one is
//! possible; and processes that compute, by which the tiers are tested ([`TierTree::compute`]).
//!
//! What makes admissions impossible by itself is looked up ([`super::obstacle`]); what else may stand
//! in the way (a security module, a filter of system calls, mounts of an unheard-of kind) shows when it
//! is tried. So a daemon that starts without tasks puts a process of its own into a group made like
//! a task's, with a tier, reads back where it is, and takes both away. No client sees it.
//!
//! The process is a fork of this one that makes system calls alone until the pipe to it is closed,
//! by hand or by the end of the daemon, with which it is killed too. It keeps no other descriptor of the
//! daemon's, so that no client waits for it, and it ends by itself after ten seconds.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use super::layout::Layout;
use super::name::{TRIAL, TRIAL_ACTIVE, TRIAL_PASSIVE};
use super::process::Stat;
use super::tree::TierTree;
use super::{
    Attachment, CgroupError, Conditions, Group, GroupDirs, Kin, Reach, WeightPlan, dirs, files,
};
use crate::core::model::Tier;
use crate::schedule;
use crate::units::{Pid, ProcessRef};

/// Any will do: the files are the same.
const PLAN: WeightPlan = WeightPlan { ratio: 100, active_capacity: 1, passive_max: 1 };

/// How often systemd may move the process away: on v1 it does so, in one hierarchy after the other, to all
/// in lrsd's slice when the first unit beside lrsd gets a controller, as `lrs-tasks.scope` does.
const MOST_MOVED: u32 = 10;

impl TierTree {
    /// Admits and ends a process of its own, unless there are tasks already or nothing is written
    /// here. Call it before there are threads but the log's.
    ///
    /// # Errors
    /// Why no task can be admitted. Nothing is left of the try.
    pub fn try_admission(&self) -> Result<(), CgroupError> {
        for name in [TRIAL_ACTIVE, TRIAL_PASSIVE] {
            if let Err(error) = self.remove_trial(name) {
                tracing::warn!(%error, "a group of a test of the tiers stays until the next test: {error}");
            }
        }
        let Some(root) = self.root().filter(|root| !root.takes_over) else { return Ok(()) };
        let Layout { path, hierarchies, .. } = &root.layout;
        if let Some(file) = self.frozen_root()? {
            // Its process could not end there; status names what prevents admissions meanwhile.
            tracing::warn!(file = %file.display(), "whether a task can be admitted was not tried: others froze the root by {}", file.display());
            return Ok(());
        }
        let child = match Child::start(Work::Wait) {
            Ok(child) => child,
            Err(error) => {
                // Whoever asks for a slot brings a process.
                tracing::warn!(%error, "whether a task can be admitted was not tried, for lrsd cannot fork: {error}; raise TasksMax= or pids.max");
                return Ok(());
            }
        };
        let path = format!("{path}/{TRIAL}");
        // What a daemon left that was killed in here.
        dirs::remove_everywhere(hierarchies, &path)?;
        let tried = self.put(&path, child.pid, Tier::Passive, &PLAN).map(|_| ());
        drop(child);
        let removed = dirs::remove_everywhere(hierarchies, &path);
        match tried.and(removed) {
            // An unprivileged lrsd may not move what is beside it, but what is below a group that
            // was delegated to it.
            Err(CgroupError::Io { path, source, .. })
                if source.kind() == std::io::ErrorKind::PermissionDenied
                    && !rustix::process::geteuid().is_root() =>
            {
                tracing::warn!(%source, "processes from where lrsd was started cannot be admitted: {}: {source}; start them below the group that was delegated to lrsd's user", path.display());
                Ok(())
            }
            tried => tried.map_err(|error| {
                CgroupError::Unsupported(format!(
                    "a process that was admitted on trial did not get in, so no task would: \
                     {error}; take away what refuses it, or set daemon.mode = \"observe\""
                ))
            }),
        }
    }

    /// Starts a process that computes in a group made like a task's of `tier`, which lasts until it is
    /// dropped. Not for two of a tier at once.
    ///
    /// # Errors
    /// What a task could not be admitted for either. Nothing is left of the try.
    pub fn compute(&self, tier: Tier, plan: &WeightPlan) -> Result<Computing<'_>, CgroupError> {
        let Some(root) = self.root() else {
            return Err(CgroupError::Refused("there are no tiers: lrsd only observes".to_owned()));
        };
        if let Some(file) = self.frozen_root()? {
            let what = format!("others froze the cgroup of all tasks by {}", file.display());
            return Err(CgroupError::Refused(format!("{what}: thaw it first")));
        }
        root.restore()?;
        let name = if tier == Tier::Active { TRIAL_ACTIVE } else { TRIAL_PASSIVE };
        self.remove_trial(name)?;
        let child = Child::start(Work::Compute).map_err(|error| {
            CgroupError::Refused(format!("lrsd cannot fork: {error}; raise TasksMax= or pids.max"))
        })?;
        let path = format!("{}/{name}", root.layout.path);
        match self.put(&path, child.pid, tier, plan) {
            Ok(group) => Ok(Computing { tree: self, name, group, plan: *plan, child: Some(child) }),
            Err(error) => {
                drop(child);
                self.remove_trial(name)?;
                Err(error)
            }
        }
    }

    fn remove_trial(&self, name: &str) -> Result<(), CgroupError> {
        let Some(Layout { path, hierarchies, .. }) = self.root().map(|root| &root.layout) else {
            return Ok(());
        };
        dirs::remove_everywhere(hierarchies, &format!("{path}/{name}"))
    }

    fn put(
        &self,
        path: &str,
        pid: Pid,
        tier: Tier,
        plan: &WeightPlan,
    ) -> Result<Group, CgroupError> {
        let facts = Stat::read(pid)?.ok_or(CgroupError::ProcessGone(pid))?;
        let process = ProcessRef { pid, start_ticks: facts.start_ticks };
        let group = self.make_own(path.to_owned(), Reach::All)?;
        self.write_tier(&group, tier, plan)?;
        let mut tries = 0;
        loop {
            self.attach_if(&group, process, Kin::Descendants, Conditions::default())?;
            match self.check_trial(&group, process, tier, plan) {
                Err(CgroupError::MovedMeanwhile(_)) if tries < MOST_MOVED => tries += 1,
                checked => return checked.map(|()| group),
            }
        }
    }

    fn check_trial(
        &self,
        group: &Group,
        process: ProcessRef,
        tier: Tier,
        plan: &WeightPlan,
    ) -> Result<(), CgroupError> {
        debug_assert_eq!(group.record.attachment, Attachment::Own);
        let differs = self.drift(group, tier, plan)?;
        if let Some(drift) = differs.first() {
            return Err(CgroupError::Refused(format!(
                "{} of {} is {} after {} was written",
                drift.file, group.record.path, drift.found, drift.expected
            )));
        }
        let listed = self.processes(group)?.contains(&process.pid);
        if listed && self.holds(group, process)? == Some(true) {
            return Ok(());
        }
        let membership = super::process::proc_file(process.pid, "cgroup");
        let found = files::read_text(&membership)?.replace('\n', " ");
        Err(CgroupError::MovedMeanwhile(format!(
            "it was moved into {}, but {} says {found}",
            group.record.path,
            membership.display()
        )))
    }
}

/// See [`TierTree::compute`].
pub struct Computing<'a> {
    tree: &'a TierTree,
    name: &'static str,
    group: Group,
    plan: WeightPlan,
    child: Option<Child>,
}

impl Computing<'_> {
    /// Its process.
    pub fn pid(&self) -> Option<Pid> {
        self.child.as_ref().map(|child| child.pid)
    }

    /// Whether it has the CPU or wants it, and did not end by another hand.
    pub fn computes(&self) -> bool {
        let stat = self.pid().map(Stat::read);
        matches!(stat, Some(Ok(Some(stat))) if stat.state == b'R')
    }

    /// The directories of its group.
    pub fn dirs(&self) -> &GroupDirs {
        &self.group.dirs
    }

    /// Lets it end, and does not wait for that.
    ///
    /// # Errors
    /// Its weights could not be written: it ends once it gets the CPU.
    pub fn let_end(&mut self) -> Result<(), CgroupError> {
        // One that is idle and pinned would be long in ending on a CPU that others want.
        let raised = self.tree.write_tier(&self.group, Tier::Active, &self.plan).map(|_| ());
        if let Some(child) = &mut self.child {
            child.let_end();
        }
        raised
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        let raised = self.let_end();
        drop(self.child.take());
        if let Err(error) = raised.and_then(|()| self.tree.remove_trial(self.name)) {
            tracing::warn!(%error, "a group of a test of the tiers stays until the next test: {error}");
        }
    }
}

/// What a process on trial does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Wait,
    Compute,
}

/// A process that goes on until the end of a pipe.
struct Child {
    pid: Pid,
    /// Closed, the process ends.
    pipe: Option<OwnedFd>,
}

/// When a process on trial ends by itself, in seconds.
const LONGEST: u32 = 10;

/// How long the end of a process is waited for: others could freeze it, or leave it no CPU.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

impl Child {
    fn start(work: Work) -> std::io::Result<Child> {
        let (end, pipe) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let parent = std::process::id().cast_signed();
        // SAFETY: the child only makes system calls on integers and on bytes of its own stack,
        // which fork(2) allows also beside threads, and leaves by _exit(2).
        let raw = unsafe { libc::fork() };
        if raw == 0 {
            // SAFETY: as above.
            unsafe { child(work, end.as_raw_fd(), pipe.as_raw_fd(), parent) }
        }
        let pid = Pid::new(raw).ok_or_else(std::io::Error::last_os_error)?;
        // A real-time policy of lrsd's would be refused by kernels that give groups no budget of
        // it (CONFIG_RT_GROUP_SCHED), which says nothing of tasks. Refused, it keeps what it has.
        let _ = schedule::set(raw, schedule::Attributes::default());
        Ok(Child { pid, pipe: Some(pipe) })
    }

    fn let_end(&mut self) {
        self.pipe = None;
        let mut anywhere = rustix::thread::CpuSet::new();
        (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| anywhere.set(cpu));
        // One that stays pinned ends too, later.
        let pid = rustix::thread::Pid::from_raw(self.pid.raw());
        let _ = rustix::thread::sched_setaffinity(pid, &anywhere);
    }

    /// Whether it has ended.
    fn ended(&self) -> bool {
        // SAFETY: asks for the child of ours that has this number; no status is asked for.
        let found = unsafe { libc::waitpid(self.pid.raw(), std::ptr::null_mut(), libc::WNOHANG) };
        found == self.pid.raw()
            || found == -1 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR)
    }
}

/// # Safety
/// For a process that was just forked: it makes system calls only, and does not return.
unsafe fn child(work: Work, end: i32, pipe: i32, parent: libc::pid_t) -> ! {
    // SAFETY: system calls on integers and on one struct of this stack.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::alarm(LONGEST);
        // Its copy of the writing end would keep the pipe open for ever.
        libc::close(pipe);
        // Clients would wait for copies of their connections. Linux 5.9 and later; before that they do so.
        if end > 0 {
            libc::syscall(libc::SYS_close_range, 0u32, end as u32 - 1, 0u32);
        }
        libc::syscall(libc::SYS_close_range, end as u32 + 1, u32::MAX, 0u32);
        let mut poll = libc::pollfd { fd: end, events: libc::POLLIN, revents: 0 };
        let patience = if work == Work::Wait { -1 } else { 0 };
        while libc::getppid() == parent && libc::poll(&raw mut poll, 1, patience) == 0 {
            for step in 0..100_000u32 {
                std::hint::black_box(step);
            }
        }
        libc::_exit(0)
    }
}

/// Kills a child, and waits for its end on a thread of its own.
fn abandon(pid: Pid) {
    let wait = move || {
        // SAFETY: a child of ours, that nothing else waits for.
        unsafe {
            libc::kill(pid.raw(), libc::SIGKILL);
            while libc::waitpid(pid.raw(), std::ptr::null_mut(), 0) == -1
                && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
            {}
        }
    };
    if let Err(error) = std::thread::Builder::new().name("lrs-trial".into()).spawn(wait) {
        tracing::warn!(%error, "process {}, of a test of lrsd's own, has not ended: {error}", pid.raw());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.let_end();
        let step = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        while !self.ended() {
            if waited == ENDS_WITHIN {
                // It has no CPU, or others froze it. It ends once it can.
                abandon(self.pid);
                return;
            }
            std::thread::sleep(step);
            waited += step;
        }
    }
}
