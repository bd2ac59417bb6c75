//! What the agent knows, as clients read it.

use super::Resource;
use lrs_api::proto;
use lrs_api::wire::proto_time;
use lrs_core::units::WallTime;

/// One of the two managers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manager {
    pub(super) url: Option<String>,
    pub(super) version: Option<String>,
    /// `haState` of a ResourceManager, state of a node.
    pub(super) state: Option<String>,
    pub(super) at: Option<WallTime>,
    pub(super) error: Option<String>,
}

impl Manager {
    /// It answered.
    pub(super) fn answered(&mut self, version: Option<String>, now: WallTime) {
        self.version = version;
        self.at = Some(now);
        self.error = None;
    }
}

/// Everything a report is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) node_id: Option<String>,
    pub(super) node_manager: Manager,
    pub(super) resource_managers: Vec<String>,
    pub(super) resource_manager: Manager,
    pub(super) configured: Option<Resource>,
    /// What yarn-site.xml has in place of it.
    pub(super) site: Option<Resource>,
    pub(super) advertised: Option<Resource>,
    pub(super) offered: Option<Resource>,
    pub(super) offer_enabled: bool,
    pub(super) offer_by: &'static str,
    pub(super) verified: Option<bool>,
    pub(super) verified_at: Option<WallTime>,
    pub(super) last_error: Option<(String, WallTime)>,
}

impl Report {
    /// The message; the containers are added by the caller.
    pub(super) fn to_proto(&self) -> proto::YarnStatus {
        let resource = |resource: Resource| proto::YarnResource {
            memory_mib: resource.memory_mib,
            vcores: resource.vcores,
        };
        let (manager, rm) = (&self.node_manager, &self.resource_manager);
        proto::YarnStatus {
            enabled: true,
            node_manager: Some(proto::YarnNodeManager {
                url: manager.url.clone(),
                node_id: self.node_id.clone(),
                version: manager.version.clone(),
                state: manager.state.clone(),
                last_seen: manager.at.map(proto_time),
                error: manager.error.clone(),
            }),
            resource_manager: Some(proto::YarnResourceManager {
                urls: self.resource_managers.clone(),
                active: rm.url.clone(),
                version: rm.version.clone(),
                ha_state: rm.state.clone(),
                last_seen: rm.at.map(proto_time),
                error: rm.error.clone(),
            }),
            configured: self.configured.map(resource),
            site: self.site.map(resource),
            advertised: self.advertised.map(resource),
            offered: self.offered.map(resource),
            offer_enabled: self.offer_enabled,
            offer_by: self.offer_by.to_owned(),
            verified: self.verified,
            verified_at: self.verified_at.map(proto_time),
            containers: Vec::new(),
            reported_at: None,
            node_managers: None,
            last_error: self.last_error.as_ref().map(|(error, _)| error.clone()),
            last_error_at: self.last_error.as_ref().map(|(_, at)| proto_time(*at)),
        }
    }
}
