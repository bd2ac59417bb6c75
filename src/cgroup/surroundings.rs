//! Who holds a process: none, a unit of systemd's, or another manager; and whether its group could
//! be a task as it is.
//!
//! All of it is read from the cgroups, for systemd knows nothing of the units of a user's own
//! service manager, and may not answer. The path names the unit: units of one manager are never
//! below each other, so the first service or scope from the top is the system's, and below
//! `user@UID.service` the first one is the user's (systemd.slice(5)). Both are systemd's, so
//! that `user@UID.service`, although delegated, is no other manager.
//!
//! What no unit explains is another manager's: a group below a unit, which only that unit's
//! own program can have made; a unit that is delegated; any other path (`/docker/ID`, `/slurm/...`).
//! That a unit is delegated is read from its mark (`user.delegate`, systemd 251; `trusted.delegate` is
//! older, but takes CAP_SYS_ADMIN to read, which lrsd.service has not; v1 knows only that one) or
//! passed in by a caller that has asked systemd.
//!
//! Limits. Only the hierarchies that LRS moves processes in are looked at.

use std::path::Path;

use super::mounts::{Hierarchy, SYSTEMD};
use super::mover::{Deadline, Mover};
use super::process::{self, Membership, is_within};
use super::walk::child_groups;
use super::{CgroupError, HeldBy, Members, Surroundings, UnitPlace, files, scope};
use crate::core::leaving::Manager;
use crate::units::{Pid, ProcessRef};

/// The unit that the cgroup at `path` is of.
fn unit_at(path: &str) -> Option<UnitPlace> {
    let mut of_user = false;
    let mut end = 0;
    for name in path.split('/').skip(1) {
        end += 1 + name.len();
        if name.ends_with(".slice") {
            continue;
        }
        if !name.ends_with(".service") && !name.ends_with(".scope") {
            return None;
        }
        if name.starts_with("user@") && name.ends_with(".service") && end < path.len() {
            of_user = true;
            continue;
        }
        return Some(UnitPlace { name: name.into(), path: path[..end].into(), of_user });
    }
    None
}

/// What [`of`] cannot find out itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitFacts {
    /// systemd is the init of this node.
    pub(super) systemd_runs: bool,
    /// systemd reported that the unit is delegated, or that it knows no such unit.
    pub(super) foreign_unit: bool,
}

/// See [`super::TierTree::surroundings`].
pub(super) fn of(
    mover: &Mover<'_>,
    process: ProcessRef,
    members: Members,
    facts: UnitFacts,
) -> Result<Surroundings, CgroupError> {
    let gone = || CgroupError::ProcessGone(process.pid);
    let membership = Membership::of_process(process.pid)?.ok_or_else(gone)?;
    let unit = facts.systemd_runs.then(|| unit_of(mover, &membership)).flatten();
    let primary = &mover.hierarchies[0];
    let path = membership.path_in(primary).unwrap_or("/");
    let weight = || primary.dir(path).join(crate::core::weights::CPU_WEIGHT.file);
    let held_by = held_by(mover, &membership, unit.as_ref(), facts.foreign_unit);
    let (dir, weighed) = match (&held_by, unit) {
        (HeldBy::Systemd(_), Some((hierarchy, place))) => {
            // On v1 the hierarchy with the weights may show a group of many units.
            let same = path == place.path;
            (hierarchy.dir(&place.path), same && (!primary.is_unified() || weight().exists()))
        }
        // In a root it is never alone.
        _ if path == "/" => return Ok(Surroundings { held_by, alone: false, weighed: false }),
        _ => (primary.dir(path), !primary.is_unified() || weight().exists()),
    };
    let mut task = vec![process.pid];
    if members == Members::Family {
        let deadline = Deadline::after(mover.budget);
        task.extend(process::descendants(process.pid, &|| deadline.passed())?.pids);
    }
    Ok(Surroundings { held_by, alone: holds_only(&dir, &task)?, weighed })
}

/// The unit a process is in, and the hierarchy in which systemd tracks it.
fn unit_of<'a>(mover: &Mover<'a>, membership: &Membership) -> Option<(&'a Hierarchy, UnitPlace)> {
    let tracked: Vec<&Hierarchy> = scope::tracked(mover.hierarchies).collect();
    let systemds = tracked.iter().find(|hierarchy| hierarchy.name == SYSTEMD).or(tracked.first());
    let hierarchy = *systemds?;
    Some((hierarchy, unit_at(membership.path_in(hierarchy)?)?))
}

