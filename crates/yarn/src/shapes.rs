//! The JSON of Hadoop's web services, as far as it is used.
//!
//! What these shapes have to bear with (2.8 to 3.5): an empty list is `null`, `""` or `{}`; a
//! list of one may be the element itself; fields come and go between versions, so what can be
//! done without is optional. Sources: `dao/{ClusterInfo,NodeInfo,AppInfo}.java` of the
//! ResourceManager, `dao/{NodeInfo,ContainerInfo}.java` of the NodeManager.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Resource;
use lrs_api::proto::container_hint::Master;

/// `GET /ws/v1/cluster/info`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ClusterInfoAnswer {
    #[serde(rename = "clusterInfo")]
    #[allow(missing_docs)]
    pub cluster: ClusterInfo,
}

/// A ResourceManager about itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInfo {
    /// Its start, which is also the cluster's timestamp in ids.
    pub id: i64,
    /// When it became what it is, in ms since 1970.
    pub started_on: i64,
    /// `ACTIVE`, `STANDBY`, `INITIALIZING` or `STOPPING`; without HA `ACTIVE`.
    pub ha_state: String,
    /// `3.4.1`
    #[serde(default)]
    pub hadoop_version: Option<String>,
}

impl ClusterInfo {
    /// Whether it is the one that schedules.
    pub fn is_active(&self) -> bool {
        self.ha_state == "ACTIVE"
    }
}

/// `GET /ws/v1/cluster/nodes/{id}`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NodeAnswer {
    #[allow(missing_docs)]
    pub node: Node,
}

/// A node as the ResourceManager has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Node {
    /// `host:port`
    pub id: String,
    /// `RUNNING`, `UNHEALTHY`, `LOST` ...
    pub state: String,
    #[serde(rename = "totalResource", default)]
    total: Option<Total>,
    #[serde(rename = "usedMemoryMB", default)]
    used_mib: Option<i64>,
    #[serde(rename = "availMemoryMB", default)]
    available_mib: Option<i64>,
    #[serde(rename = "usedVirtualCores", default)]
    used_vcores: Option<i64>,
    #[serde(rename = "availableVirtualCores", default)]
    available_vcores: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Total {
    memory: i64,
    #[serde(rename = "vCores")]
    vcores: i64,
    /// Of every type, from 3.0 on.
    #[serde(rename = "resourceInformations", default, deserialize_with = "list_of_type")]
    types: Vec<ResourceType>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct ResourceType {
    name: String,
    #[serde(default)]
    value: i64,
}

impl Node {
    /// What it has for containers; `None`: a figure is missing or negative.
    ///
    /// Versions without `totalResource` give what is used and what is left, which may be less
    /// than nothing after an offer was lowered; the sum is right all the same.
    pub fn advertised(&self) -> Option<Resource> {
        let sum = |used: Option<i64>, left: Option<i64>| used?.checked_add(left?);
        let (memory, vcores) = match &self.total {
            Some(total) => (total.memory, total.vcores),
            None => (
                sum(self.used_mib, self.available_mib)?,
                sum(self.used_vcores, self.available_vcores)?,
            ),
        };
        Some(Resource {
            memory_mib: u64::try_from(memory).ok()?,
            vcores: u32::try_from(vcores).ok()?,
        })
    }

    /// What it has beside memory and vcores: `yarn.io/gpu` and the like. The node-resource call
    /// has no place for them, and makes them 0.
    pub fn other_resources(&self) -> Vec<&str> {
        let types = self.total.iter().flat_map(|total| &total.types);
        types
            .filter(|kind| kind.value > 0 && !matches!(kind.name.as_str(), "memory-mb" | "vcores"))
            .map(|kind| kind.name.as_str())
            .collect()
    }
}

/// `GET /ws/v1/cluster/nodes`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NodesAnswer {
    #[serde(default, deserialize_with = "list_of_node")]
    #[allow(missing_docs)]
    pub nodes: Vec<NodeName>,
}

/// One of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NodeName {
    /// `host:port`
    pub id: String,
}

/// `GET /ws/v1/cluster/apps/{id}`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AppAnswer {
    #[allow(missing_docs)]
    pub app: App,
}

/// An application as the ResourceManager has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct App {
    /// `application_1700000000000_0001`
    pub id: String,
    /// Where it was submitted to; `root.` and so on with the fair scheduler.
    #[serde(default)]
    pub queue: Option<String>,
    /// Higher is sooner; absent before 2.8.
    #[serde(default, deserialize_with = "number_or_text")]
    pub priority: Option<i32>,
    /// Where the logs of its master are, once there is one: a path with the container's id.
    #[serde(default, rename = "amContainerLogs")]
    pub master_logs: Option<String>,
    /// Whether its master runs outside of YARN.
    #[serde(default, rename = "unmanagedApplication", deserialize_with = "is_true")]
    pub unmanaged: bool,
}

