//! Which node this is.
//!
//! The NodeManager says, at each poll: one that restarts may come back with another port. But what
//! answers at its address need not be it. While it is down any user of the node may bind a port
//! such as 8042, and a node named there would be offered what is open here. So an id is believed
//! if it is the one that was set, or if its host is this node ([`Cluster::is_here`]). One that is
//! not believed is remembered until a poll brings one that is, for the passes in between ask
//! no manager. An offer in force is taken back meanwhile.
//!
//! Limit: who names the right node is believed in the rest too, that is in its health and its
//! start.

use super::{Agent, AgentError, Cluster, Misnamed, Moment, NodeId, Outcome, View};

impl Agent {
    /// The node, asked for anew at a poll.
    pub(super) fn look_at_node(
        &mut self,
        cluster: &mut dyn Cluster,
        now: Moment,
    ) -> Result<NodeId, AgentError> {
        if !self.polls {
            self.is_not_misnamed()?;
            if let Some(node) = &self.node {
                return Ok(node.clone());
            }
        }
        let set = self.endpoints.node_id.clone();
        match cluster.node_manager() {
            None => set.ok_or_else(|| {
                AgentError::NoNodeId("no address of the NodeManager is known".into())
            }),
            Some(Err(error)) => {
                self.report.node_manager.error = Some(error.to_string());
                self.is_not_misnamed()?;
                // It may be restarting; the ResourceManager knows the node by its old id still.
                let known = set.or_else(|| self.node.clone()).or_else(|| self.offered_to());
                known.ok_or_else(|| AgentError::NoNodeId(error.to_string()))
            }
            Some(Ok(info)) => {
                let believed = believed(cluster, set, self.offered_to(), &info.id);
                let seen = &mut self.report.node_manager;
                seen.answered(info.hadoop_version, now.wall);
                let found = match believed {
                    Ok(found) => found,
                    Err(misnamed) => {
                        seen.error = Some(misnamed.to_string());
                        self.misnamed = Some(misnamed.clone());
                        return Err(misnamed.into());
                    }
                };
                self.misnamed = None;
                self.health = info.health_report.filter(|_| info.node_healthy == Some(false));
                self.era.node_manager = info.started;
                self.report.node_id = Some(found.to_string());
                self.node = Some(found.clone());
                Ok(found)
            }
        }
    }

    /// Asks it anew when it started. What it does not say stays as the last poll had it.
    pub(super) fn ask_start(&mut self, cluster: &mut dyn Cluster, id: &NodeId) {
        if let Some(Ok(info)) = cluster.node_manager()
            && info.id.eq_ignore_ascii_case(id.as_str())
        {
            self.era.node_manager = info.started;
        }
    }

    /// While the NodeManager is not believed, an offer of ours is of slots that another node may
    /// have: it is taken back. Answers the error either way.
    pub(super) fn withdraw(
        &mut self,
        error: AgentError,
        cluster: &mut dyn Cluster,
        view: &View,
        outcome: &mut Outcome,
        now: Moment,
    ) -> Result<NodeId, AgentError> {
        if matches!(error, AgentError::Misnamed(_))
            && let Some(node) = self.offered_to()
        {
            self.reconcile(cluster, &node, &View { offer: false, ..*view }, outcome, now)?;
        }
        Err(error)
    }

    /// The node that an offer of ours may stand for.
    pub(super) fn offered_to(&self) -> Option<NodeId> {
        let ledger = self.ledger.as_ref().filter(|ledger| !ledger.is_clear());
        ledger.map(|ledger| ledger.node.clone())
    }

    fn is_not_misnamed(&self) -> Result<(), Misnamed> {
        self.misnamed.clone().map_or(Ok(()), Err)
    }
}

fn believed(
    cluster: &mut dyn Cluster,
    set: Option<NodeId>,
    offered_to: Option<NodeId>,
    called: &str,
) -> Result<NodeId, Misnamed> {
    let found: NodeId = called.parse()?;
    match set {
        Some(set) if set.as_str().eq_ignore_ascii_case(found.as_str()) => Ok(found),
        Some(set) => Err(Misnamed::Other { set, found }),
        // It was believed when that was offered.
        None if offered_to.as_ref() == Some(&found) => Ok(found),
        None => match cluster.is_here(found.host()) {
            Ok(true) => Ok(found),
            Ok(false) => Err(Misnamed::Elsewhere { found }),
            Err(error) => Err(Misnamed::NotLookedUp { found, reason: error.to_string() }),
        },
    }
}