fn held_by(
    mover: &Mover<'_>,
    membership: &Membership,
    unit: Option<&(&Hierarchy, UnitPlace)>,
    foreign_unit: bool,
) -> HeldBy {
    let own = unit.filter(|(hierarchy, place)| {
        membership.path_in(hierarchy) == Some(&place.path)
            && !foreign_unit
            && !is_delegated(&hierarchy.dir(&place.path))
    });
    let free = |path: &str| path == "/" || is_within(path, mover.root);
    let paths = || {
        mover.hierarchies.iter().filter_map(|hierarchy| {
            Some((hierarchy, membership.path_in(hierarchy).filter(|path| !free(path))?))
        })
    };
    // systemd makes groups for a unit and its slices only where they need one.
    let systemds = |path: &str| own.is_some_and(|(_, place)| is_within(&place.path, path));
    let foreign = paths().find(|(_, path)| !systemds(path));
    let Some((hierarchy, path)) = foreign else {
        let place = own.filter(|_| paths().next().is_some());
        return place.map_or(HeldBy::None, |(_, place)| HeldBy::Systemd(place.clone()));
    };
    let weights =
        |hierarchy: &Hierarchy| ["cpu", "cpuacct", "blkio"].iter().any(|name| hierarchy.has(name));
    let apart_from_weights =
        !mover.hierarchies[0].is_unified() && !paths().any(|(hierarchy, _)| weights(hierarchy));
    let group = match mover.hierarchies.len() {
        1 => path.to_owned(),
        _ => format!("{}:{path}", hierarchy.name),
    };
    HeldBy::Manager(Manager { name: manager_name(path).to_owned(), group, apart_from_weights })
}

/// What people know the manager of the group `path` by: its unit, or the topmost group.
fn manager_name(path: &str) -> &str {
    let names = || path.split('/').filter(|name| !name.is_empty());
    let is_unit = |name: &&str| {
        (name.ends_with(".service") || name.ends_with(".scope")) && !name.starts_with("user@")
    };
    names().find(is_unit).or_else(|| names().next()).unwrap_or(path)
}