impl App {
    /// Where its master is, or was the last one; `None`: there is none yet.
    pub fn master(&self) -> Option<Master> {
        if self.unmanaged {
            return Some(Master::MasterOutside(true));
        }
        let mut parts = self.master_logs.as_ref()?.split('/');
        let container = parts.find(|part| part.starts_with("container_"))?;
        Some(Master::MasterContainer(container.to_owned()))
    }
}

/// `GET /ws/v1/node/info`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NodeManagerAnswer {
    #[serde(rename = "nodeInfo")]
    #[allow(missing_docs)]
    pub node: NodeManagerInfo,
}

/// A NodeManager about itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeManagerInfo {
    /// `host:port`, by which the ResourceManager knows it.
    pub id: String,
    /// Whether its own checks found it fit to run containers.
    #[serde(default)]
    pub node_healthy: Option<bool>,
    /// What they found.
    #[serde(default)]
    pub health_report: Option<String>,
    /// `3.4.1`
    #[serde(default)]
    pub hadoop_version: Option<String>,
    /// Its start, in ms since 1970; absent before 3.0.
    #[serde(rename = "nmStartupTime", default)]
    pub started: Option<i64>,
}

/// `GET /ws/v1/node/containers`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ContainersAnswer {
    #[serde(default, deserialize_with = "list_of_container")]
    #[allow(missing_docs)]
    pub containers: Vec<Container>,
}

/// A container as its NodeManager has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Container {
    /// `container_e01_1700000000000_0001_01_000002`
    pub id: String,
    /// `RUNNING`, `SCHEDULED`, `DONE` ...
    #[serde(default)]
    pub state: Option<String>,
    /// `GUARANTEED` or `OPPORTUNISTIC`; absent before 3.0.
    #[serde(rename = "executionType", default)]
    pub execution_type: Option<String>,
}

/// Application of a container: its id less the attempt and the container's own number.
pub fn application_of(container: &str) -> Option<String> {
    let mut parts = container.strip_prefix("container_")?.split('_');
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let mut cluster = next()?;
    if cluster.starts_with('e') {
        cluster = next()?;
    }
    let app = next()?;
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    (digits(cluster) && digits(app)).then(|| format!("application_{cluster}_{app}"))
}

/// The list below a key of an object. Read as it comes: the list of all nodes has megabytes of
/// what is not used, and a tree of it would take many times as much memory.
struct Below<T> {
    key: &'static str,
    elements: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Below<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {:?}, a text or null", self.key)
    }

    fn visit_unit<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_str<E>(self, _: &str) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Vec<T>, M::Error> {
        let mut found = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == self.key {
                found = map.next_value::<OneOrMany<T>>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// A list, an element that stands for a list of one, or `null` for an empty one.
struct OneOrMany<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMany<T>, D::Error> {
        deserializer.deserialize_any(Elements(PhantomData)).map(OneOrMany)
    }
}

struct Elements<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list, one object or null")
    }

    fn visit_unit<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Vec<T>, S::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(elements)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Vec<T>, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|one| vec![one])
    }
}

fn list<'de, D, T>(deserializer: D, key: &'static str) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(Below { key, elements: PhantomData })
}

fn list_of_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NodeName>, D::Error> {
    list(deserializer, "node")
}

fn list_of_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ResourceType>, D::Error> {
    list(deserializer, "resourceInformation")
}

fn list_of_container<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Container>, D::Error> {
    list(deserializer, "container")
}

/// Some versions write numbers as texts; a text that is none is nothing known.
fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(match value {
        Some(serde_json::Value::Number(number)) => {
            number.as_i64().and_then(|number| i32::try_from(number).ok())
        }
        Some(serde_json::Value::String(text)) => text.trim().parse().ok(),
        _ => None,
    })
}

