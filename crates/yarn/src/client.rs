//! What is asked of the NodeManager and the ResourceManager.
//!
//! Of several ResourceManagers the one with `ACTIVE` in its `/ws/v1/cluster/info` is asked (that page
//! alone a standby answers itself instead of sending to the active one).
//!
//! The node-resource call goes out as XML, which every version from 3.3 on takes in the same
//! shape, and always with an over-commit timeout of -1: left out it would mean 0, which is "kill
//! what does not fit, now". Its answer may still show the old figure, for the change is an event
//! inside the ResourceManager; only the node read back says what came of it.

use std::io;
use std::time::Duration;

use super::here::is_this_node;
use super::http::{CallError, CertificateError, Http, MAX_ANSWER_BYTES, Problem};
use super::rmadmin::{Rmadmin, RmadminError};
use super::shapes::{
    App, AppAnswer, ClusterInfo, ClusterInfoAnswer, Container, ContainersAnswer, Node, NodeAnswer,
    NodeManagerAnswer, NodeManagerInfo, NodesAnswer,
};
use super::{Endpoints, Resource, configured};
use crate::link::{Link, Lrsd as _};
use crate::settings::{OfferBy, Yarn};
use lrs_core::units::BootTime;
use lrs_hadoop_conf::NodeId;
use lrs_hadoop_conf::site::{Site, SiteError};
use lrs_host::clock;

/// The list of all nodes is only fetched to name them in an error; one has about 1.5 KiB.
const MAX_NODES_BYTES: u64 = 16 << 20;

/// How often that list is fetched at most: it is the largest answer a ResourceManager has, and
/// in a cluster where all nodes lost their registration each would ask for it all at once.
const NAMES_EVERY: Duration = Duration::from_secs(60);

/// Most nodes an error names.
const NODES_NAMED: usize = 5;

/// The cluster as the agent sees it; in tests it is played.
pub trait Cluster {
    /// The NodeManager about itself; `None`: its address is not known.
    fn node_manager(&mut self) -> Option<Result<NodeManagerInfo, CallError>>;
    /// Whether this node is called `host`.
    fn is_here(&mut self, host: &str) -> io::Result<bool>;
    /// How many NodeManagers run on this node.
    fn node_managers_here(&mut self) -> io::Result<usize>;
    /// What yarn-site.xml has the node begin with, as it is now: an operator may have edited it.
    /// `None`: it does not say.
    fn configured(&mut self) -> Option<Resource>;
    /// What Hadoop's files name beside memory and vcores, as they are now.
    fn other_types(&mut self) -> Result<Vec<String>, SiteError>;
    /// The ResourceManager that schedules, about itself, and where it is.
    fn active(&mut self) -> Result<(String, ClusterInfo), ClusterError>;
    /// The node as the active ResourceManager has it.
    fn node(&mut self, id: &NodeId) -> Result<Node, ClusterError>;
    /// Makes the node have this for containers. Returning says it was asked for, not that it is.
    fn update(&mut self, id: &NodeId, resource: Resource) -> Result<(), ClusterError>;
    /// Containers on this node.
    fn containers(&mut self) -> Result<Vec<Container>, CallError>;
    /// An application.
    fn application(&mut self, id: &str) -> Result<App, ClusterError>;
}

/// Why a call to the cluster failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum ClusterError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "no address of a ResourceManager is known; set yarn.resource_managers, or \
         yarn.resourcemanager.webapp.address in yarn-site.xml"
    )]
    NoAddress,
    #[error("no ResourceManager is active: {}", .0.join("; "))]
    NoneActive(Vec<String>),
    #[error(
        "{url} knows no node {id}; {}. Is the NodeManager registered there? Else set \
         yarn.node_id, or give the NodeManager a fixed port (yarn.nodemanager.address)",
        named(.known)
    )]
    UnknownNode { url: String, id: NodeId, known: Vec<String> },
    #[error("{url} was asked for node {id} and answers for {found:?}; is this the right address?")]
    WrongNode { url: String, id: NodeId, found: String },
    #[error(transparent)]
    Rmadmin(#[from] RmadminError),
}

