//! A cluster for tests: a NodeManager and a ResourceManager that follow a script, and take
//! an update when the test lets them.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::Resource;
use super::client::{Cluster, ClusterError};
use super::http::{CallError, Problem};
use super::rmadmin::RmadminError;
use super::shapes::{App, ClusterInfo, Container, Node, NodeAnswer, NodeManagerInfo};
use lrs_hadoop_conf::NodeId;
use lrs_hadoop_conf::site::{Site, SiteError};

#[derive(Debug)]
pub struct Played {
    pub nm_down: bool,
    pub rm_down: bool,
    pub kerberos: bool,
    /// Updates are answered well and come to nothing.
    pub deaf: bool,
    /// Updates are refused.
    pub refuses: bool,
    /// The command is killed, and what it asked for is carried out all the same.
    pub unsure: bool,
    pub gpus: u32,
    /// `yarn.resource-types` of Hadoop's files.
    pub types: &'static str,
    /// Names of the node the agent runs on; `None`: the resolver is away.
    pub here: Option<Vec<&'static str>>,
    /// A node the ResourceManager knows beside `node_id`.
    pub other: Option<&'static str>,
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
    late: Vec<(u32, Resource)>,
    containers: Vec<Container>,
    apps: BTreeMap<String, Result<App, Problem>>,
}

impl Default for Played {
    fn default() -> Played {
        Played {
            nm_down: false,
            rm_down: false,
            kerberos: false,
            deaf: false,
            refuses: false,
            unsure: false,
            gpus: 0,
            types: "",
            here: Some(vec!["node1"]),
            other: None,
            node_managers: 1,
            nm_started: 1,
            site: None,
            node_id: "node1:45454".into(),
            state: "RUNNING",
            shown: Resource { memory_mib: 8192, vcores: 8 },
            started: 1,
            updates: Vec::new(),
            lag: 0,
            late: Vec::new(),
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
        let app = App {
            id: id.into(),
            queue: Some(queue.into()),
            priority,
            master_logs: None,
            unmanaged: false,
        };
        self.apps.insert(id.into(), Ok(app));
    }

    /// An application that is answered with this.
    pub fn bad_app(&mut self, id: &str, problem: Problem) {
        self.apps.insert(id.into(), Err(problem));
    }

    /// Updates that do not show yet.
    pub fn on_their_way(&self) -> usize {
        self.late.len()
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

    fn is_here(&mut self, host: &str) -> io::Result<bool> {
        let away = || io::Error::other("no name server answers");
        self.here.as_ref().map(|names| names.contains(&host)).ok_or_else(away)
    }

    fn node_managers_here(&mut self) -> io::Result<usize> {
        Ok(self.node_managers)
    }

    fn configured(&mut self) -> Option<Resource> {
        self.site
    }

    fn other_types(&mut self) -> Result<Vec<String>, SiteError> {
        let (name, types) = ("yarn.resource-types", self.types);
        Site::parse(&format!(
            "<configuration><property name='{name}' value='{types}'/></configuration>"
        ))?
        .other_resource_types()
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
        if id.as_str() != self.node_id && Some(id.as_str()) != self.other {
            let known = vec![self.node_id.clone()];
            let url = "http://played".into();
            return Err(ClusterError::UnknownNode { url, id: id.clone(), known });
        }
        // In the order they came, as the ResourceManager's dispatcher has them.
        while let Some((0, resource)) = self.late.first() {
            self.shown = *resource;
            self.late.remove(0);
        }
        for (left, _) in &mut self.late {
            *left = left.saturating_sub(1);
        }
        let Resource { memory_mib, vcores } = self.shown;
        let text = serde_json::json!({"node": {"id": id.as_str(), "state": self.state,
            "totalResource": {"memory": memory_mib, "vCores": vcores, "resourceInformations":
            {"resourceInformation": [{"name": "yarn.io/gpu", "value": self.gpus}]}}}});
        Ok(serde_json::from_value::<NodeAnswer>(text).unwrap().node)
    }

    fn update(&mut self, _: &NodeId, resource: Resource) -> Result<(), ClusterError> {
        if self.rm_down {
            self.rm()?;
        }
        self.updates.push(resource);
        if self.refuses {
            let (command, how, output) = ("rmadmin".into(), "exit 1".into(), "no ticket".into());
            return Err(RmadminError::Failed { command, how, output }.into());
        }
        if !self.deaf {
            self.late.push((self.lag, resource));
        }
        if self.unsure {
            let (command, output) = ("rmadmin".into(), "nothing".into());
            let timeout = Duration::from_secs(10);
            return Err(RmadminError::TimedOut { command, timeout, output }.into());
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
        let none = || Err(Problem::NotFound("no such application".into()));
        let app = self.apps.get(id).cloned().unwrap_or_else(none);
        app.map_err(|found| problem(found).into())
    }
}
