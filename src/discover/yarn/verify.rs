//! Whether a process is the container that its pid file names, and how LRS may take it.
//!
//! A pid file names a process, but under DefaultContainerExecutor every container runs as the
//! NodeManager's user and may write one; an environment is what its owner makes of it. So one
//! never counts without the others: the process leads its session, has the container's id in its
//! environment, began before its pid file was first read, and is where containers of that
//! NodeManager are. What is anywhere else was put there on purpose and stays there.
//!
//! Only the wall clock tells when a file was written, and what it showed then is unknown: compared
//! with it, all that ran before the clock was set forward would have begun after its pid file. So two times since boot are compared: that at which LRS first read this file, and
//! that at which the process began.
//!
//! A pid file comes before the last exec of the launch script, and under LinuxContainerExecutor
//! before the move into the container's group. [`Decision::Wait`] is for that time.
//!
//! Limit: a number that was used again before LRS first read the pid file is recognised by session,
//! environment, user and cgroup alone.

use std::io;

use super::ids::ContainerId;
use super::managers::Managers;
use super::proc::{self, Process};
use crate::cgroup::{Places, Whereabouts};
use crate::discover::Attach;
use crate::units::{BootTime, Pid};
use lrs_hadoop_conf::site::CgroupLayout;

/// A process that may be a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) container: ContainerId,
    /// When its pid file was first read; `None` without one.
    pub(super) known: Option<BootTime>,
    /// The user of its NodeManager.
    pub(super) manager_uid: u32,
}

/// What the settings allow.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Whether containers run as the NodeManager's user: DefaultContainerExecutor.
    pub(super) same_user: bool,
    /// Where containers have groups of their own.
    pub(super) layout: Option<CgroupLayout>,
    /// LRS's own root, where an earlier daemon put containers.
    pub(super) own_root: Option<String>,
}

/// What /proc tells of it.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) seen: Process,
    pub(super) uid: u32,
    /// `CONTAINER_ID` of its environment.
    pub(super) container: Option<String>,
    pub(super) places: Places,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is that container.
    Take(Attach),
    /// Not yet; why not, if it stays so.
    Wait(String),
    /// It is not touched, and why.
    Ignore(String),
    /// It is where no NodeManager was seen, and is not touched unless one is found there.
    Foreign(String),
}

/// Reads what is known of `pid`; `Ok(None)` when it is gone.
pub(super) fn evidence(pid: Pid, whereabouts: &Whereabouts) -> Result<Option<Evidence>, String> {
    let unread = |error: io::Error| format!("process {pid} cannot be looked at: {error}");
    let Some(seen) = proc::look(pid).map_err(unread)? else { return Ok(None) };
    let container = match proc::variable(pid, "CONTAINER_ID") {
        Ok(container) => container,
        Err(error) if proc::is_gone(&error) => return Ok(None),
        Err(error) => {
            return Err(format!(
                "the environment of process {pid} cannot be read ({error}); lrsd needs root or \
                 CAP_SYS_PTRACE for it"
            ));
        }
    };
    let places = whereabouts.of(pid).map_err(|error| error.to_string())?;
    let uid = proc::owner(pid).map_err(unread)?;
    // The same process as before all that, or none of it counts.
    if proc::look(pid).map_err(unread)?.map(|again| again.process) != Some(seen.process) {
        return Ok(None);
    }
    Ok(uid.zip(places).map(|(uid, places)| Evidence { seen, uid, container, places }))
}

/// Judges one process.
pub(super) fn judge(
    claim: &Claim,
    evidence: &Evidence,
    rules: &Rules,
    managers: &Managers,
) -> Decision {
    let pid = evidence.seen.process.pid;
    let id = claim.container.to_string();
    if claim.known.is_some_and(|known| proc::started(evidence.seen.process) > known) {
        return Decision::Ignore(format!(
            "process {pid} began after its pid file was written: the number was used again"
        ));
    }
    if rules.same_user && evidence.uid != claim.manager_uid {
        return Decision::Ignore(format!(
            "process {pid} runs as user {}, and DefaultContainerExecutor starts containers as \
             user {}",
            evidence.uid, claim.manager_uid
        ));
    }
    if !evidence.seen.leads {
        return Decision::Wait(format!(
            "process {pid} does not lead its session; the NodeManager needs setsid(1) in its PATH"
        ));
    }
    match &evidence.container {
        Some(found) if *found == id => {}
        Some(_) => {
            return Decision::Ignore(format!("process {pid} has another CONTAINER_ID"));
        }
        None => return Decision::Wait(format!("process {pid} has no CONTAINER_ID")),
    }
    place(&id, claim, evidence, rules, managers)
}

