//! The file that `lrs-place plan` reads: a cluster at one moment, as JSON.
//!
//! Names refer to names; durations are seconds, sizes bytes. These types only say what is written. Whether
//! it has this shape is checked by [`crate::placement::shape`], which ignores unknown fields with a
//! warning; whether it makes sense, all at once, by [`crate::placement::check`]. What a file leaves out is
//! unknown and not zero: a policy that needs it refuses the file ([`crate::placement::catalogue::Needs`]).
//!
//! ```json
//! {
//!   "version": 1,
//!   "nodes": [{"name": "n1", "rack": "r1", "slots": {"active": 2, "passive": 2}}],
//!   "network": {"within_rack_bytes_per_sec": 125e6, "between_racks_bytes_per_sec": 50e6},
//!   "jobs": [{"name": "sort", "tasks": [{"name": "m0", "bytes": 134217728, "replicas": ["n1"]}]}]
//! }
//! ```

use lrs_core::model::Tier;
use serde::{Deserialize, Deserializer, Serialize};

use crate::placement::group::Order;
use crate::placement::ids::Locality;
use crate::placement::resources::Resources;

/// The version of the form that this program reads. Fields may be added to it; what changes or removes
/// one is another version.
pub const VERSION: u32 = 1;

/// A cluster at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterInput {
    /// [`VERSION`].
    pub version: u32,
    /// Nodes, in the order in which they ask for work.
    pub nodes: Vec<NodeInput>,
    /// How fast input moves; without it only local and not local are known.
    pub network: Option<NetworkInput>,
    /// Groups of jobs; without any the jobs are in no group.
    pub groups: Vec<GroupInput>,
    /// Jobs, in the order of their arrival where `arrived` does not say.
    pub jobs: Vec<JobInput>,
}

impl Default for ClusterInput {
    /// Nothing is in it.
    fn default() -> ClusterInput {
        let (nodes, network, groups, jobs) = (Vec::new(), None, Vec::new(), Vec::new());
        ClusterInput { version: VERSION, nodes, network, groups, jobs }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeInput {
    /// Its name.
    pub name: String,
    /// Name of its rack; nodes without one are in one rack together.
    #[serde(default)]
    pub rack: String,
    /// Slots for the tasks of this file, those that run included.
    pub slots: SlotsInput,
    /// What its tasks may take together, those that run included; none: not known.
    #[serde(default)]
    pub capacity: Option<Resources>,
}

/// Slots of a node. A node without tiers has only active ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlotsInput {
    /// Active slots.
    pub active: u32,
    /// Passive slots.
    pub passive: u32,
}

/// Bandwidths, each above zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkInput {
    /// Between two nodes of a rack, bytes per second.
    pub within_rack_bytes_per_sec: f64,
    /// Between nodes of different racks, bytes per second.
    pub between_racks_bytes_per_sec: f64,
    /// Pairs of nodes that differ from that; a later entry for a pair is a fault.
    #[serde(default)]
    pub pairs: Vec<PairInput>,
}

/// The bandwidth from one node to another, in this direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairInput {
    /// Name of the node that sends.
    pub from: String,
    /// Name of the node that receives.
    pub to: String,
    /// Bytes per second; null: there is no connection.
    #[serde(deserialize_with = "null_or_number")]
    pub bytes_per_sec: Option<f64>,
}

/// Null has to be there: a field that was forgotten is an error.
fn null_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Option::deserialize(deserializer)
}

/// A group of jobs: a user, queue or pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupInput {
    /// Its name.
    pub name: String,
    /// Name of the group it is part of.
    #[serde(default)]
    pub parent: Option<String>,
    /// Its share against its siblings, above 0.
    pub weight: f64,
    /// Slots that it has before weights count.
    #[serde(default)]
    pub min_slots: u32,
    /// Which of its jobs is next.
    #[serde(default)]
    pub order: Order,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobInput {
    /// Its name.
    pub name: String,
    /// Name of its group, which has no groups below; required where the file has groups.
    #[serde(default)]
    pub group: Option<String>,
    /// Higher is sooner.
    #[serde(default)]
    pub priority: i32,
    /// Its computing rate, 0 to 1, as lrsd measures it; none: never measured.
    #[serde(default)]
    pub computing_rate: Option<f64>,
    /// When it arrived, seconds since any fixed moment; earlier is sooner.
    #[serde(default)]
    pub arrived: f64,
    /// Seconds since it was first passed over for want of a slot near its input, after it last
    /// started a map; of the last plan's `waiting`, with the time since then added.
    #[serde(default)]
    pub waited_seconds: f64,
    /// Free slots that it let pass since then.
    #[serde(default)]
    pub offers: u64,
    /// How far from its input it may start without waiting anew.
    #[serde(default)]
    pub level: Locality,
    /// Its tasks, those that run included; ended ones left out.
    pub tasks: Vec<TaskInput>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskInput {
    /// Its name, unique in its job.
    pub name: String,
    /// Map or reduce; other work counts as map.
    #[serde(default)]
    pub kind: Kind,
    /// Size of its input.
    #[serde(default)]
    pub bytes: u64,
    /// Names of the nodes that hold its input; none: it runs equally well anywhere.
    #[serde(default)]
    pub replicas: Vec<String>,
    /// What it takes.
    #[serde(default)]
    pub demand: Resources,
    /// Where it runs; none: it waits.
    #[serde(default)]
    pub running: Option<RunningInput>,
}

/// The place of a running task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningInput {
    /// Name of the node.
    pub node: String,
    /// Its tier there.
    #[serde(default = "active")]
    pub tier: Tier,
    /// In how many seconds it is predicted to end; none: not known.
    #[serde(default)]
    pub remaining_seconds: Option<f64>,
}

fn active() -> Tier {
    Tier::Active
}

/// What a task does with its input (thesis 2.1): Hadoop's two kinds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Reads its own input, and runs best where that lies.
    #[default]
    Map,
    /// Reads from all maps: no node is nearer than another.
    Reduce,
}
