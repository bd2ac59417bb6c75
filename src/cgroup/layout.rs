//! Where groups of tasks are, looked up without any write: the hierarchies in use and the path of the
//! root.
//!
//! v2 is taken where its cpu controller is to be had, else v1.

use std::path::Path;

use rustix::fs::Access;

use super::mounts::{self, Hierarchy, Mounts};
use super::obstacle;
use super::process::Membership;
use super::{CgroupError, Preview, TreeSettings, Version, files};

/// `cgroup.root = "auto"`.
pub(super) const AUTO_ROOT: &str = "lrs";

/// Where groups of tasks are.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) version: Version,
    /// Of the root, with a leading slash.
    pub(super) path: String,
    /// Primary first. Of a node that is only observed there may be none.
    pub(super) hierarchies: Vec<Hierarchy>,
    /// Whether systemd owns the root.
    pub(super) is_scope: bool,
}

impl Layout {
    /// That of a root which is not opened: observe mode.
    pub(super) fn observed(
        settings: &TreeSettings,
        version: Version,
        hierarchies: Vec<Hierarchy>,
    ) -> Layout {
        let is_scope = is_scope(settings);
        let auto = if is_scope { crate::systemd::SCOPE_PATH } else { AUTO_ROOT };
        let path = settings.root.as_deref().unwrap_or(auto).trim_matches('/');
        Layout { version, path: format!("/{path}"), hierarchies, is_scope }
    }
}

/// See [`super::preview`].
pub(super) fn preview(settings: &TreeSettings) -> Result<Preview, CgroupError> {
    let (version, primary) = choose(settings, &Mounts::read()?)?;
    let root = primary.dir(&root_path(settings, &primary)?);
    // Writing in the nearest ancestor that is there is what making the root needs.
    let nearest = root.ancestors().find(|dir| dir.exists()).unwrap_or(&primary.mount.point);
    let obstacle = rustix::fs::access(nearest, Access::WRITE_OK).err();
    let obstacle = obstacle.map(|errno| obstacle::unusable(nearest, &errno.into()).to_string());
    Ok(Preview { version, root, obstacle })
}

/// The version and the hierarchies to use, primary first.
pub(super) fn hierarchies(
    settings: &TreeSettings,
) -> Result<(Version, Vec<Hierarchy>), CgroupError> {
    let mounts = Mounts::read()?;
    let (version, primary) = choose(settings, &mounts)?;
    let mut hierarchies = vec![primary];
    if version == Version::V1 {
        hierarchies.extend(other_v1_hierarchies(&mounts));
    }
    Ok((version, hierarchies))
}

/// The version and its primary hierarchy.
fn choose(settings: &TreeSettings, mounts: &Mounts) -> Result<(Version, Hierarchy), CgroupError> {
    let unified = mounts.unified();
    let v1 = mounts.v1().into_iter().find(|hierarchy| hierarchy.has("cpu"));
    let has_cpu = |hierarchy: &Hierarchy| {
        // Not readable counts as not available: opening it says why.
        files::read_text(&hierarchy.dir("cgroup.controllers"))
            .is_ok_and(|text| files::has_word(&text, "cpu"))
    };
    let v2_has_cpu = unified.as_ref().is_some_and(has_cpu);
    match (mounts::carrier(settings.version, v2_has_cpu, v1.is_some()), unified, v1) {
        (Some(Version::V2), Some(unified), _) => Ok((Version::V2, unified)),
        (Some(Version::V1), _, Some(v1)) => Ok((Version::V1, v1)),
        (_, unified, _) => {
            let unified = unified.as_ref().map(|unified| unified.mount.point.as_path());
            Err(obstacle::no_cpu(settings.version, unified).into())
        }
    }
}

/// Whether tasks live in systemd's scope: the service does so unless the configuration forbids it;
/// a daemon started by hand on the same machine has nothing to do with it.
pub(super) fn is_scope(settings: &TreeSettings) -> bool {
    settings.root.is_none() && crate::systemd::started_this_process()
}

/// The root's path below the mount. "auto": systemd's scope if systemd started this daemon;
/// else `lrs`, below this daemon's own group where that
/// may be written and the mount may not (a delegated subtree).
pub(super) fn root_path(
    settings: &TreeSettings,
    primary: &Hierarchy,
) -> Result<String, CgroupError> {
    if let Some(path) = &settings.root {
        return Ok(path.trim_matches('/').to_owned());
    }
    if is_scope(settings) {
        return Ok(crate::systemd::SCOPE_PATH.to_owned());
    }
    let writable = |dir: &Path| rustix::fs::access(dir, Access::WRITE_OK).is_ok();
    if primary.is_unified() && !writable(&primary.mount.point) {
        let membership = Membership::own()?;
        let own = membership.path_in(primary).filter(|path| writable(&primary.dir(path)));
        if let Some(own) = own {
            return Ok(format!("{own}/{AUTO_ROOT}").trim_matches('/').to_owned());
        }
    }
    Ok(AUTO_ROOT.to_owned())
}

/// The other v1 hierarchies LRS uses, systemd's, and the twin.
fn other_v1_hierarchies(mounts: &Mounts) -> impl Iterator<Item = Hierarchy> {
    let systemd_runs = crate::systemd::is_running();
    let v1 = mounts.v1().into_iter().skip(1);
    v1.chain(mounts.systemd().filter(|_| systemd_runs)).chain(mounts.unified())
}
