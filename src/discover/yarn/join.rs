//! What `[yarn]` and Hadoop's own files say together, and what clients are shown of containers.

use std::time::Duration;

use super::containers::ContainerInfo;
use super::finder::Settings;
use crate::config::{Auto, Yarn};
use crate::{discover, proto};
use lrs_hadoop_conf::{Site, SiteError, Trust};

/// How often all processes and directories are looked through beside what inotify tells. Not
/// `yarn.poll`, which spares the ResourceManager and may be an hour.
const RESCAN: Duration = Duration::from_secs(3);

/// Reads Hadoop's files and puts the settings over them. `lrs_root` is the group of LRS's tasks.
///
/// # Errors
/// A file cannot be read, or a value by which containers are found is of no use.
pub fn read(yarn: &Yarn, lrs_root: Option<&str>) -> Result<Settings, SiteError> {
    let site = Site::read(&yarn.conf_dir, &Trust::of(&yarn.user))?;
    Ok(Settings {
        local_dirs: match &yarn.local_dirs {
            Auto::Fixed(dirs) => dirs.clone(),
            Auto::Auto => site.local_dirs()?,
        },
        executor: site.executor()?,
        layout: site.cgroups()?,
        own_root: lrs_root.map(str::to_owned),
        rescan: RESCAN,
    })
}

/// The list of containers; whether a task is active is the snapshot's to say.
pub fn containers(
    known: impl Iterator<Item = ContainerInfo>,
    hints: &discover::Hints,
) -> Vec<proto::YarnContainer> {
    let container = |info: ContainerInfo| {
        let id = info.id.to_string();
        let hint = hints.get(&id);
        let execution_type = hint.and_then(|hint| hint.opportunistic);
        proto::YarnContainer {
            application: Some(info.id.application.to_string()),
            kind: info.kind.map(|kind| kind.word().to_owned()),
            queue: hint.and_then(|hint| hint.queue.as_ref()).map(ToString::to_string),
            execution_type: execution_type.map(|opportunistic| {
                String::from(if opportunistic { "OPPORTUNISTIC" } else { "GUARANTEED" })
            }),
            task: info.task.map(|task| task.to_string()),
            ignored_reason: info.ignored,
            id,
            ..proto::YarnContainer::default()
        }
    };
    known.map(container).collect()
}
