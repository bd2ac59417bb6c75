//! What the ResourceManager calls a node.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A node as the ResourceManager knows it: `host:port` of the NodeManager's own protocol.
///
/// Checked because it becomes part of a path and an argument of a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(String);

/// Longest host name of DNS (RFC 1035), a colon and a port.
const MAX_NODE_ID: usize = 253 + 1 + 5;

/// A text that names no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no node id; one is a host name, a colon and a port: node1.example.org:45454")]
pub struct NotANodeId(String);

impl NodeId {
    /// As YARN writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the port.
    pub fn host(&self) -> &str {
        self.0.rsplit_once(':').map_or(&self.0, |(host, _)| host)
    }
}

impl FromStr for NodeId {
    type Err = NotANodeId;

    fn from_str(text: &str) -> Result<NodeId, NotANodeId> {
        let bad = || NotANodeId(text.chars().take(MAX_NODE_ID).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':');
        // A leading "-" would be an option to rmadmin.
        let host_fits = host.bytes().all(fits) && host.bytes().next().is_some_and(|b| b != b'-');
        let port_fits = port.bytes().all(|b| b.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port != 0);
        if text.len() <= MAX_NODE_ID && host_fits && port_fits {
            Ok(NodeId(text.to_owned()))
        } else {
            Err(bad())
        }
    }
}

impl TryFrom<String> for NodeId {
    type Error = NotANodeId;

    fn try_from(text: String) -> Result<NodeId, NotANodeId> {
        text.parse()
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> String {
        id.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_id_is_a_host_and_a_port_and_nothing_that_could_be_more() {
        for good in ["node1:45454", "10.0.0.1:1", "a_b.example.org:65535", "::1:8041"] {
            assert_eq!(good.parse::<NodeId>().map(String::from).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "node1",
            ":1",
            "node1:",
            "node1:0",
            "node1:65536",
            "a/b:1",
            "a b:1",
            "a?b:1",
            "node1:+1",
            "-x:1",
            "a\n:1",
            "a%2f:1",
        ] {
            assert!(bad.parse::<NodeId>().is_err(), "{bad:?}");
        }
        assert!(format!("{}:1", "a".repeat(300)).parse::<NodeId>().is_err());
        assert_eq!("node1:45454".parse::<NodeId>().unwrap().host(), "node1");
    }
}
