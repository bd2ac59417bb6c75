//! Why an offer does not stand, in words for an operator.

use crate::Resource;
use crate::client::ClusterError;
use crate::http::excerpt;
use lrs_hadoop_conf::{NodeId, NotANodeId};
use lrs_host::files::StateError;

/// Why the NodeManager's word on which node it is does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Misnamed {
    #[error("the NodeManager calls itself by no node id: {0}")]
    NoId(#[from] NotANodeId),
    #[error(
        "the NodeManager at yarn.node_manager is {found}, and yarn.node_id says {set}: nothing is \
         offered until they agree; correct one of them"
    )]
    Other { set: NodeId, found: NodeId },
    #[error(
        "what answers as this node's NodeManager calls itself {found}, and {} is no name of this \
         node or of its addresses: nothing is offered until it names this node; if it is the \
         NodeManager all the same, set yarn.node_id = \"{found}\"",
        .found.host()
    )]
    Elsewhere { found: NodeId },
    #[error(
        "whether {found}, as the NodeManager calls itself, is this node is not known: {} cannot \
         be looked up: {reason}; set yarn.node_id = \"{found}\" if it is",
        .found.host()
    )]
    NotLookedUp { found: NodeId, reason: String },
}

/// Why the offer does not stand.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum AgentError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Update(ClusterError),
    #[error("{0}")]
    Again(String),
    #[error(
        "which node this is is not known: {0}; set yarn.node_id, or yarn.node_manager to the \
         address of the NodeManager's web service"
    )]
    NoNodeId(String),
    #[error(transparent)]
    Misnamed(#[from] Misnamed),
    #[error("the ResourceManager shows no resource for {0} that could be read")]
    NoFigures(NodeId),
    #[error(
        "the ResourceManager has {node} as {state}; the offer waits until it is RUNNING{}",
        health(.report)
    )]
    NotRunning { node: NodeId, state: String, report: Option<String> },
    #[error(
        "{node} has {} beside memory and vcores, and the calls that change a node would make that \
         0: nothing is offered on this node; set yarn.offer = false",
        .others.join(", ")
    )]
    OtherResources { node: NodeId, others: Vec<String> },
    #[error(
        "Hadoop's files name {} beside memory and vcores; what {node} has of it cannot be read, and \
         the command that changes a node would make it 0: nothing is offered on this node; set \
         yarn.offer = false",
        .types.join(", ")
    )]
    OtherTypes { node: NodeId, types: Vec<String> },
    #[error(
        "nothing is offered: whether {node} has resources beside memory and vcores, which the \
         command that changes a node would make 0, is not known: {reason}"
    )]
    Types { node: NodeId, reason: String },
    #[error(
        "the ResourceManager took {sent} for {node} and still shows {shown}; does \
         dynamic-resources.xml or another tool set this node too?"
    )]
    NotTaken { node: NodeId, sent: Resource, shown: Resource },
    #[error(
        "nothing can be read ({0}) and yarn-site.xml has no fixed resource to build on; set \
         yarn.nodemanager.resource.memory-mb and .cpu-vcores there"
    )]
    Unseen(ClusterError),
    #[error(
        "an earlier offer stands: the ResourceManager shows {shown} for {node} instead \
         of {configured}, and observe mode changes nothing; start lrsd once with daemon.mode = \
         \"enforce\", or set it back with `yarn rmadmin -updateNodeResource {node} {} {} -1`",
        .configured.memory_mib, .configured.vcores
    )]
    Observed { node: NodeId, shown: Resource, configured: Resource },
    #[error(
        "an earlier offer for {node} may stand: the ResourceManager cannot be read, and \
         observe mode changes nothing; start lrsd once with daemon.mode = \"enforce\", or set the \
         node back with `yarn rmadmin -updateNodeResource {node} {} {} -1`",
        .configured.memory_mib, .configured.vcores
    )]
    ObservedUnseen { node: NodeId, configured: Resource },
    #[error(
        "{node} was being decommissioned, and the ResourceManager would since kill containers at \
         once that a lower resource has no room for: nothing is sent, and it keeps {shown}, until \
         its NodeManager or the ResourceManager is restarted"
    )]
    Decommissioned { node: NodeId, shown: Resource },
    #[error(
        "{node} was being decommissioned while the ResourceManager could be read, which would since \
         kill containers at once that a lower resource has no room for: nothing is sent until the \
         NodeManager's web service tells that it was restarted. Recommission the node before \
         that, for its state is not seen any more; where the web service cannot be read either, \
         restart the NodeManager, stop lrs-yarn, remove yarn.json in its state directory and start it \
         again"
    )]
    DecommissionedUnseen { node: NodeId },
    #[error(
        "another client gave {node} {shown}, less than the {whole} it has by itself: nothing is offered \
         beyond that until it has them back (`yarn rmadmin -updateNodeResource {node} {} {} -1`) or \
         its NodeManager is restarted",
        .whole.memory_mib, .whole.vcores
    )]
    Lowered { node: NodeId, shown: Resource, whole: Resource },
    #[error(
        "another client gave {node} {shown}, less than the {whole} it has by itself: nothing is offered \
         beyond that until its NodeManager is restarted. Do not set it back by hand: it was being \
         decommissioned, and the ResourceManager would kill containers that {whole} has no room for"
    )]
    LoweredForGood { node: NodeId, shown: Resource, whole: Resource },
    #[error(
        "{0} NodeManagers run on this node: set yarn.node_id to the one the offer is for, and \
         yarn.node_manager to its address"
    )]
    Several(usize),
    #[error(
        "whether more than one NodeManager runs on this node is not known: {0}; set yarn.node_id"
    )]
    Uncounted(String),
    #[error("the managers are not asked and nothing is offered: {0}")]
    Site(String),
    #[error("the offer was not sent, for it could not be written down: {0}")]
    State(#[from] StateError),
}

impl AgentError {
    /// Whether an update came to nothing: the pause after it is [`super::refused`]'s.
    pub(super) fn is_of_an_update(&self) -> bool {
        matches!(self, AgentError::Update(_) | AgentError::Again(_) | AgentError::NotTaken { .. })
    }

    /// Whether every call was answered, so that there is nothing to spare anybody: the next look
    /// comes when it would.
    pub(super) fn is_found_by_reading(&self) -> bool {
        matches!(
            self,
            AgentError::Observed { .. }
                | AgentError::ObservedUnseen { .. }
                | AgentError::Decommissioned { .. }
                | AgentError::DecommissionedUnseen { .. }
                | AgentError::Lowered { .. }
                | AgentError::LoweredForGood { .. }
        )
    }
}

fn health(report: &Option<String>) -> String {
    let words = report.as_deref().map(excerpt);
    words.map_or_else(String::new, |words| format!(" (its NodeManager says: {words})"))
}
