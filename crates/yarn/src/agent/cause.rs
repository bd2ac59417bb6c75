//! Why an offer is sent, for the history.

use super::{Agent, Ledger, Moment, View};
use crate::Resource;

/// Why an offer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Slots opened or closed.
    Slots,
    /// The ResourceManager is another one, or restarted.
    Manager,
    /// The NodeManager started since the last offer.
    NodeManager,
    /// Others set this figure.
    SetByOthers(Resource),
    /// One of the last two: the NodeManager does not tell when it started.
    Either,
}

impl Agent {
    /// Why what should stand does not.
    pub(super) fn cause(
        &self,
        known: Option<&Ledger>,
        shown: Resource,
        ledger: &Ledger,
        restarted: bool,
        now: Moment,
    ) -> Cause {
        if restarted {
            return Cause::Manager;
        }
        let Some(known) = known.filter(|known| known.has_offered() && shown == ledger.configured)
        else {
            return Cause::Slots;
        };
        let (then, era) = (known.era(), self.era);
        if then.node_manager_restarted(era) {
            Cause::NodeManager
        } else if self.may_be_late(now) {
            Cause::Slots
        } else if then.node_manager.is_none() || era.node_manager.is_none() {
            Cause::Either
        } else {
            Cause::SetByOthers(shown)
        }
    }

    pub(super) fn reason(&self, view: &View, cause: Cause) -> String {
        if !view.offer {
            return "nothing is offered any more: the node has its own figure back".into();
        }
        match cause {
            Cause::Slots => {}
            Cause::Manager => {
                return "the ResourceManager restarted or another one took over".into();
            }
            Cause::NodeManager => {
                return "the node shows its own figure again: its NodeManager registered anew"
                    .into();
            }
            Cause::SetByOthers(figure) => {
                return format!("another client gave the node {figure}, which the offer builds on");
            }
            Cause::Either => {
                return "the node shows its own figure again: its NodeManager registered anew, or \
                        it was set by others"
                    .into();
            }
        }
        match view.slots.beyond_base() {
            0 if !view.slots.given_out => "passive slots are held back".into(),
            0 => "no slot is open beyond the base".into(),
            1 => "1 slot is open beyond the base".into(),
            slots => format!("{slots} slots are open beyond the base"),
        }
    }
}
