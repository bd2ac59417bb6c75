//! What a process is in that would be lost or disturbed if it were moved: the unit of systemd's,
//! its neighbours, and room for a group beside its own.
//!
//! All of it is read from the cgroup, for systemd knows nothing of the units of a user's own
//! service manager, and may not answer. The path names the unit: units of one manager are never
//! below each other, so the first service or scope from the top is the system's, and below
//! `user@UID.service` the first one is the user's (systemd.slice(5)).
//!
//! Limits. Room for a group is only found on v2, where the limits of a unit hold for all that is
//! below it, and only where systemd marks delegated groups (`user.delegate`, systemd 251; `trusted.delegate` is
//! older, but takes CAP_SYS_ADMIN to read, which lrsd.service has not).

use std::path::Path;

use super::attach::{Mover, child_groups};
use super::mounts::{Hierarchy, SYSTEMD};
use super::process::{Membership, is_within};
use super::weights::CPU_WEIGHT;
use super::{CgroupError, files, limits, scope};
use crate::units::{Pid, ProcessRef};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// The unit the process is in.
    pub unit: UnitPlace,
    /// No other process is in its group, and no group is below that.
    pub alone: bool,
    /// Its group has a CPU weight of its own.
    pub weighed: bool,
    /// Where a group for it can be made within the unit.
    pub room: Option<Room>,
}

/// A unit, as the path of a cgroup names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlace {
    /// With its type.
    pub name: String,
    /// Its cgroup, from the root of systemd's hierarchy.
    pub path: String,
    /// It is one of a user's own service manager.
    pub of_user: bool,
}

impl UnitPlace {
    /// Whether it is a service; else it is a scope.
    pub fn is_service(&self) -> bool {
        self.name.ends_with(".service")
    }

    fn of(path: &str) -> Option<UnitPlace> {
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
}

/// A group of a delegated unit that holds the process's own and gives those in it CPU weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Its path.
    pub parent: String,
    /// To whom it is delegated: the owner of its directory.
    pub owner: u32,
}

/// See [`super::TierTree::surroundings`].
pub(super) fn of(
    mover: &Mover<'_>,
    process: ProcessRef,
) -> Result<Option<Surroundings>, CgroupError> {
    let Some(membership) = Membership::read(process.pid)? else {
        return Err(CgroupError::ProcessGone(process.pid));
    };
    let tracked: Vec<&Hierarchy> = scope::tracked(mover.hierarchies).collect();
    let systemds = tracked.iter().find(|hierarchy| hierarchy.name == SYSTEMD).or(tracked.first());
    let Some(hierarchy) = systemds else { return Ok(None) };
    let Some(path) = membership.path_in(hierarchy) else { return Ok(None) };
    let Some(unit) = UnitPlace::of(path) else { return Ok(None) };
    let primary = &mover.hierarchies[0];
    // On v1 the hierarchy with the weights may show a group of many units.
    let weighed = membership.path_in(primary) == Some(path)
        && (!primary.is_unified() || primary.dir(path).join(CPU_WEIGHT.file).exists());
    Ok(Some(Surroundings {
        alone: is_alone(&hierarchy.dir(path), process.pid)?,
        room: room(mover, process, &unit, path)?,
        unit,
        weighed,
    }))
}

fn is_alone(dir: &Path, pid: Pid) -> Result<bool, CgroupError> {
    let file = dir.join("cgroup.procs");
    // As text: one of another pid namespace is listed as 0 and counts.
    let others = match std::fs::read_to_string(&file) {
        Ok(text) => text.lines().any(|line| line != pid.to_string()),
        // A threaded group (cgroup-v2.rst "Threads") is shared by its nature.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => true,
        Err(error) => return Err(files::failed("read", &file, None, error)),
    };
    Ok(!others && child_groups(dir)?.is_empty())
}

/// Beside the process's own group, which has processes and so cannot have groups with weights
/// below it (cgroup-v2.rst "No Internal Process Constraint").
fn room(
    mover: &Mover<'_>,
    process: ProcessRef,
    unit: &UnitPlace,
    path: &str,
) -> Result<Option<Room>, CgroupError> {
    let primary = &mover.hierarchies[0];
    let Some((parent, _)) = path.rsplit_once('/') else { return Ok(None) };
    let weighs = || primary.dir(path).join(CPU_WEIGHT.file).exists();
    if !primary.is_unified()
        || !is_within(parent, &unit.path)
        || !is_delegated(&primary.dir(&unit.path))
        || !weighs()
    {
        return Ok(None);
    }
    // A limit of the group itself would be left.
    let beside = format!("{parent}/x");
    if limits::escaped(&Mover { root: &beside, ..*mover }, process, None).is_some() {
        return Ok(None);
    }
    let dir = primary.dir(parent);
    match rustix::fs::stat(&dir) {
        Ok(stat) => Ok(Some(Room { parent: parent.into(), owner: stat.st_uid })),
        Err(errno) => Err(files::failed("stat", &dir, None, errno.into())),
    }
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

    #[test]
    fn the_path_names_the_unit() {
        let place = |path: &str| {
            UnitPlace::of(path)
                .map(|unit| (unit.name, path[unit.path.len()..].to_owned(), unit.of_user))
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
    fn neighbours_and_groups_below_count() {
        let dir = tempfile::tempdir().unwrap();
        let pid = Pid::new(7).unwrap();
        let alone = |procs: &str| {
            std::fs::write(dir.path().join("cgroup.procs"), procs).unwrap();
            is_alone(dir.path(), pid).unwrap()
        };
        assert!(alone("7\n"));
        assert!(!alone("7\n8\n"));
        assert!(!alone("0\n7\n"), "one that this daemon cannot see");
        std::fs::create_dir(dir.path().join("below")).unwrap();
        assert!(!alone("7\n"));
    }
}
