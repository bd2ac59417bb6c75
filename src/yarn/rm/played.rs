//! A cluster for tests: a NodeManager and a ResourceManager that do as they are told, and take
//! an update when the test lets them.

use std::collections::BTreeMap;

use super::client::{Cluster, ClusterError};
use super::http::{CallError, Problem};
use super::shapes::{App, ClusterInfo, Container, Node, NodeAnswer, NodeManagerInfo};
use super::{NodeId, Resource};

#[derive(Debug)]
pub struct Played {
    pub nm_down: bool,
    pub rm_down: bool,
    pub kerberos: bool,
    /// Updates are answered well and come to nothing.
    pub deaf: bool,
    pub gpus: u32,
    pub used: Resource,
    /// NodeManagers of the node, and when ours started.
    pub node_managers: usize,
    pub nm_started: i64,
    pub site: Option<Resource>,
    pub node_id: String,
    pub state: &'static str,
    pub shown: Resource,
    pub started: i64,
    pub updates: Vec<Resource>,
    /// Reads before an update shows.
    pub lag: u32,
    late: Option<(u32, Resource)>,
    containers: Vec<Container>,
    apps: BTreeMap<String, App>,
}

impl Default for Played {
    fn default() -> Played {
        Played {
            nm_down: false,
            rm_down: false,
            kerberos: false,
            deaf: false,
            gpus: 0,
            used: Resource { memory_mib: 0, vcores: 0 },
            node_managers: 1,
            nm_started: 1,
            site: None,
            node_id: "node1:45454".into(),
            state: "RUNNING",
            shown: Resource { memory_mib: 8192, vcores: 8 },
            started: 1,
            updates: Vec::new(),
            lag: 0,
            late: None,
            containers: Vec::new(),
            apps: BTreeMap::new(),
        }
    }
}

fn problem(problem: Problem) -> CallError {
    CallError { url: "http://played".into(), problem }
}

impl Played {
    /// With a yarn-site.xml.
    pub fn at(site: Option<Resource>) -> Played {
        Played { site, ..Played::default() }
    }

    pub fn run(&mut self, id: &str, execution_type: Option<&str>) {
        self.containers.push(Container {
            id: id.into(),
            state: Some("RUNNING".into()),
            execution_type: execution_type.map(str::to_owned),
        });
    }

    pub fn app(&mut self, id: &str, priority: Option<i32>, queue: &str) {
        let app = App { id: id.into(), queue: Some(queue.into()), priority };
        self.apps.insert(id.into(), app);
    }

    fn rm(&self) -> Result<(), ClusterError> {
        if self.rm_down {
            return Err(problem(Problem::Unreachable("connection refused".into())).into());
        }
        if self.kerberos {
            return Err(problem(Problem::Kerberos(401)).into());
        }
        Ok(())
    }
}

impl Cluster for Played {
    fn node_manager(&mut self) -> Option<Result<NodeManagerInfo, CallError>> {
        if self.nm_down {
            return Some(Err(problem(Problem::Unreachable("connection refused".into()))));
        }
        Some(Ok(NodeManagerInfo {
            id: self.node_id.clone(),
            node_healthy: Some(true),
            health_report: None,
            hadoop_version: Some("3.4.1".into()),
            started: Some(self.nm_started),
        }))
    }

    fn node_managers_here(&mut self) -> std::io::Result<usize> {
        Ok(self.node_managers)
    }

    fn configured(&mut self) -> Option<Resource> {
        self.site
    }

    fn active(&mut self) -> Result<(String, ClusterInfo), ClusterError> {
        self.rm()?;
        let info = ClusterInfo {
            id: self.started,
            started_on: self.started,
            ha_state: "ACTIVE".into(),
            hadoop_version: Some("3.4.1".into()),
        };
        Ok(("http://played".into(), info))
    }

    fn node(&mut self, id: &NodeId) -> Result<Node, ClusterError> {
        self.rm()?;
        if id.as_str() != self.node_id {
            let known = vec![self.node_id.clone()];
            let url = "http://played".into();
            return Err(ClusterError::UnknownNode { url, id: id.clone(), known });
        }
        match self.late.take() {
            Some((0, resource)) => self.shown = resource,
            Some((left, resource)) => self.late = Some((left - 1, resource)),
            None => {}
        }
        let Resource { memory_mib, vcores } = self.shown;
        let text = serde_json::json!({"node": {"id": self.node_id, "state": self.state,
            "usedMemoryMB": self.used.memory_mib, "usedVirtualCores": self.used.vcores,
            "totalResource": {"memory": memory_mib, "vCores": vcores, "resourceInformations":
            {"resourceInformation": [{"name": "yarn.io/gpu", "value": self.gpus}]}}}});
        Ok(serde_json::from_value::<NodeAnswer>(text).unwrap().node)
    }

    fn update(&mut self, _: &NodeId, resource: Resource) -> Result<(), ClusterError> {
        if self.rm_down {
            self.rm()?;
        }
        self.updates.push(resource);
        if !self.deaf {
            self.late = Some((self.lag, resource));
        }
        Ok(())
    }

    fn containers(&mut self) -> Result<Vec<Container>, CallError> {
        if self.nm_down {
            return Err(problem(Problem::Unreachable("connection refused".into())));
        }
        Ok(self.containers.clone())
    }

    fn application(&mut self, id: &str) -> Result<App, ClusterError> {
        self.rm()?;
        let none = || problem(Problem::NotFound("no such application".into())).into();
        self.apps.get(id).cloned().ok_or_else(none)
    }
}
