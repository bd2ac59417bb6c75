//! What `[yarn]` and Hadoop's own files say together, and what clients are shown of containers.

use std::collections::HashMap;

use super::containers::{ContainerInfo, Hint};
use super::finder::Settings;
use super::rm::{self, Endpoints, NotANodeId};
use super::site::{Site, SiteError};
use crate::config::{Auto, Yarn};
use crate::core::model::Priority;
use crate::proto;
use crate::units::Moment;
use crate::wire::proto_time;

/// A node that can be joined.
#[derive(Clone, Debug)]
pub struct Joined {
    /// For who finds containers.
    pub finder: Settings,
    /// For who talks to the managers.
    pub endpoints: Endpoints,
}

/// Why it cannot.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum JoinError {
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("yarn.node_id: {0}")]
    NodeId(#[from] NotANodeId),
}

/// Reads Hadoop's files and puts the settings over them. `lrs_root` is the group of LRS's tasks.
///
/// # Errors
/// A file cannot be read, or a value needed from it is of no use.
pub fn read(yarn: &Yarn, lrs_root: Option<&str>) -> Result<Joined, JoinError> {
    let site = Site::read(&yarn.conf_dir)?;
    let local_dirs = match &yarn.local_dirs {
        Auto::Fixed(dirs) => dirs.clone(),
        Auto::Auto => site.local_dirs()?,
    };
    let resource_managers = match &yarn.resource_managers {
        Auto::Fixed(urls) => urls.clone(),
        Auto::Auto => site.resource_managers()?.into_iter().map(|one| one.url).collect(),
    };
    let node_manager = match &yarn.node_manager {
        Auto::Fixed(url) => Some(url.clone()),
        Auto::Auto => site.node_manager()?,
    };
    let configured = match (site.memory()?, site.vcores()?) {
        (Some(memory), Some(vcores)) => Some(rm::Resource { memory_mib: memory.0 >> 20, vcores }),
        _ => None,
    };
    let endpoints = Endpoints { resource_managers, node_manager, node_id: None, configured };
    Ok(Joined {
        finder: Settings {
            local_dirs,
            executor: site.executor()?,
            layout: site.cgroups()?,
            own_root: lrs_root.map(str::to_owned),
            tasktracker: yarn.tasktracker,
            rescan: yarn.poll,
        },
        endpoints: endpoints.with(yarn)?,
    })
}

/// What clients read of a node that could not be joined.
pub fn not_joined(reason: &str, now: Moment) -> proto::YarnStatus {
    proto::YarnStatus {
        enabled: true,
        last_error: Some(reason.to_owned()),
        last_error_at: Some(proto_time(now.wall)),
        ..proto::YarnStatus::default()
    }
}

/// The cluster's word on a container, as the finder takes it.
pub fn hint(hint: &rm::Hint) -> Hint {
    Hint { priority: hint.priority.map(Priority), opportunistic: hint.opportunistic }
}

/// The list of containers; whether a task is active is the snapshot's to say.
pub fn containers(
    known: impl Iterator<Item = ContainerInfo>,
    told: &HashMap<String, rm::Hint>,
) -> Vec<proto::YarnContainer> {
    let container = |info: ContainerInfo| {
        let id = info.id.to_string();
        let hint = told.get(&id);
        let execution_type = hint.and_then(|hint| hint.opportunistic);
        proto::YarnContainer {
            application: Some(info.id.application.to_string()),
            kind: info.kind.map(|kind| kind.word().to_owned()),
            queue: hint.and_then(|hint| hint.queue.clone()),
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