fn named(known: &[String]) -> String {
    match known {
        [] => "it names no node at all".into(),
        few if few.len() <= NODES_NAMED => format!("it knows {}", few.join(", ")),
        many => {
            let shown = many.get(..NODES_NAMED).unwrap_or_default();
            format!("it knows {} and {} more", shown.join(", "), many.len() - NODES_NAMED)
        }
    }
}

/// How the offer gets to the ResourceManager.
#[derive(Debug)]
pub enum By {
    /// Its web service.
    Rest,
    /// The command.
    Rmadmin(Rmadmin),
}

/// The real cluster.
#[derive(Debug)]
pub struct Client {
    http: Http,
    endpoints: Endpoints,
    by: By,
    /// Index of the ResourceManager that was active last.
    active: usize,
    /// The last message about a yarn-site.xml that cannot be read any more.
    site_problem: Option<String>,
    /// Which nodes were named for which, and when they were asked for.
    named: Option<(NodeId, BootTime, Vec<String>)>,
    /// A name that was found to be this node's: a lookup for each poll would be many.
    here: Option<String>,
    /// Who counts NodeManagers: other users' processes may be hidden from us. `None`: no counter.
    lrsd: Option<Link>,
}

impl Client {
    /// A client of these addresses.
    pub fn new(http: Http, endpoints: Endpoints, by: By) -> Client {
        Client {
            http,
            endpoints,
            by,
            active: 0,
            site_problem: None,
            named: None,
            here: None,
            lrsd: None,
        }
    }

    /// A client as `[yarn]` says.
    ///
    /// # Errors
    /// `yarn.ca_file` is of no use.
    pub fn of(yarn: &Yarn, endpoints: Endpoints) -> Result<Client, CertificateError> {
        let mut addresses = endpoints.resource_managers.iter().chain(&endpoints.node_manager);
        let https = addresses.any(|url| url.starts_with("https://"));
        let lasting = &yarn.lasting;
        let http = Http::new(&lasting.user, yarn.timeout, https, lasting.ca_file.as_deref())?;
        let by = match lasting.offer_by {
            OfferBy::Rest => By::Rest,
            OfferBy::Rmadmin => By::Rmadmin(Rmadmin::new(lasting.rmadmin.clone(), yarn.timeout)),
        };
        Ok(Client::new(http, endpoints, by))
    }

    /// With a counter of NodeManagers.
    #[must_use]
    pub fn with(self, lrsd: Option<Link>) -> Client {
        Client { lrsd, ..self }
    }

    /// How long one call, and one run of the command, may take from now on.
    pub fn set_timeouts(&mut self, call: Duration, run: Duration) {
        self.http.set_timeout(call);
        if let By::Rmadmin(rmadmin) = &mut self.by {
            rmadmin.set_timeout(run);
        }
    }

    fn base(&self) -> Result<&str, ClusterError> {
        let found = self.endpoints.resource_managers.get(self.active);
        found.map(String::as_str).ok_or(ClusterError::NoAddress)
    }

    fn node_manager_url(&self, path: &str) -> Option<String> {
        self.endpoints.node_manager.as_ref().map(|base| format!("{base}/ws/v1/node/{path}"))
    }

    /// What the ResourceManager calls the nodes of this host, or else all of them. Where the list
    /// cannot be had the error names none; that it does not know ours is what matters.
    fn known(&mut self, id: &NodeId) -> Vec<String> {
        let now = clock::boot_time();
        if let Some((asked, at, known)) = &self.named
            && asked == id
            && now < at.after(NAMES_EVERY)
        {
            return known.clone();
        }
        let known = self.ask_names(id);
        self.named = Some((id.clone(), now, known.clone()));
        known
    }

