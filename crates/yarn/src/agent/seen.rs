//! Offering to a ResourceManager that shows the node: everything that was read meets here.
//!
//! Only the figures of a node that is RUNNING are used. A node that is being decommissioned shows
//! what its containers have at the moment, one that is unhealthy or lost what it had before;
//! neither is a value that an administrator configured.
//!
//! A fault that holds up a raise (an unhealthy node, a record that cannot be written, a raise that
//! was sent and does not show yet) does not hold up a lower offer or giving back. The one exception
//! is a node that would kill containers for it ([`Ledger::decommissioned`]): the room that was free
//! at the reading may be in use when the figure arrives, so nothing is sent there.
use super::{
    Agent, AgentError, BootTime, Cause, Cluster, Era, LATE, LESS_AFTER, Ledger, Moment, Node,
    NodeId, Outcome, Pending, VERIFY_FIRST, View, due, figure, recognise,
};
use crate::Resource;

/// The state of a node that goes after its containers have ended.
const DECOMMISSIONING: &str = "DECOMMISSIONING";

/// What a node that ran showed, and who managed then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    shown: Resource,
    era: Era,
}

/// The result of a pass.
struct Judged {
    ledger: Ledger,
    shown: Resource,
    wanted: Resource,
    /// LRS sent what is shown.
    ours: bool,
    running: bool,
}

impl Agent {
    /// Compares and, if need be, sends.
    #[allow(clippy::too_many_arguments)] // one place, in which everything that was read meets
    pub(super) fn reconcile_seen(
        &mut self,
        cluster: &mut dyn Cluster,
        id: &NodeId,
        node: &Node,
        restarted: bool,
        view: &View,
        outcome: &mut Outcome,
        now: Moment,
    ) -> Result<(), AgentError> {
        let shown = node.advertised().ok_or_else(|| AgentError::NoFigures(id.clone()))?;
        self.report.advertised = Some(shown);
        let overtaken = self.overtaken(id, shown, view, now);
        if overtaken.is_none() && self.read_back(id, shown, outcome, now)?.is_waiting() {
            if self.sent_too_much(id, shown, view).is_some()
                && let Some(at) = self.again_at()
            {
                self.not_before = self.not_before.map(|pause| pause.min(at));
            }
            return Ok(());
        }
        let known = self.ledger.clone().filter(|known| known.node == *id);
        if !self.polls && self.is_unexpected(shown, known.as_ref()) {
            self.ask_start(cluster, id);
        }
        let judged = self.judge(cluster, id, node, shown, view, outcome, now);
        let Judged { ledger, wanted, ours, .. } = &judged;
        let stands = *wanted == shown && overtaken.is_none();
        self.report.verified = Some(stands);
        if stands {
            self.report.verified_at = Some(now.wall);
            return self.rests(&judged, view, outcome, now);
        }
        if !view.enforce || (!view.offer && !ours && overtaken.is_none()) {
            // No change was requested of what others set.
            self.report.verified = None;
            let configured = ledger.configured;
            return match ours {
                // Neither lrsd in another mode nor a command would do it.
                true if ledger.kills() => {
                    Err(AgentError::Decommissioned { node: id.clone(), shown })
                }
                true => Err(AgentError::Observed { node: id.clone(), shown, configured }),
                false => Ok(()),
            };
        }
        self.may_change(id, node, &judged)?;
        let cause = match overtaken {
            None => self.cause(known.as_ref(), shown, ledger, restarted, now),
            Some(_) => Cause::Slots,
        };
        let from = overtaken.unwrap_or(shown);
        self.may_update(*wanted, now)?;
        if matches!(cause, Cause::Slots | Cause::Manager)
            && let Some(at) = due(from, *wanted, self.changed_at).filter(|at| *at > now.boot)
        {
            self.raise_at = Some(at);
            return Ok(());
        }
        if wanted.exceeds(shown) && self.endpoints.node_id.is_none() {
            self.is_the_only_one(cluster)?;
        }
        let reason = self.reason(view, cause);
        self.send(cluster, ledger, *wanted, outcome, now)?;
        self.not_before = Some(now.boot.after(VERIFY_FIRST));
        self.pending = Some(Pending { node: id.clone(), from, to: *wanted, reason, tries: 0 });
        Ok(())
    }

    /// What was sent, does not show yet and is too much by now.
    fn sent_too_much(&self, id: &NodeId, shown: Resource, view: &View) -> Option<Resource> {
        let ledger = self.ledger.as_ref().filter(|ledger| ledger.node == *id)?;
        let sent = self.pending.as_ref().filter(|pending| pending.node == *id)?.to;
        (sent != shown && figure(ledger, view).is_below(sent)).then_some(sent)
    }

    /// The same, forgotten: it is not waited for, since the ResourceManager carries out in order
    /// what it is sent. One that lags is not sent more than one in [`LESS_AFTER`].
    fn overtaken(
        &mut self,
        id: &NodeId,
        shown: Resource,
        view: &View,
        now: Moment,
    ) -> Option<Resource> {
        let sent = self.sent_too_much(id, shown, view)?;
        if self.again_at().is_some_and(|at| at > now.boot) {
            return None;
        }
        self.pending = None;
        self.unanswered = Some(now.boot);
        Some(sent)
    }

