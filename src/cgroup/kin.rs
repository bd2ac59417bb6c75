//! Which processes beside its main one belong to a task.
//!
//! A container of YARN's DefaultContainerExecutor is a session (`setsid`), and what its shell
//! leaves behind goes to init: no chain of parents leads from the container to it any more, the
//! session id still does. It is also what the node manager itself signals to end a container
//! (`kill -- -PID`), so a session is what its owner takes for the container.
//!
//! Only what shares the main process's group is ever moved, so the members are looked for in
//! that group's `cgroup.procs`, not in all of /proc: with a thousand containers starting at once
//! the list grows shorter with every one that is moved. Only a list made after the last move shows
//! that nothing is left outside, so each attach makes its own, and asks for the session of
//! everybody in it: by getsid(2), since `/proc/PID/stat` costs more than ten times as much and made
//! a burst of containers wait for it.
//!
//! Limits. A process that began a session of its own belongs to no known task once all its
//! ancestors have ended.

use std::collections::HashSet;
use std::fs;

use nix::errno::Errno;

use super::mover::{Deadline, Intake, Mover, Step};
use super::process::{self, Stat};
use super::{CgroupError, Kin, files};
use crate::units::Pid;

/// Refuses a process that cannot have this kin.
pub(super) fn check(kin: Kin, pid: Pid, facts: &Stat) -> Result<(), CgroupError> {
    if kin == Kin::Descendants || facts.session == pid.raw() {
        return Ok(());
    }
    Err(CgroupError::Refused(format!(
        "process {pid} does not lead a session, it is in that of process {}; a container is \
         taken as a whole session, by its first process",
        facts.session
    )))
}

impl Mover<'_> {
    /// Brings in what is in the main process's old group and belongs to the session of `main`, which leads it, and
    /// what descends from a member. `family`: the descendants of `main`, which are inside already.
    /// `None`: the deadline passed before all were looked at.
    pub(super) fn bring_in_session(
        &self,
        main: Pid,
        family: &[Pid],
        intake: &mut Intake<'_>,
        deadline: Deadline,
    ) -> Result<Option<usize>, CgroupError> {
        let mut found = 0;
        let origin = intake.origin.first().cloned().flatten().unwrap_or_default();
        for pid in self.listed_in(&origin, deadline)? {
            if deadline.passed() {
                return Ok(None);
            }
            if session_of(pid)? != Some(main.raw()) {
                continue;
            }
            // The number may have changed hands since.
            let Some(facts) = Stat::read(pid)?.filter(|facts| facts.session == main.raw()) else {
                continue;
            };
            if matches!(self.bring_inside(pid, &facts, intake)?, Step::Moved) {
                found += 1;
            }
        }
        // Children of orphans may have begun sessions of their own, also since the last pass.
        let walked: HashSet<Pid> = family.iter().copied().chain([main]).collect();
        let orphans: Vec<(Pid, u64)> = intake
            .moves
            .iter()
            .filter(|(pid, _)| !walked.contains(pid))
            .map(|(pid, (start_ticks, _))| (*pid, *start_ticks))
            .collect();
        for (orphan, start_ticks) in orphans {
            let below = process::descendants(orphan, &|| deadline.passed())?;
            // Asked afterwards: it was this process all the time, and not one that took its number.
            let same = Stat::read(orphan)?.is_some_and(|facts| facts.start_ticks == start_ticks);
            for pid in below.pids.into_iter().filter(|_| same) {
                if deadline.passed() {
                    return Ok(None);
                }
                let Some(facts) = Stat::read(pid)? else { continue };
                if matches!(self.bring_inside(pid, &facts, intake)?, Step::Moved) {
                    found += 1;
                }
            }
        }
        // A list itself may have been cut short.
        Ok((!deadline.passed()).then_some(found))
    }

    /// The processes directly in the group `path`, some of which may have ended.
    fn listed_in(&self, path: &str, deadline: Deadline) -> Result<Vec<Pid>, CgroupError> {
        let Some(primary) = self.hierarchies.first() else { return Ok(Vec::new()) };
        let file = primary.dir(path).join("cgroup.procs");
        match fs::read_to_string(&file) {
            Ok(text) => Ok(text.lines().filter_map(|line| Pid::new(line.parse().ok()?)).collect()),
            Err(error) if files::is_gone(&error) => Ok(Vec::new()),
            // A threaded group lists no processes (cgroup-v2.rst "Threads").
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                let all = process::all(&|| deadline.passed())?;
                Ok(all.into_iter().map(|(pid, _)| pid).collect())
            }
            Err(error) => Err(files::failed("read", &file, None, error)),
        }
    }
}

/// Number of the session that `pid` is in; `None`: it has ended.
fn session_of(pid: Pid) -> Result<Option<i32>, CgroupError> {
    match nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(pid.raw()))) {
        Ok(session) => Ok(Some(session.as_raw())),
        Err(Errno::ESRCH) => Ok(None),
        // A security module may keep it from us; /proc has it too.
        Err(_) => Ok(Stat::read(pid)?.map(|facts| facts.session)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_of_a_process_is_that_of_its_stat_file() {
        let mut child = std::process::Command::new("setsid").args(["sleep", "60"]).spawn().unwrap();
        let pid = Pid::new(child.id() as i32).unwrap();
        while session_of(pid).unwrap() != Some(pid.raw()) {
            std::thread::yield_now();
        }
        let own = Pid::new(std::process::id() as i32).unwrap();
        for pid in [pid, own] {
            let facts = Stat::read(pid).unwrap().unwrap();
            assert_eq!(session_of(pid).unwrap(), Some(facts.session));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(session_of(pid).unwrap(), None);
    }
}
