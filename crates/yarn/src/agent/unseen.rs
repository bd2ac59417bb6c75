//! Offering without reading.
//!
//! Behind Kerberos the ResourceManager shows nothing to a daemon without a ticket, though the
//! command of `offer_by = "rmadmin"` has one. The agent then needs `yarn.node_id` and the resource
//! in yarn-site.xml, sends what should stand, repeats it now and then (a NodeManager may have
//! registered anew), and says that nothing was verified.
//!
//! What yarn-site.xml says now is the configured value, also where the ledger has another: nothing
//! else tells that an operator wants it changed. What may be beside memory and vcores is taken
//! from Hadoop's files in the same way.
//!
//! A node that was seen DECOMMISSIONING while the ResourceManager could still be read is sent
//! nothing, as in [`super::seen`], until a restart of its NodeManager is seen.
//!
//! Limits: that the node is being decommissioned, that a lower figure would kill containers since,
//! and another figure set by others are not seen (docs/yarn.md).

use std::time::Duration;

use super::{Agent, AgentError, Cause, Outcome, View};
use crate::client::{Cluster, ClusterError};
use crate::http::Problem;
use crate::ledger::Ledger;
use crate::offer::due;
use lrs_core::units::Moment;
use lrs_hadoop_conf::NodeId;

/// How often an offer that cannot be read back is sent again. Each time is a JVM's start.
pub(super) const REPEAT_UNSEEN: Duration = Duration::from_secs(300);

impl Agent {
    /// What [`Agent::reconcile_seen`] is to a ResourceManager that can be read.
    pub(super) fn reconcile_unseen(
        &mut self,
        cluster: &mut dyn Cluster,
        id: &NodeId,
        error: ClusterError,
        view: &View,
        outcome: &mut Outcome,
        now: Moment,
    ) -> Result<(), AgentError> {
        let known = self.ledger.clone().filter(|ledger| ledger.node == *id);
        let site = cluster.configured();
        (self.report.site, self.read) = (site, None);
        let ledger = match (known.clone(), site) {
            (Some(known), None) => known,
            (Some(known), Some(site)) => known.with_site(site),
            (None, Some(site)) => Ledger::new(id.clone(), site),
            (None, None) => return Err(AgentError::Unseen(error)),
        };
        // Its state is not seen, though a restart of its NodeManager may be, which ends the mark.
        let ledger = ledger.decommissioned(false, self.era);
        let wanted = self.wanted(&ledger, view);
        self.keep(&ledger, known.as_ref(), outcome);
        self.ledger = Some(ledger.clone());
        if ledger.kills() && !(ledger.is_clear() && wanted == ledger.configured) {
            self.report.verified = None;
            return Err(AgentError::DecommissionedUnseen { node: ledger.node });
        }
        if !view.enforce && !ledger.is_clear() {
            let Ledger { node, configured, .. } = ledger;
            return Err(AgentError::ObservedUnseen { node, configured });
        }
        if !view.enforce || (!view.offer && ledger.is_clear()) {
            return Ok(());
        }
        let before = self.unseen.map_or(ledger.configured, |(sent, _)| sent);
        let stands = match self.unseen {
            Some((sent, at)) => sent == wanted && now.boot < at.after(REPEAT_UNSEEN),
            // Nothing was ever sent, and nothing is to be.
            None => ledger.is_clear() && wanted == ledger.configured,
        };
        if stands {
            self.report.verified = Some(false);
            return Ok(());
        }
        self.may_update(wanted, now)?;
        if let Some(at) = due(before, wanted, self.changed_at).filter(|at| *at > now.boot) {
            self.raise_at = Some(at);
            return Ok(());
        }
        self.may_send(cluster, id, wanted.exceeds(before))?;
        // A run that is given up may have been carried out: what stands is not known until one
        // ends well.
        let last = self.unseen.take();
        self.send(cluster, &ledger, wanted, outcome, now)?;
        (self.unseen, self.refused) = (Some((wanted, now.boot)), None);
        let repeated = last.is_some_and(|(sent, _)| sent == wanted);
        self.report.verified = Some(false);
        if !repeated {
            let reason = format!(
                "{}; not verified, for the ResourceManager cannot be read",
                self.reason(view, Cause::Slots)
            );
            self.offered(before, wanted, reason, false, outcome, now);
        }
        if wanted == ledger.configured {
            let back = ledger.about_to_send(wanted, self.era).given_back(now.wall);
            self.write_down(&back, outcome);
            self.ledger = Some(back);
        }
        Ok(())
    }

    /// What of `may_change` is known without the ResourceManager.
    fn may_send(
        &self,
        cluster: &mut dyn Cluster,
        id: &NodeId,
        raises: bool,
    ) -> Result<(), AgentError> {
        let node = id.clone();
        match cluster.other_types() {
            Ok(types) if types.is_empty() => {}
            Ok(types) => return Err(AgentError::OtherTypes { node, types }),
            Err(error) => {
                let reason = error.to_string();
                return Err(AgentError::Types { node, reason });
            }
        }
        if raises && self.endpoints.node_id.is_none() {
            self.is_the_only_one(cluster)?;
        }
        Ok(())
    }
}

/// Whether the ResourceManager is there and shows nothing to us.
pub(super) fn hides(error: &ClusterError) -> bool {
    match error {
        ClusterError::Call(error) => {
            matches!(error.problem, Problem::Kerberos(_) | Problem::Refused { .. })
        }
        ClusterError::NoAddress => true,
        _ => false,
    }
}