    fn ask_names(&self, id: &NodeId) -> Vec<String> {
        let Ok(base) = self.base() else { return Vec::new() };
        let url = format!("{base}/ws/v1/cluster/nodes");
        let all: Vec<String> = match self.http.get::<NodesAnswer>(&url, MAX_NODES_BYTES) {
            Ok(answer) => answer.nodes.into_iter().map(|node| node.id).collect(),
            Err(error) => {
                tracing::debug!(%error, "the nodes the ResourceManager knows cannot be named: {error}");
                Vec::new()
            }
        };
        let short = |host: &str| host.split('.').next().unwrap_or(host).to_ascii_lowercase();
        let here = |name: &&String| {
            short(name.rsplit_once(':').map_or(name, |(host, _)| host)) == short(id.host())
        };
        let ours: Vec<String> = all.iter().filter(here).cloned().collect();
        if ours.is_empty() { all } else { ours }
    }
}

impl Cluster for Client {
    fn node_manager(&mut self) -> Option<Result<NodeManagerInfo, CallError>> {
        let url = self.node_manager_url("info")?;
        let answer = self.http.get::<NodeManagerAnswer>(&url, MAX_ANSWER_BYTES);
        Some(answer.map(|answer| answer.node))
    }

    fn is_here(&mut self, host: &str) -> io::Result<bool> {
        let configured = self.endpoints.node_manager.as_deref().and_then(host_of);
        let known = [self.here.as_deref(), configured];
        if known.iter().flatten().any(|name| name.eq_ignore_ascii_case(host)) {
            return Ok(true);
        }
        let is_here = is_this_node(host)?;
        if is_here {
            self.here = Some(host.to_owned());
        }
        Ok(is_here)
    }

