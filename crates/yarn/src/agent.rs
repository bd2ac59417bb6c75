//! What to do next about the offer: read, compare, send, read back.
//!
//! One [`Agent::pass`] is one look at the cluster, and at most one change of it. In order: who is
//! the node (the NodeManager says; its port may be random), who schedules, what does that one show
//! for the node, who set that figure ([`super::ledger`]), what should it be ([`super::offer`]).
//! If they differ the offer is written down, sent, and read back in the passes that follow until
//! it shows or the patience ends.
//!
//! Nothing has to be noticed for an offer to be made again: a ResourceManager that restarted, a
//! failover, a NodeManager that registered anew all come to a node that shows something else than
//! it should. A figure that others set is not fought over; it becomes the configured value
//! the offer builds on or, where it is less than the site's, the offer. That goes for a figure that
//! LRS sent some time ago too, unless it can have come back by itself: see [`seen`].
//!
//! In observe mode and with `yarn.offer = false` the cluster is read only, except that an offer
//! of ours that is still in force is taken back in the latter, and reported in the former.
//!
//! Which node it is, and who is believed about that: [`node`]. What is compared with what, and when
//! a change is held back: [`seen`]. What becomes of an update that fails: [`refused`]. Behind Kerberos
//! nothing can be read: see [`unseen`].
//!
//! No clock, no thread, no pause in here: time is an argument, [`Agent::next`] says when to come
//! again.

mod cause;
mod error;
mod node;
mod refused;
mod seen;
mod unseen;
mod view;

use std::time::Duration;

use serde_json::{Map, json};

use super::client::Cluster;
use super::ledger::{Era, Ledger, LedgerError, LedgerFile, recognise};
use super::offer::{due, offer};
use super::report::Report;
use super::shapes::{ClusterInfo, Node};
use super::{Endpoints, Resource};
use crate::settings::OfferBy;
use lrs_api::proto;
use lrs_core::event::{Change, EventKind};
use lrs_core::units::{BootTime, Moment};
use lrs_hadoop_conf::NodeId;

use cause::Cause;
pub use error::{AgentError, Misnamed};
use refused::Refused;
use seen::Read;
pub use view::{Outcome, View};

/// First pause before an update is read back; each further one is twice as long.
const VERIFY_FIRST: Duration = Duration::from_millis(50);

/// Reads of one update: over 12 seconds in all.
const VERIFY_TRIES: u32 = 8;

/// First pause after an error, and the longest. After one of reading it is no longer than `yarn.poll`.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// How late an update may be carried out that was not answered, not waited for, or sent by an earlier
/// process.
const LATE: Duration = Duration::from_secs(60);

/// How soon after a pass a smaller offer may break into the pause that follows it.
const LESS_AFTER: Duration = Duration::from_secs(1);

/// An update that is being read back.
#[derive(Clone, Debug)]
struct Pending {
    node: NodeId,
    from: Resource,
    to: Resource,
    reason: String,
    tries: u32,
}

/// The state machine.
#[derive(Debug)]
pub struct Agent {
    endpoints: Endpoints,
    by: OfferBy,
    file: LedgerFile,
    ledger: Option<Ledger>,
    /// What of it has to be known after a restart could not be written.
    unkept: bool,
    node: Option<NodeId>,
    /// The NodeManager's last word on that, where it was not believed.
    misnamed: Option<Misnamed>,
    health: Option<String>,
    pending: Option<Pending>,
    /// Updates that came to nothing; `None`: the last one did not.
    refused: Option<Refused>,
    /// When an update was last sent of which is not known what became of it.
    unanswered: Option<BootTime>,
    /// What the node showed when it was last judged.
    read: Option<Read>,
    /// When the resource was last changed, for the pace of raises.
    changed_at: Option<BootTime>,
    /// Unseen mode: what was sent when.
    unseen: Option<(Resource, BootTime)>,
    /// Identity of the active ResourceManager: address and start.
    manager: Option<(String, i64, i64)>,
    /// Starts of the managers, as far as they are known.
    era: Era,
    /// What should stand, as of the last pass.
    wanted: Option<Resource>,
    next_poll: BootTime,
    /// Whether the pass asks the NodeManager.
    polls: bool,
    last_pass: BootTime,
    /// Before that, nothing: an error's pause, or an update's.
    not_before: Option<BootTime>,
    /// A raise that waits for its time.
    raise_at: Option<BootTime>,
    retry: Duration,
    view: Option<View>,
    report: Report,
}

