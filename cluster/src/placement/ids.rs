//! Numbers of what is in a cluster, and how near a task is to its input.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub(crate) usize);

        impl $name {
            /// Its number, from 0 on; that of a job or task that was forgotten is used again.
            pub fn number(self) -> usize {
                self.0
            }
        }
    )*};
}

ids! {
    /// A node of one [`Cluster`](crate::placement::cluster::Cluster).
    NodeId;
    /// A job of one [`Cluster`](crate::placement::cluster::Cluster).
    JobId;
    /// A task of one [`Cluster`](crate::placement::cluster::Cluster).
    TaskId;
    /// A group of one [`Cluster`](crate::placement::cluster::Cluster).
    GroupId;
}

/// A rack of one [`Cluster`](crate::placement::cluster::Cluster).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RackId(pub(crate) usize);

/// How near a task runs to its input; nearer is less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Locality {
    /// On a node that holds it, or it has none.
    #[default]
    Node,
    /// In a rack that holds it.
    Rack,
    /// In another rack.
    Remote,
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Locality::Node => "node",
            Locality::Rack => "rack",
            Locality::Remote => "remote",
        })
    }
}
