//! Which processes beside its main one belong to a task.
//!
//! A container of YARN's DefaultContainerExecutor is a session (`setsid`), and what its shell
//! leaves behind goes to init: no chain of parents leads from the container to it any more, the
//! session id still does. It is also what the node manager itself signals to end a container
//! (`kill -- -PID`), so a session is what its owner takes for the container.
//!
//! Only what shares the main process's group is ever moved, so the members are looked for in
//! that group's `cgroup.procs`, not in all of /proc: with a thousand containers starting at once
//! the list grows shorter with every one that is moved.
//!
//! Limits. A process that began a session of its own and whose ancestors have all ended belongs
//! to nobody that can be told.

use std::collections::HashSet;
use std::fs;

use serde::{Deserialize, Serialize};

use super::attach::{Deadline, Mover, Moves, Step};
use super::process::{self, Facts};
use super::{CgroupError, files};
use crate::units::Pid;

/// Whom an attach moves beside the main process, of those in the same group as it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kin {
    /// Its descendants.
    #[default]
    Descendants,
    /// All members of the session it leads, and their descendants.
    Session,
}

impl Kin {
    /// Refuses a process that cannot have this kin.
    pub(super) fn check(self, pid: Pid, facts: &Facts) -> Result<(), CgroupError> {
        if self == Kin::Descendants || facts.session == pid.raw() {
            return Ok(());
        }
        Err(CgroupError::Refused(format!(
            "process {pid} does not lead a session, it is in that of process {}; a container is \
             taken as a whole session, by its first process",
            facts.session
        )))
    }
}

impl Mover<'_> {
    /// Brings in what is in `origin` and belongs to the session of `main`, which leads it.
    /// `None`: the deadline passed before all were looked at.
    pub(super) fn bring_in_session(
        &self,
        main: Pid,
        group: &str,
        origin: &str,
        moves: &mut Moves,
        deadline: Deadline,
    ) -> Result<Option<usize>, CgroupError> {
        let mut left = self.members_of(origin, deadline)?;
        let listed: HashSet<i32> = left.iter().map(|(pid, _)| pid.raw()).collect();
        // A number in the list is of a process in `origin`, whoever had it when it was moved.
        let mut ours: HashSet<i32> =
            moves.keys().map(|pid| pid.raw()).filter(|pid| !listed.contains(pid)).collect();
        ours.insert(main.raw());
        let mut found = 0;
        loop {
            let (members, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, facts)| {
                facts.session == main.raw() || ours.contains(&facts.parent)
            });
            if members.is_empty() {
                // The listing itself may have been cut short.
                return Ok((!deadline.passed()).then_some(found));
            }
            left = others;
            for (pid, facts) in members {
                if deadline.passed() {
                    return Ok(None);
                }
                ours.insert(pid.raw());
                if matches!(self.settle(pid, &facts, group, origin, moves)?, Step::Moved) {
                    found += 1;
                }
            }
        }
    }

    /// The processes directly in the group `path`.
    fn members_of(&self, path: &str, deadline: Deadline) -> Result<Vec<(Pid, Facts)>, CgroupError> {
        let Some(primary) = self.hierarchies.first() else { return Ok(Vec::new()) };
        let file = primary.dir(path).join("cgroup.procs");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if files::is_gone(&error) => return Ok(Vec::new()),
            // A threaded group lists no processes (cgroup-v2.rst "Threads").
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return process::all(&|| deadline.passed());
            }
            Err(error) => return Err(files::failed("read", &file, None, error)),
        };
        let pids = text.lines().filter_map(|line| Pid::new(line.parse().ok()?));
        let mut members = Vec::new();
        for pid in pids.take_while(|_| !deadline.passed()) {
            // One that ended since the list was made has left nothing to move.
            members.extend(Facts::read(pid)?.map(|facts| (pid, facts)));
        }
        Ok(members)
    }
}
