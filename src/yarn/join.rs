//! What `[yarn]` and Hadoop's own files say together, and what clients are shown of containers.

use std::collections::HashMap;
use std::time::Duration;

use super::containers::{ContainerInfo, Hint, Master};
use super::finder::Settings;
use super::rm::{self, Endpoints};
use crate::config::{Auto, Yarn};
use crate::units::Bytes;
use crate::{discover, proto};
use lrs_hadoop_conf::{Site, SiteError, Trust};

/// How often all processes and directories are looked through beside what inotify tells. Not
/// `yarn.poll`, which spares the ResourceManager and may be an hour.
const RESCAN: Duration = Duration::from_secs(3);

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
}

/// Reads Hadoop's files and puts the settings over them. `lrs_root` is the group of LRS's tasks.
///
/// Containers are found also where the managers cannot be asked.
///
/// # Errors
/// A file cannot be read, or a value by which containers are found is of no use.
pub fn read(yarn: &Yarn, lrs_root: Option<&str>) -> Result<Joined, JoinError> {
    let trust = Trust::of(&yarn.user);
    let site = Site::read(&yarn.conf_dir, &trust)?;
    let local_dirs = match &yarn.local_dirs {
        Auto::Fixed(dirs) => dirs.clone(),
        Auto::Auto => site.local_dirs()?,
    };
    let endpoints = Endpoints { local_dirs: local_dirs.clone(), ..endpoints(yarn, &site, trust) };
    Ok(Joined {
        finder: Settings {
            local_dirs,
            executor: site.executor()?,
            layout: site.cgroups()?,
            own_root: lrs_root.map(str::to_owned),
            rescan: RESCAN,
        },
        endpoints,
    })
}

/// Where the managers are, by Hadoop's files with the settings over them.
///
/// A fault in those files ends up in [`Endpoints::fault`].
pub fn endpoints(yarn: &Yarn, site: &Site, trust: Trust) -> Endpoints {
    let conf = Some((yarn.conf_dir.clone(), trust));
    let mut endpoints = Endpoints { conf, ..Endpoints::default() };
    match managers(site, yarn) {
        Ok((resource_managers, node_manager, configured)) => {
            endpoints.resource_managers = resource_managers;
            endpoints.node_manager = node_manager;
            endpoints.configured = configured;
        }
        Err(error) => endpoints.fault = Some(error.to_string()),
    }
    endpoints.with(yarn)
}

type Managers = (Vec<String>, Option<String>, Option<rm::Resource>);

/// Addresses of the ResourceManagers and the NodeManager, and what the node begins with.
fn managers(site: &Site, yarn: &Yarn) -> Result<Managers, SiteError> {
    let resource_managers = match &yarn.resource_managers {
        Auto::Fixed(urls) => urls.clone(),
        Auto::Auto => site.resource_managers()?.into_iter().map(|one| one.url).collect(),
    };
    let node_manager = match &yarn.node_manager {
        Auto::Fixed(url) => Some(url.clone()),
        Auto::Auto => site.node_manager()?,
    };
    Ok((resource_managers, node_manager, configured(site)?))
}

/// What the node begins with; `None`: only the NodeManager knows.
///
/// # Errors
/// A value that Hadoop would not take either.
pub fn configured(site: &Site) -> Result<Option<rm::Resource>, SiteError> {
    let memory = known(site.memory())?;
    let vcores = known(site.vcores())?;
    let resource = |(Bytes(bytes), vcores)| rm::Resource { memory_mib: bytes >> 20, vcores };
    Ok(memory.zip(vcores).map(resource))
}

fn known<T>(answer: Result<Option<T>, SiteError>) -> Result<Option<T>, SiteError> {
    match answer {
        Err(SiteError::Unknown { .. }) => Ok(None),
        answer => answer,
    }
}

/// The cluster's word on a container, as the finder takes it.
pub fn hint(hint: &discover::Hint) -> Hint {
    Hint {
        priority: hint.priority,
        opportunistic: hint.opportunistic,
        master: hint.master.as_ref().and_then(|master| match master {
            discover::Master::Container(id) => id.parse().ok().map(Master::Container),
            discover::Master::Outside => Some(Master::Outside),
        }),
    }
}

/// The list of containers; whether a task is active is the snapshot's to say.
pub fn containers(
    known: impl Iterator<Item = ContainerInfo>,
    told: &HashMap<String, discover::Hint>,
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