impl Agent {
    /// An agent that goes on where `file` says the last one stopped, and what is wrong with that.
    pub fn new(
        endpoints: Endpoints,
        by: OfferBy,
        file: LedgerFile,
    ) -> (Agent, Option<LedgerError>) {
        let (ledger, damage) = match file.read() {
            Ok(ledger) => (ledger, None),
            Err(error) => (None, Some(error)),
        };
        let mut report = Report {
            node_id: endpoints.node_id.as_ref().map(ToString::to_string),
            resource_managers: endpoints.resource_managers.clone(),
            offer_by: match by {
                OfferBy::Rest => "rest",
                OfferBy::Rmadmin => "rmadmin",
            },
            ..Report::default()
        };
        report.node_manager.url.clone_from(&endpoints.node_manager);
        let agent = Agent {
            node: endpoints.node_id.clone(),
            endpoints,
            by,
            file,
            ledger,
            unkept: false,
            misnamed: None,
            health: None,
            pending: None,
            refused: None,
            unanswered: None,
            read: None,
            changed_at: None,
            unseen: None,
            manager: None,
            era: Era::default(),
            wanted: None,
            next_poll: BootTime::default(),
            polls: false,
            last_pass: BootTime::default(),
            not_before: None,
            raise_at: None,
            retry: RETRY_FIRST,
            view: None,
            report,
        };
        (agent, damage)
    }

    /// For clients.
    pub fn report(&self) -> proto::YarnStatus {
        self.report.to_proto()
    }

    /// Why the last pass did not do what it should; `None`: it did.
    pub fn failure(&self) -> Option<&str> {
        self.report.last_error.as_ref().map(|(text, _)| text.as_str())
    }

    /// The node, once it is known.
    pub fn node(&self) -> Option<&NodeId> {
        self.node.as_ref()
    }

    /// Whether no offer of ours is in force at the ResourceManager.
    pub fn is_clear(&self) -> bool {
        self.pending.is_none() && self.ledger.as_ref().is_none_or(Ledger::is_clear)
    }

    /// Forgets every pause: the daemon stops and there is one chance.
    pub fn hurry(&mut self) {
        self.not_before = None;
        self.raise_at = None;
        self.changed_at = None;
        self.refused = None;
    }

    /// When the next pass is due. Changed slots are a reason to look at once. A pause, after an
    /// error or until an update shows, is kept by a raise; less to offer breaks it, for what is
    /// closing must not be filled meanwhile.
    pub fn next(&self, view: &View) -> BootTime {
        match self.not_before {
            Some(at) if self.asks_for_less(view) => at.min(self.last_pass.after(LESS_AFTER)),
            Some(at) => at,
            None if self.view != Some(*view) => BootTime::default(),
            None => self.raise_at.map_or(self.next_poll, |at| at.min(self.next_poll)),
        }
    }

    /// Whether less should stand than the last pass was for.
    pub fn asks_for_less(&self, view: &View) -> bool {
        let (Some(ledger), Some(last)) = (&self.ledger, &self.view) else { return false };
        figure(ledger, view).is_below(figure(ledger, last))
    }

    /// Whether [`Self::next`] is for the regular look, hints included.
    pub fn is_poll(&self, now: BootTime) -> bool {
        now >= self.next_poll
    }

    /// One look, at most one change.
    pub fn pass(&mut self, cluster: &mut dyn Cluster, view: &View, now: Moment) -> Outcome {
        let mut outcome = Outcome::default();
        if self.asks_for_less(view) {
            // A pause that grew over other figures is not for this one.
            self.retry = RETRY_FIRST;
        }
        self.begin(now);
        self.report.offer_enabled = view.offer && view.enforce;
        self.not_before = None;
        self.raise_at = None;
        self.view = Some(*view);
        self.polls = self.is_poll(now.boot);
        if self.polls {
            self.next_poll = now.boot.after(view.poll);
        }
        let looked = self
            .endpoints_are_good()
            .and_then(|()| self.look_at_node(cluster, now))
            .or_else(|error| self.withdraw(error, cluster, view, &mut outcome, now))
            .and_then(|node| self.reconcile(cluster, &node, view, &mut outcome, now));
        match looked {
            Ok(()) => {
                self.retry = RETRY_FIRST;
                self.report.last_error = None;
            }
            Err(error) => self.failed(&error, &mut outcome, now),
        }
        outcome
    }