    fn again_at(&self) -> Option<BootTime> {
        self.changed_at.map(|at| at.after(LESS_AFTER))
    }

    /// Whether the node shows neither what it did nor what was sent last.
    fn is_unexpected(&self, shown: Resource, known: Option<&Ledger>) -> bool {
        self.read.is_some_and(|read| read.shown != shown)
            && known.is_none_or(|known| !known.sent_last(shown))
    }

    /// Whether an update that nothing waits for may be carried out yet.
    pub(super) fn may_be_late(&self, now: Moment) -> bool {
        self.unanswered.is_some_and(|at| now.boot < at.after(LATE))
    }

    /// Whether an earlier figure of LRS's may show without anybody having set it again. What the
    /// ResourceManager is sent it carries out in order. So once the newest update has been seen, an
    /// earlier figure comes back only by an update that was not answered, or with another
    /// ResourceManager, which knows the node from its heartbeats.
    fn may_return(&self, known: Option<&Ledger>, shown: Resource, now: Moment) -> bool {
        let Some(known) = known else { return false };
        let then = self.read.map_or(known.era(), |read| read.era);
        let was_there = match self.read {
            Some(read) => read.shown == shown,
            None => !known.is_clear(),
        };
        was_there
            || known.sent_last(shown)
            || then.manager_changed(self.era)
            || self.may_be_late(now)
    }

    /// Who set the figure that is shown, and what it should be.
    #[allow(clippy::too_many_arguments)] // as for reconcile_seen
    fn judge(
        &mut self,
        cluster: &mut dyn Cluster,
        id: &NodeId,
        node: &Node,
        shown: Resource,
        view: &View,
        outcome: &mut Outcome,
        now: Moment,
    ) -> Judged {
        let running = node.state == "RUNNING";
        let site = cluster.configured();
        let known = self.ledger.take().filter(|known| known.node == *id);
        self.report.site = site;
        let returns = self.may_return(known.as_ref(), shown, now);
        let before = match (&known, running) {
            (known, true) => recognise(known.as_ref(), id, shown, site, self.era, returns),
            (Some(known), false) => known.clone(),
            (None, false) => Ledger::new(id.clone(), site.unwrap_or(shown)),
        };
        let mut ledger = before.decommissioned(node.state == DECOMMISSIONING, self.era);
        let ours = ledger.is_ours(shown);
        if ours {
            ledger = ledger.standing();
        }
        let wanted = self.wanted(&ledger, view);
        self.keep(&ledger, known.as_ref(), outcome);
        // What a node shows that does not run is no base for what follows.
        if running {
            self.read = Some(Read { shown, era: self.era });
        }
        self.ledger = (running || known.is_some() || ledger.kills()).then(|| ledger.clone());
        Judged { ledger, shown, wanted, ours, running }
    }

    /// Nothing is to be changed.
    fn rests(
        &mut self,
        judged: &Judged,
        view: &View,
        outcome: &mut Outcome,
        now: Moment,
    ) -> Result<(), AgentError> {
        let Judged { ledger, shown, running, .. } = judged;
        if *running && *shown == ledger.configured {
            let back = ledger.given_back(now.wall);
            if back != *ledger {
                self.write_down(&back, outcome);
                self.ledger = Some(back);
            }
        }
        match ledger.lowered_from().filter(|_| view.offer && view.enforce) {
            Some(whole) => {
                let (node, shown) = (ledger.node.clone(), *shown);
                // Less of one and more of the other is a way to keep a node small too.
                match ledger.kills() && shown.exceeds(whole) {
                    true => Err(AgentError::LoweredForGood { node, shown, whole }),
                    false => Err(AgentError::Lowered { node, shown, whole }),
                }
            }
            None => Ok(()),
        }
    }

    /// Whether what is shown may be replaced by what should be.
    fn may_change(&self, id: &NodeId, node: &Node, judged: &Judged) -> Result<(), AgentError> {
        let Judged { ledger, shown, wanted, ours, running } = judged;
        let others = node.other_resources();
        if !others.is_empty() {
            let others = others.into_iter().map(str::to_owned).collect();
            return Err(AgentError::OtherResources { node: id.clone(), others });
        }
        if !running && (wanted.exceeds(*shown) || !ours) {
            return Err(AgentError::NotRunning {
                node: id.clone(),
                state: node.state.clone(),
                report: self.health.clone(),
            });
        }
        if ledger.kills() {
            return Err(AgentError::Decommissioned { node: id.clone(), shown: *shown });
        }
        Ok(())
    }

    /// Of several NodeManagers that each believe to be the node each would be offered its memory.
    pub(super) fn is_the_only_one(&self, cluster: &mut dyn Cluster) -> Result<(), AgentError> {
        match cluster.node_managers_here() {
            Ok(0 | 1) => Ok(()),
            Ok(count) => Err(AgentError::Several(count)),
            Err(error) => Err(AgentError::Uncounted(error.to_string())),
        }
    }
}
