//! The ResourceManager's side: slots that opened on this node are told to the cluster's
//! scheduler, and what the scheduler knows of the containers comes back.
//!
//! [`offer`] says how much to offer, [`ledger`] which of the figures the ResourceManager shows
//! are ours, [`agent`] what to do next. Those decide and touch nothing. [`http`], [`shapes`],
//! [`client`], [`rmadmin`] and [`hints`] are the calls, [`give_back`] the end of it, [`thread`] is
//! the thread all of it runs on: a ResourceManager that hangs for ten seconds must not keep a
//! promotion waiting.
//!
//! `here` tells this node's names from others.
//!
//! What is deliberately absent: an over-commit timeout other than -1 (any other makes YARN kill
//! containers), a Kerberos ticket (see `yarn.offer_by = "rmadmin"`), and any call that changes an
//! application.

use std::fmt;
use std::path::PathBuf;

use lrs_hadoop_conf::{NodeId, Trust};
use serde::{Deserialize, Serialize};

use crate::config::{Auto, Yarn};

pub mod agent;
pub mod client;
pub mod give_back;
mod here;
pub mod hints;
pub mod http;
pub mod ledger;
pub mod offer;
mod report;
pub mod rmadmin;
pub mod shapes;
pub mod thread;

#[cfg(test)]
mod played;
#[cfg(test)]
mod test_server;

/// What a node has for containers, in the ResourceManager's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resource {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual cores: what one counts for is the site's convention.
    pub vcores: u32,
}

impl Resource {
    /// Whether it is more than `other` in either.
    pub fn exceeds(self, other: Resource) -> bool {
        self.memory_mib > other.memory_mib || self.vcores > other.vcores
    }

    /// Whether it is less than `other` in one and not more in the other.
    pub fn is_below(self, other: Resource) -> bool {
        other.exceeds(self) && !self.exceeds(other)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB, {} vcores", self.memory_mib, self.vcores)
    }
}

/// Where to ask. [`Endpoints::with`] puts the settings of `[yarn]` over what yarn-site.xml says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Web addresses of all ResourceManagers, without a path: `http://rm1:8088`.
    pub resource_managers: Vec<String>,
    /// Web address of this node's NodeManager.
    pub node_manager: Option<String>,
    /// The node's id, where it was set; else the NodeManager is asked.
    pub node_id: Option<NodeId>,
    /// `yarn.nodemanager.resource.memory-mb` and `.cpu-vcores` where yarn-site.xml has both as
    /// numbers; `None`: the NodeManager works them out itself.
    pub configured: Option<Resource>,
    /// Local directories of all NodeManagers: whose they are says who NodeManagers run as.
    pub local_dirs: Vec<PathBuf>,
    /// Where `configured` was read, to be read again: an operator may edit it. And which files
    /// there count.
    pub conf: Option<(PathBuf, Trust)>,
    /// What of Hadoop's files cannot be used, and why. Containers are found and shaped without
    /// it; nobody is asked and nothing is offered.
    pub fault: Option<String>,
}

impl Endpoints {
    /// With what `[yarn]` sets in place of what yarn-site.xml says.
    #[must_use]
    pub fn with(self, yarn: &Yarn) -> Endpoints {
        let mut endpoints = self;
        if let Auto::Fixed(urls) = &yarn.resource_managers {
            endpoints.resource_managers.clone_from(urls);
        }
        if let Auto::Fixed(url) = &yarn.node_manager {
            endpoints.node_manager = Some(url.clone());
        }
        if let Auto::Fixed(id) = &yarn.node_id {
            endpoints.node_id = Some(id.clone());
        }
        endpoints
    }
}