/// Whether no other than `task` is in the group at `dir` and below.
fn holds_only(dir: &Path, task: &[Pid]) -> Result<bool, CgroupError> {
    let file = dir.join("cgroup.procs");
    let is_one =
        |line: &str| line.parse().ok().and_then(Pid::new).is_some_and(|pid| task.contains(&pid));
    // One of another pid namespace is listed as 0 and counts.
    let only = match std::fs::read_to_string(&file) {
        Ok(text) => text.lines().all(is_one),
        Err(error) if files::is_gone(&error) => true,
        // A threaded group (cgroup-v2.rst "Threads") is shared by its nature.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => false,
        Err(error) => return Err(files::failed("read", &file, None, error)),
    };
    if !only {
        return Ok(false);
    }
    for below in child_groups(dir)? {
        if !holds_only(&below, task)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// systemd marks what it delegates; a user's manager may only write `user.`.
fn is_delegated(dir: &Path) -> bool {
    ["trusted.delegate", "user.delegate"].iter().any(|name| {
        let mut value = [0u8; 4];
        // Not marked, and a kernel without such marks, are the same here: not known to be.
        matches!(rustix::fs::getxattr(dir, *name, &mut value), Ok(1)) && value[0] == b'1'
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::mounts::Mounts;

    #[test]
    fn the_path_names_the_unit() {
        let place = |path: &str| {
            unit_at(path).map(|unit| (unit.name, path[unit.path.len()..].to_owned(), unit.of_user))
        };
        let unit = |name: &str, below: &str, of_user| Some((name.into(), below.into(), of_user));
        assert_eq!(place("/system.slice/cron.service"), unit("cron.service", "", false));
        assert_eq!(
            place("/user.slice/user-0.slice/session-3.scope"),
            unit("session-3.scope", "", false)
        );
        assert_eq!(place("/init.scope"), unit("init.scope", "", false));
        let part = "/system.slice/agent.service/main/job.scope";
        assert_eq!(place(part), unit("agent.service", "/main/job.scope", false));
        let user = "/user.slice/user-1000.slice/user@1000.service";
        assert_eq!(place(user), unit("user@1000.service", "", false));
        assert_eq!(
            place(&format!("{user}/app.slice/run-u1.service")),
            unit("run-u1.service", "", true)
        );
        assert_eq!(place(&format!("{user}/init.scope")), unit("init.scope", "", true));
        for path in ["/", "/lrs/t1-1", "/docker/0123", "/user.slice", "/a.service.d/b.service"] {
            assert_eq!(place(path), None, "{path}");
        }
    }

    #[test]
    fn neighbours_count_and_empty_groups_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let pids = [7, 9].map(|pid| Pid::new(pid).unwrap());
        let write = |group: &Path, procs: &str| {
            std::fs::create_dir_all(group).unwrap();
            std::fs::write(group.join("cgroup.procs"), procs).unwrap();
        };
        let alone = |procs: &str, task: &[Pid]| {
            write(dir.path(), procs);
            holds_only(dir.path(), task).unwrap()
        };
        assert!(alone("7\n", &pids[..1]));
        assert!(!alone("7\n8\n", &pids));
        assert!(!alone("0\n7\n", &pids), "one that this daemon cannot see");
        assert!(alone("7\n9\n", &pids) && !alone("7\n9\n", &pids[..1]));
        write(&dir.path().join("below"), "");
        assert!(alone("7\n", &pids[..1]));
        write(&dir.path().join("below"), "8\n");
        assert!(!alone("7\n", &pids[..1]));
    }

    /// Mounts of a hybrid node, v1 with a freezer and systemd's own hierarchy, at a made-up place.
    fn hybrid(top: &Path) -> Vec<Hierarchy> {
        let mount = |at: &str, kind: &str, options: &str| {
            format!("1 1 0:1 / {}/{at} rw - {kind} none rw,{options}\n", top.display())
        };
        let mounts = Mounts::parse(
            &[
                mount("cpu", "cgroup", "cpu,cpuacct"),
                mount("blkio", "cgroup", "blkio"),
                mount("freezer", "cgroup", "freezer"),
                mount("systemd", "cgroup", "name=systemd"),
            ]
            .concat()
            .into_bytes(),
        );
        mounts.v1().into_iter().chain(mounts.systemd()).collect()
    }

    fn holder(membership: &str, foreign_unit: bool, systemd_runs: bool) -> String {
        let top = tempfile::tempdir().unwrap();
        let hierarchies = hybrid(top.path());
        let mover =
            Mover { hierarchies: &hierarchies, root: "/lrs", budget: super::super::mover::BUDGET };
        let membership = Membership::parse(membership.as_bytes());
        let unit = systemd_runs.then(|| unit_of(&mover, &membership)).flatten();
        match held_by(&mover, &membership, unit.as_ref(), foreign_unit) {
            HeldBy::None => "nobody".to_owned(),
            HeldBy::Systemd(place) => format!("systemd {}", place.name),
            HeldBy::Manager(Manager { name, group, apart_from_weights }) => {
                format!("{name} {group}{}", if apart_from_weights { " apart" } else { "" })
            }
        }
    }

    /// Paths in cpu,cpuacct, blkio, freezer and name=systemd.
    fn places(paths: [&str; 4]) -> String {
        let [cpu, blkio, freezer, systemd] = paths;
        format!(
            "4:cpu,cpuacct:{cpu}\n3:blkio:{blkio}\n2:freezer:{freezer}\n1:name=systemd:{systemd}\n"
        )
    }

    #[test]
    fn who_holds_a_process() {
        let at = |paths| holder(&places(paths), false, true);
        let everywhere = |path| at([path; 4]);
        assert_eq!(everywhere("/"), "nobody");
        assert_eq!(everywhere("/lrs/t1-1"), "nobody");
        assert_eq!(at(["/lrs/t1-1", "/", "/", "/"]), "nobody");
        let session = "/user.slice/user-0.slice/session-3.scope";
        assert_eq!(at(["/", "/", "/", session]), "systemd session-3.scope");
        assert_eq!(at(["/user.slice", "/user.slice", "/", session]), "systemd session-3.scope");
        let user = "/user.slice/user-7.slice/user@7.service/app.slice/run-1.scope";
        assert_eq!(everywhere(user), "systemd run-1.scope");
        // What a unit's own program made is that program's.
        let step = "/system.slice/slurmstepd.scope/job_1/step_0/user/task_0";
        assert_eq!(everywhere(step), format!("slurmstepd.scope cpu:{step}"));
        let podman = "/user.slice/user-7.slice/user@7.service/user.slice/libpod-1.scope/container";
        assert_eq!(everywhere(podman), format!("libpod-1.scope cpu:{podman}"));
        for path in
            ["/docker/0123", "/kubepods/burstable/pod1/2", "/slurm/uid_0/job_1", "/htcondor/a"]
        {
            let name = path.split('/').nth(1).unwrap();
            assert_eq!(everywhere(path), format!("{name} cpu:{path}"));
        }
        // Slurm on v1, proctrack/cgroup alone.
        assert_eq!(
            at(["/", "/", "/slurm_a/uid_0/job_1", "/system.slice/slurmd.service"]),
            "slurm_a freezer:/slurm_a/uid_0/job_1 apart"
        );
        // Only systemd may leave the cpu controller of all units of a slice.
        assert_eq!(at(["/system.slice", "/", "/", "/system.slice/a.service"]), "systemd a.service");
    }

    #[test]
    fn a_unit_that_systemd_calls_delegated_or_unknown_is_another_managers() {
        let nomad = "/nomad.slice/share.slice/a.task.scope";
        let lines = places([nomad; 4]);
        assert_eq!(holder(&lines, true, true), format!("a.task.scope cpu:{nomad}"));
        assert_eq!(holder(&lines, false, false), format!("a.task.scope cpu:{nomad}"), "no systemd");
        let docker = "/system.slice/docker-1.scope";
        let lines = places(["/", "/", "/", docker]);
        assert_eq!(
            holder(&lines, true, true),
            format!("docker-1.scope name=systemd:{docker} apart")
        );
    }

    #[test]
    fn a_mark_tells_that_a_unit_is_delegated() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_delegated(dir.path()));
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(dir.path(), "user.delegate", b"1", flags) {
            Ok(()) => assert!(is_delegated(dir.path())),
            Err(error) => assert_eq!(error, rustix::io::Errno::OPNOTSUPP, "no such marks here"),
        }
    }
}