    /// What an earlier process sent may come late: the first pass takes note of it.
    fn begin(&mut self, now: Moment) {
        let first = self.last_pass == BootTime::default();
        self.last_pass = now.boot;
        if first && self.ledger.as_ref().is_some_and(|known| known.stood_within(LATE, now.wall)) {
            self.unanswered = Some(now.boot);
        }
    }

    fn failed(&mut self, error: &AgentError, outcome: &mut Outcome, now: Moment) {
        let text = error.to_string();
        if !error.is_found_by_reading() && !error.is_of_an_update() {
            // A pause longer than that between two passes when all is well would spare no one.
            let most = self.view.map_or(RETRY_MOST, |view| view.poll);
            let most = most.clamp(RETRY_FIRST, RETRY_MOST);
            self.not_before = Some(now.boot.after(self.retry.min(most)));
            self.retry = self.retry.saturating_mul(2).min(most);
        }
        if self.report.last_error.as_ref().is_some_and(|(before, _)| *before == text) {
            return;
        }
        self.report.last_error = Some((text.clone(), now.wall));
        if !self.is_news(&text) {
            return;
        }
        if !self.report.offer_enabled && self.is_clear() {
            outcome.complaints.push(text);
            return;
        }
        let mut inputs = Map::new();
        inputs.insert("node".into(), json!(self.node));
        outcome.changes.push(Change {
            kind: EventKind::OfferFailed,
            from: None,
            to: self.wanted.map(|wanted| wanted.to_string()),
            reason: text,
            inputs,
        });
    }

    fn endpoints_are_good(&self) -> Result<(), AgentError> {
        let fault = self.endpoints.fault.clone();
        fault.map_or(Ok(()), |fault| Err(AgentError::Site(fault)))
    }

    fn reconcile(
        &mut self,
        cluster: &mut dyn Cluster,
        id: &NodeId,
        view: &View,
        outcome: &mut Outcome,
        now: Moment,
    ) -> Result<(), AgentError> {
        let read = cluster.active().and_then(|(url, info)| {
            let node = cluster.node(id)?;
            Ok((url, info, node))
        });
        match read {
            Ok((url, info, node)) => {
                self.unseen = None;
                let restarted = self.saw_manager(url, info, now);
                self.report.node_manager.state = Some(node.state.clone());
                self.reconcile_seen(cluster, id, &node, restarted, view, outcome, now)
            }
            Err(error) => {
                self.report.resource_manager.error = Some(error.to_string());
                self.report.advertised = None;
                self.report.verified = None;
                if self.by == OfferBy::Rmadmin && unseen::hides(&error) {
                    return self.reconcile_unseen(cluster, id, error, view, outcome, now);
                }
                Err(error.into())
            }
        }
    }

    /// Whether it is another one than before, or the same anew.
    fn saw_manager(&mut self, url: String, info: ClusterInfo, now: Moment) -> bool {
        let identity = (url.clone(), info.id, info.started_on);
        let known = self.manager.replace(identity.clone());
        self.era.resource_manager = Some(info.started_on);
        let seen = &mut self.report.resource_manager;
        seen.url = Some(url);
        seen.state = Some(info.ha_state);
        seen.answered(info.hadoop_version, now.wall);
        let restarted = known.is_some_and(|known| known != identity);
        if restarted {
            self.refused = None;
        }
        restarted
    }

    /// Looks whether the update that was sent shows.
    fn read_back(
        &mut self,
        id: &NodeId,
        shown: Resource,
        outcome: &mut Outcome,
        now: Moment,
    ) -> Result<ReadBack, AgentError> {
        let Some(mut pending) = self.pending.take().filter(|pending| pending.node == *id) else {
            return Ok(ReadBack::Done);
        };
        if shown == pending.to {
            self.refused = None;
            self.offered(pending.from, pending.to, pending.reason, true, outcome, now);
            return Ok(ReadBack::Done);
        }
        pending.tries += 1;
        if pending.tries < VERIFY_TRIES {
            let pause = VERIFY_FIRST.saturating_mul(1 << pending.tries.min(16));
            self.not_before = Some(now.boot.after(pause));
            self.report.verified = Some(false);
            self.pending = Some(pending);
            return Ok(ReadBack::Waiting);
        }
        self.report.verified = Some(false);
        let error = AgentError::NotTaken { node: id.clone(), sent: pending.to, shown };
        Err(self.refuse(pending.to, error, now))
    }

