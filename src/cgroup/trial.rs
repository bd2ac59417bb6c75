//! An admission before there is a task: the proof that one is possible.
//!
//! What makes admissions impossible by itself is looked up ([`super::obstacle`]); what else may stand
//! in the way (a security module, a filter of system calls, mounts of an unheard-of kind) shows when it
//! is tried. So a daemon that starts without tasks puts a process of its own into a group made like
//! a task's, with a tier, reads back where it is, and takes both away. No client sees it.
//!
//! The process is a fork of this one that makes system calls alone until the pipe to it is closed,
//! by hand or by the end of the daemon. lrsd has the log's thread beside it then, and no descriptor that another
//! process could wait for but its locks, which end with both.

use std::os::fd::{AsRawFd as _, OwnedFd};

use super::layout::Layout;
use super::name::TRIAL;
use super::process::Stat;
use super::tree::TierTree;
use super::{Attachment, CgroupError, Conditions, Group, Kin, Reach, WeightPlan, dirs, files};
use crate::core::model::Tier;
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
        let Some(root) = self.root().filter(|root| !root.takes_over) else { return Ok(()) };
        let Layout { path, hierarchies, .. } = &root.layout;
        if let Some(file) = self.frozen_root()? {
            // Its process could not end there; status names what prevents admissions meanwhile.
            tracing::warn!(file = %file.display(), "whether a task can be admitted was not tried: others froze the root by {}", file.display());
            return Ok(());
        }
        let child = match Waiting::start() {
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
        let tried = self.put(&path, child.pid);
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

    fn put(&self, path: &str, pid: Pid) -> Result<(), CgroupError> {
        let facts = Stat::read(pid)?.ok_or(CgroupError::ProcessGone(pid))?;
        let process = ProcessRef { pid, start_ticks: facts.start_ticks };
        let group = self.make_own(path.to_owned(), Reach::All)?;
        self.write_tier(&group, Tier::Passive, &PLAN)?;
        let mut tries = 0;
        loop {
            self.attach_if(&group, process, Kin::Descendants, Conditions::default())?;
            match self.check_trial(&group, process) {
                Err(CgroupError::MovedMeanwhile(_)) if tries < MOST_MOVED => tries += 1,
                checked => return checked,
            }
        }
    }

    fn check_trial(&self, group: &Group, process: ProcessRef) -> Result<(), CgroupError> {
        debug_assert_eq!(group.record.attachment, Attachment::Own);
        let differs = self.drift(group, Tier::Passive, &PLAN)?;
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

/// A process that waits for the end of a pipe.
struct Waiting {
    pid: Pid,
    /// Closed, the process ends.
    pipe: Option<OwnedFd>,
}

impl Waiting {
    fn start() -> std::io::Result<Waiting> {
        let (end, pipe) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // SAFETY: the child only makes system calls on integers and on a byte of its own stack,
        // which fork(2) allows also beside threads, and leaves by _exit(2).
        let raw = unsafe { libc::fork() };
        if raw == 0 {
            let mut byte = 0u8;
            // SAFETY: as above. Its copy of the writing end would keep the pipe open for ever.
            unsafe {
                libc::close(pipe.as_raw_fd());
                while libc::read(end.as_raw_fd(), (&raw mut byte).cast(), 1) == -1
                    && *libc::__errno_location() == libc::EINTR
                {}
                libc::_exit(0)
            }
        }
        let pid = Pid::new(raw).ok_or_else(std::io::Error::last_os_error)?;
        // A real-time policy of lrsd's would be refused by kernels that give groups no budget of
        // it (CONFIG_RT_GROUP_SCHED), which says nothing of tasks.
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: `parameters` outlives the call. Refused, it keeps what it has.
        unsafe { libc::sched_setscheduler(raw, libc::SCHED_OTHER, &raw const parameters) };
        Ok(Waiting { pid, pipe: Some(pipe) })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pipe = None;
        // SAFETY: waits for the child of ours that has this number; no status is asked for.
        while unsafe { libc::waitpid(self.pid.raw(), std::ptr::null_mut(), 0) } == -1
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
    }
}