/// How it is taken from where it is.
fn place(
    id: &str,
    claim: &Claim,
    evidence: &Evidence,
    rules: &Rules,
    managers: &Managers,
) -> Decision {
    let pid = evidence.seen.process.pid;
    let Some(path) = evidence.places.cpu() else {
        return Decision::Ignore(format!(
            "process {pid} is in a cgroup that is not seen from here; run lrsd in the node's own \
             cgroup namespace"
        ));
    };
    let hierarchy = rules.layout.as_ref().map(|layout| layout.hierarchy.as_str());
    if path.rsplit_once('/').is_some_and(|(above, last)| Some(above) == hierarchy && last == id) {
        return Decision::Take(Attach::InPlace { cgroup: path.to_owned() });
    }
    if rules.own_root.as_deref().is_some_and(|root| evidence.places.within(root)) {
        return Decision::Take(Attach::Session { from: Some(path.to_owned()) });
    }
    if managers.one_was_at(claim.manager_uid, &evidence.places) {
        return match &rules.layout {
            // container-executor writes the pid file first, then moves itself.
            Some(layout) => Decision::Wait(format!(
                "process {pid} is not in {}/{id} but where the NodeManager is; has it \
                 yarn.nodemanager.resource.cpu.enabled?",
                layout.hierarchy
            )),
            None => Decision::Take(Attach::Session { from: Some(path.to_owned()) }),
        };
    }
    Decision::Foreign(if managers.any_of(claim.manager_uid) {
        format!(
            "process {pid} is in the cgroup {path}, where no NodeManager of user {} is: it was \
             put there",
            claim.manager_uid
        )
    } else {
        format!(
            "no NodeManager of user {} runs, so that nothing says that the cgroup {path} of \
             process {pid} is its containers'",
            claim.manager_uid
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::units::ProcessRef;

    const ID: &str = "container_1_0001_01_000002";

    struct Case {
        claim: Claim,
        evidence: Evidence,
        rules: Rules,
        managers: Managers,
    }

    /// A container of DefaultContainerExecutor as it should be.
    fn case() -> Case {
        let mut managers = Managers::default();
        managers.pretend(7, Places::made_up("/system.slice/nm.service"));
        let process = ProcessRef { pid: Pid::new(42).unwrap(), start_ticks: 100 };
        Case {
            claim: Claim {
                container: ID.parse().unwrap(),
                known: Some(BootTime(Duration::from_secs(1000))),
                manager_uid: 7,
            },
            evidence: Evidence {
                seen: Process { process, parent: Pid::new(1), leads: true },
                uid: 7,
                container: Some(ID.to_owned()),
                places: Places::made_up("/system.slice/nm.service"),
            },
            rules: Rules { same_user: true, layout: None, own_root: Some("/lrs".to_owned()) },
            managers,
        }
    }

    fn verdict(change: impl FnOnce(&mut Case)) -> Decision {
        let mut case = case();
        change(&mut case);
        judge(&case.claim, &case.evidence, &case.rules, &case.managers)
    }

    fn ignored(verdict: Decision, why: &str) {
        match &verdict {
            Decision::Ignore(reason) | Decision::Foreign(reason) => {
                assert!(reason.contains(why), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }

    fn linux(case: &mut Case, path: &str) {
        let layout = CgroupLayout {
            hierarchy: "/hadoop-yarn".to_owned(),
            mount_path: None,
            v2: false,
            v2_mount_path: None,
            strict: false,
        };
        case.rules.same_user = false;
        case.rules.layout = Some(layout);
        case.evidence.uid = 99;
        case.evidence.places = Places::made_up(path);
    }

    #[test]
    fn what_fits_is_taken_whole() {
        let session = |from: &str| Decision::Take(Attach::Session { from: Some(from.to_owned()) });
        assert_eq!(verdict(|_| {}), session("/system.slice/nm.service"));
        assert_eq!(verdict(|c| c.claim.known = None), session("/system.slice/nm.service"));
        let back = verdict(|c| c.evidence.places = Places::made_up("/lrs/t1"));
        assert_eq!(back, session("/lrs/t1"), "an earlier daemon's");
    }

    #[test]
    fn a_group_of_its_own_is_edited_in_place() {
        let path = format!("/hadoop-yarn/{ID}");
        let in_place = Attach::InPlace { cgroup: path.clone() };
        assert_eq!(verdict(|c| linux(c, &path)), Decision::Take(in_place));
        for foreign in ["/hadoop-yarn/container_1_0001_01_000003", "/other/x", "/a/hadoop-yarn"] {
            ignored(verdict(|c| linux(c, foreign)), "it was put there");
        }
        ignored(verdict(|c| linux(c, &format!("/x/hadoop-yarn/{ID}"))), "it was put there");
        let early = verdict(|c| linux(c, "/system.slice/nm.service"));
        assert!(matches!(early, Decision::Wait(_)), "{early:?}");
    }

    #[test]
    fn a_launch_script_that_has_not_come_to_its_end_is_waited_for() {
        assert!(matches!(verdict(|c| c.evidence.container = None), Decision::Wait(_)));
        assert!(matches!(verdict(|c| c.evidence.seen.leads = false), Decision::Wait(_)));
    }

    #[test]
    fn what_does_not_fit_is_left_alone_with_the_reason() {
        let other = "container_1_0001_01_000003".to_owned();
        ignored(verdict(|c| c.evidence.container = Some(other)), "another CONTAINER_ID");
        ignored(verdict(|c| c.evidence.uid = 8), "user 8");
        let foreign = "/user.slice/user-7.slice/session-1.scope";
        ignored(verdict(|c| c.evidence.places = Places::made_up(foreign)), foreign);
        ignored(verdict(|c| c.managers = Managers::default()), "no NodeManager of user 7");
    }

    #[test]
    fn a_number_that_was_used_again_since_its_file_was_read_is_another_process() {
        let ticks = procfs::ticks_per_second();
        let began = |ticks| move |c: &mut Case| c.evidence.seen.process.start_ticks = ticks;
        ignored(verdict(began(1000 * ticks + 1)), "used again");
        assert!(matches!(verdict(began(1000 * ticks)), Decision::Take(_)));
    }
}