    /// What should stand.
    fn wanted(&mut self, ledger: &Ledger, view: &View) -> Resource {
        let wanted = figure(ledger, view);
        self.report.configured = Some(ledger.configured);
        self.report.offered = (view.offer && view.enforce).then_some(wanted);
        self.wanted = Some(wanted);
        wanted
    }

    /// Written down first: see [`super::ledger`]. The configured value needs no record to be
    /// known again, and a full disk is no reason to keep an offer standing.
    fn send(
        &mut self,
        cluster: &mut dyn Cluster,
        ledger: &Ledger,
        wanted: Resource,
        outcome: &mut Outcome,
        now: Moment,
    ) -> Result<(), AgentError> {
        let next = ledger.about_to_send(wanted, self.era);
        match self.file.write(&next) {
            Ok(()) => self.unkept = false,
            Err(error) if wanted == ledger.configured => {
                self.unkept = true;
                let complaint = format!("the offer is given back without a record of it: {error}");
                outcome.complaints.push(complaint);
            }
            Err(error) => return Err(error.into()),
        }
        self.ledger = Some(next);
        match cluster.update(&ledger.node, wanted) {
            Ok(()) => {
                self.changed_at = Some(now.boot);
                Ok(())
            }
            Err(error) => Err(self.refuse(wanted, AgentError::Update(error), now)),
        }
    }

    /// Writes down what has to be known after a restart, if that is news or was not written yet: a
    /// disk that was full has room again some time.
    fn keep(&mut self, ledger: &Ledger, before: Option<&Ledger>, outcome: &mut Outcome) {
        if self.unkept || ledger.differs_for_good(before) {
            self.write_down(ledger, outcome);
        }
    }

    /// For what stands already: a failure holds nothing up.
    fn write_down(&mut self, ledger: &Ledger, outcome: &mut Outcome) {
        let written = self.file.write(ledger);
        let reported = std::mem::replace(&mut self.unkept, written.is_err());
        if let Err(error) = written
            && !reported
        {
            outcome.complaints.push(format!(
                "what is to be known of the offer after a restart is not written down, \
                 which each look tries again: {error}"
            ));
        }
    }

    fn offered(
        &mut self,
        from: Resource,
        to: Resource,
        reason: String,
        verified: bool,
        outcome: &mut Outcome,
        now: Moment,
    ) {
        self.report.verified_at = verified.then_some(now.wall).or(self.report.verified_at);
        let mut inputs = Map::new();
        if let Some(view) = self.view {
            inputs.insert("active".into(), json!(view.slots.active));
            inputs.insert("passive".into(), json!(view.slots.passive));
            inputs.insert("base".into(), json!(view.slots.base));
            inputs.insert("slot_memory_mib".into(), json!(view.slot.memory.0 >> 20));
            inputs.insert("slot_vcores".into(), json!(view.slot.vcores));
        }
        if let Some(ledger) = &self.ledger {
            inputs.insert("configured".into(), json!(ledger.configured.to_string()));
        }
        inputs.insert("node".into(), json!(self.node));
        inputs.insert("verified".into(), json!(verified));
        let (from, to) = (Some(from.to_string()), Some(to.to_string()));
        outcome.changes.push(Change { kind: EventKind::Offered, from, to, reason, inputs });
    }
}

/// What should stand of what `ledger` knows while things are as `view` has them.
fn figure(ledger: &Ledger, view: &View) -> Resource {
    if view.offer && view.enforce && ledger.lowered_from().is_none() {
        offer(ledger.configured, view.slots, view.slot, view.memory)
    } else {
        ledger.configured
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadBack {
    Done,
    Waiting,
}

impl ReadBack {
    fn is_waiting(self) -> bool {
        self == ReadBack::Waiting
    }
}

#[cfg(test)]
mod tests;