    fn node_managers_here(&mut self) -> io::Result<usize> {
        let lrsd = self.lrsd.as_mut().ok_or_else(|| io::Error::other("lrsd is not asked"))?;
        let count = lrsd.node_managers().map_err(io::Error::other)?;
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| io::Error::other("lrsd has not counted them; lrsctl status says more"))
    }

    fn configured(&mut self) -> Option<Resource> {
        let Some((dir, trust)) = &self.endpoints.conf else { return self.endpoints.configured };
        let problem = match Site::read(dir, trust).and_then(|site| configured(&site)) {
            Ok(configured) => {
                self.endpoints.configured = configured;
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) =
            problem.as_ref().filter(|new| self.site_problem.as_ref() != Some(*new))
        {
            tracing::warn!("YARN: the configured resource is taken as it was before: {problem}");
        }
        self.site_problem = problem;
        self.endpoints.configured
    }

    fn other_types(&mut self) -> Result<Vec<String>, SiteError> {
        let conf = self.endpoints.conf.as_ref();
        conf.map_or(Ok(Vec::new()), |(dir, trust)| Site::read(dir, trust)?.other_resource_types())
    }

    fn active(&mut self) -> Result<(String, ClusterInfo), ClusterError> {
        let count = self.endpoints.resource_managers.len();
        let mut passive = Vec::new();
        // The last active one first: asking a dead one costs the whole timeout.
        for index in (0..count).map(|step| (self.active + step) % count) {
            let Some(base) = self.endpoints.resource_managers.get(index) else { continue };
            let url = format!("{base}/ws/v1/cluster/info");
            match self.http.get::<ClusterInfoAnswer>(&url, MAX_ANSWER_BYTES) {
                Ok(answer) if answer.cluster.is_active() => {
                    let base = base.clone();
                    self.active = index;
                    return Ok((base, answer.cluster));
                }
                Ok(answer) => passive.push(format!("{base} is {}", answer.cluster.ha_state)),
                // With one address there is nothing to choose: its error is the error.
                Err(error) if count == 1 => return Err(error.into()),
                Err(error) if error.problem.is_of_the_cluster() => return Err(error.into()),
                Err(error) => passive.push(error.to_string()),
            }
        }
        if count == 0 {
            Err(ClusterError::NoAddress)
        } else {
            Err(ClusterError::NoneActive(passive))
        }
    }

    fn node(&mut self, id: &NodeId) -> Result<Node, ClusterError> {
        let url = format!("{}/ws/v1/cluster/nodes/{id}", self.base()?);
        match self.http.get::<NodeAnswer>(&url, MAX_ANSWER_BYTES) {
            Ok(NodeAnswer { node }) if node.id.eq_ignore_ascii_case(id.as_str()) => Ok(node),
            Ok(NodeAnswer { node }) => {
                Err(ClusterError::WrongNode { url, id: id.clone(), found: node.id })
            }
            Err(CallError { problem: Problem::NotFound(_), .. }) => {
                let known = self.known(id);
                Err(ClusterError::UnknownNode { url, id: id.clone(), known })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn update(&mut self, id: &NodeId, resource: Resource) -> Result<(), ClusterError> {
        match &self.by {
            By::Rmadmin(rmadmin) => Ok(rmadmin.update(id, resource)?),
            By::Rest => {
                let url = format!("{}/ws/v1/cluster/nodes/{id}/resource", self.base()?);
                let Resource { memory_mib, vcores } = resource;
                let xml = format!(
                    "<resourceOption><resource><memory>{memory_mib}</memory>\
                     <vCores>{vcores}</vCores></resource>\
                     <overCommitTimeout>-1</overCommitTimeout></resourceOption>"
                );
                Ok(self.http.post_xml(&url, &xml)?)
            }
        }
    }

    fn containers(&mut self) -> Result<Vec<Container>, CallError> {
        let Some(url) = self.node_manager_url("containers") else { return Ok(Vec::new()) };
        let answer = self.http.get::<ContainersAnswer>(&url, MAX_ANSWER_BYTES)?;
        Ok(answer.containers)
    }

    fn application(&mut self, id: &str) -> Result<App, ClusterError> {
        // The requests of a large application are megabytes. Before 3.0 the word is ignored.
        let base = self.base()?;
        let url = format!("{base}/ws/v1/cluster/apps/{id}?deSelects=resourceRequests");
        Ok(self.http.get::<AppAnswer>(&url, MAX_ANSWER_BYTES)?.app)
    }
}

/// The host of an address without a path; an IPv6 one without its brackets.
fn host_of(url: &str) -> Option<&str> {
    let (_, authority) = url.split_once("://")?;
    if let Some(address) = authority.strip_prefix('[') {
        return address.split_once(']').map(|(address, _)| address);
    }
    Some(authority.split_once(':').map_or(authority, |(host, _)| host))
}

#[cfg(test)]
mod tests {
    use super::super::test_server::{Answer, Request, Server};
    use super::*;

    fn client(servers: &[&Server]) -> Client {
        let http = Http::new("yarn", Duration::from_secs(5), false, None).unwrap();
        let endpoints = Endpoints {
            resource_managers: servers.iter().map(|server| server.base()).collect(),
            ..Endpoints::default()
        };
        Client::new(http, endpoints, By::Rest)
    }

    fn id() -> NodeId {
        "node1:45454".parse().unwrap()
    }

    fn info(state: &str) -> Answer {
        Answer::json(&format!(
            r#"{{"clusterInfo":{{"id":1700000000000,"startedOn":1700000000000,"state":"STARTED",
            "haState":"{state}","hadoopVersion":"3.4.1"}}}}"#
        ))
    }

    fn rm(state: &'static str) -> Server {
        Server::start(move |request: &Request| match request.path() {
            "/ws/v1/cluster/info" => info(state),
            _ => Answer::status(307).with("Location", "http://elsewhere.invalid/"),
        })
    }

    #[test]
    fn the_active_one_is_found_and_remembered() {
        let (standby, active) = (rm("STANDBY"), rm("ACTIVE"));
        let mut client = client(&[&standby, &active]);
        assert_eq!(client.active().unwrap().0, active.base());
        assert_eq!(client.active().unwrap().0, active.base());
        assert_eq!(standby.requests().len(), 1, "asked once");
    }

    #[test]
    fn no_active_one_names_the_answer_of_each() {
        let (standby, broken) = (rm("STANDBY"), Server::start(|_| Answer::status(500)));
        let error = client(&[&standby, &broken]).active().unwrap_err().to_string();
        assert!(error.contains("is STANDBY") && error.contains("status 500"), "{error}");
        assert_eq!(client(&[]).active().unwrap_err(), ClusterError::NoAddress);
        let (a, b) = (
            rm("ACTIVE"),
            Server::start(|_| Answer::status(401).with("WWW-Authenticate", "Negotiate")),
        );
        let found = client(&[&b, &a]).active().unwrap_err();
        assert!(found.to_string().contains("Kerberos"), "the cluster has it, not one server");
    }

    #[test]
    fn an_unknown_node_names_those_that_are_known() {
        let server = Server::start(|request| match request.path() {
            "/ws/v1/cluster/nodes" => Answer::json(
                r#"{"nodes":{"node":[{"id":"other:1"},{"id":"node1.example.org:33333"}]}}"#,
            ),
            _ => Answer::text(404, "application/json", r#"{"RemoteException":{}}"#),
        });
        let error = client(&[&server]).node(&id()).unwrap_err().to_string();
        assert!(error.contains("knows node1.example.org:33333."), "{error}");
        assert!(error.contains("yarn.node_id"), "{error}");
        let silent = Server::start(|_| Answer::status(404));
        let error = client(&[&silent]).node(&id()).unwrap_err().to_string();
        assert!(error.contains("names no node"), "{error}");
    }

    #[test]
    fn an_application_is_asked_for_without_its_requests() {
        let server = Server::start(|_| Answer::json(r#"{"app":{"id":"application_1_0001"}}"#));
        client(&[&server]).application("application_1_0001").unwrap();
        let line = server.requests().remove(0).line;
        assert!(line.contains("?deSelects=resourceRequests&user.name=yarn "), "{line}");
    }

    #[test]
    fn the_configured_address_and_the_nodes_own_names_are_here() {
        let mut client = client(&[]);
        client.endpoints.node_manager = Some("http://nm.example.invalid:8042".into());
        assert!(client.is_here("NM.example.invalid").unwrap());
        assert!(client.is_here("localhost").unwrap() && !client.is_here("192.0.2.1").unwrap());
        assert_eq!(client.here.as_deref(), Some("localhost"), "remembered");
        let hosts = ["http://a:1", "https://a", "http://[::1]:8042"].map(host_of);
        assert_eq!(hosts, [Some("a"), Some("a"), Some("::1")]);
    }

    #[test]
    fn an_answer_for_another_node_is_not_believed() {
        let server = Server::start(|_| Answer::json(r#"{"node":{"id":"b:1","state":"RUNNING"}}"#));
        let error = client(&[&server]).node(&id()).unwrap_err();
        assert!(matches!(error, ClusterError::WrongNode { .. }), "{error}");
    }

    #[test]
    fn the_update_is_xml_that_kills_nothing() {
        let server = Server::start(|_| Answer::json(r#"{"resourceInfo":{"memory":1,"vCores":1}}"#));
        client(&[&server]).update(&id(), Resource { memory_mib: 12_288, vcores: 6 }).unwrap();
        let request = server.requests().remove(0);
        let line = "POST /ws/v1/cluster/nodes/node1:45454/resource?user.name=yarn HTTP/1.1";
        assert_eq!(request.line, line);
        assert_eq!(
            request.body,
            "<resourceOption><resource><memory>12288</memory><vCores>6</vCores></resource>\
             <overCommitTimeout>-1</overCommitTimeout></resourceOption>"
        );
    }
}