/// As above; anything else is not true.
fn is_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(match value {
        Some(serde_json::Value::Bool(value)) => value,
        Some(serde_json::Value::String(text)) => text.trim() == "true",
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn containers(text: &str) -> Vec<Container> {
        serde_json::from_str::<ContainersAnswer>(text).unwrap().containers
    }

    #[test]
    fn lists_of_none_one_and_many() {
        for empty in [
            r#"{"containers":null}"#,
            r#"{"containers":""}"#,
            r#"{"containers":{}}"#,
            r#"{"containers":{"container":null}}"#,
            r#"{"containers":{"container":[]}}"#,
            "{}",
        ] {
            assert_eq!(containers(empty), [], "{empty}");
        }
        let one = r#"{"containers":{"container":{"id":"c","state":"RUNNING",
            "executionType":"OPPORTUNISTIC","exitCode":-1000}}}"#;
        assert_eq!(containers(one)[0].execution_type.as_deref(), Some("OPPORTUNISTIC"));
        let many = r#"{"containers":{"container":[{"id":"a"},{"id":"b"}]}}"#;
        assert_eq!(containers(many).len(), 2);
        let bad = r#"{"containers":{"container":[{"id":1}]}}"#;
        let error = serde_json::from_str::<ContainersAnswer>(bad).unwrap_err().to_string();
        assert!(error.contains("expected a string"), "{error}");
    }

    #[test]
    fn what_is_not_used_of_a_list_is_skipped() {
        let nodes = r#"{"nodes":{"of":[1,{"node":2}],"node":[{"rack":"/r","id":"a:1",
            "totalResource":{"memory":[[]]},"nodeLabels":[""]},{"id":"b:1"}],"more":null}}"#;
        let nodes = serde_json::from_str::<NodesAnswer>(nodes).unwrap().nodes;
        assert_eq!(nodes.iter().map(|node| node.id.as_str()).collect::<Vec<_>>(), ["a:1", "b:1"]);
        let value = serde_json::json!({"containers": {"container": {"id": "c"}}});
        let found = serde_json::from_value::<ContainersAnswer>(value).unwrap().containers;
        assert_eq!(found[0].id, "c");
    }

    #[test]
    fn a_node_with_and_without_a_total() {
        let node = |text: &str| serde_json::from_str::<NodeAnswer>(text).unwrap().node.advertised();
        let new = r#"{"node":{"id":"n:1","state":"RUNNING","usedMemoryMB":0,"availMemoryMB":4,
            "totalResource":{"memory":8192,"vCores":8,"resourceInformations":{}}}}"#;
        assert_eq!(node(new), Some(Resource { memory_mib: 8192, vcores: 8 }));
        let old = r#"{"node":{"id":"n:1","state":"RUNNING","usedMemoryMB":9000,
            "availMemoryMB":-808,"usedVirtualCores":9,"availableVirtualCores":-1}}"#;
        assert_eq!(node(old), Some(Resource { memory_mib: 8192, vcores: 8 }));
        assert_eq!(node(r#"{"node":{"id":"n:1","state":"LOST"}}"#), None);
        let app = r#"{"app":{"id":"a","amContainerLogs":
            "http://n:8042/node/containerlogs/container_e01_1_0001_01_000002/u"}}"#;
        let app = serde_json::from_str::<AppAnswer>(app).unwrap().app;
        let container = "container_e01_1_0001_01_000002".to_owned();
        assert_eq!(app.master(), Some(Master::MasterContainer(container)));
        let outside = [("true", true), ("\"true\"", true), ("null", false), ("{}", false)];
        for (value, is_outside) in outside {
            let app = format!(r#"{{"app":{{"id":"a","unmanagedApplication":{value}}}}}"#);
            let app = serde_json::from_str::<AppAnswer>(&app).unwrap().app;
            assert_eq!(app.master(), is_outside.then_some(Master::MasterOutside(true)), "{value}");
        }
        let gpus = r#"{"node":{"id":"n:1","state":"RUNNING","totalResource":{"memory":1,"vCores":1,
            "resourceInformations":{"resourceInformation":[{"name":"memory-mb","value":1},
            {"name":"vcores","value":1},{"name":"yarn.io/gpu","value":2},
            {"name":"x","value":0}]}}}}"#;
        let gpus = serde_json::from_str::<NodeAnswer>(gpus).unwrap().node;
        assert_eq!(gpus.other_resources(), ["yarn.io/gpu"]);
        let negative =
            r#"{"node":{"id":"n:1","state":"LOST","totalResource":{"memory":-1,"vCores":1}}}"#;
        assert_eq!(node(negative), None);
    }

    #[test]
    fn priorities_as_numbers_texts_and_nonsense() {
        let priority = |value: &str| {
            let text = format!(r#"{{"app":{{"id":"a","priority":{value}}}}}"#);
            serde_json::from_str::<AppAnswer>(&text).unwrap().app.priority
        };
        assert_eq!(priority("7"), Some(7));
        assert_eq!(priority("\"7\""), Some(7));
        assert_eq!(priority("\"high\""), None);
        assert_eq!(priority("99999999999"), None);
        assert_eq!(priority("null"), None);
    }

    #[test]
    fn the_application_of_a_container() {
        let app = application_of;
        assert_eq!(app("container_1_0002_01_000003").as_deref(), Some("application_1_0002"));
        assert_eq!(app("container_e17_1_0002_01_000003").as_deref(), Some("application_1_0002"));
        for bad in ["", "container_", "container_e1", "container_a_1_1_1", "container_1_../x_1_1"] {
            assert_eq!(app(bad), None, "{bad}");
        }
    }
}
