//! What was configured and what LRS put in its place.
//!
//! The ResourceManager shows one figure for a node. After a `kill -9` nothing about that
//! figure says whether it is the site's or an offer of the daemon before; taken for the site's,
//! offers would pile up with every restart. So what is about to be sent is written down before it
//! is sent: `<state-dir>/yarn.json`. The record has no boot in it: the ResourceManager
//! outlives this node's boots. (Where the runtime directory is on a tmpfs it goes with the boot,
//! and so does the offer: a NodeManager that starts registers with its own figures.)

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Resource;
use lrs_core::units::WallTime;
use lrs_hadoop_conf::NodeId;
use lrs_host::files::{self, StateError};

/// Version of the record's layout.
const VERSION: u32 = 1;

/// Most offers remembered. One that shows up after so many later ones were sent is a mystery.
const SENT_KEPT: usize = 16;

/// How long offers are remembered after the configured value was seen to be back. A call that
/// timed out here may still be carried out there, and a ResourceManager that takes over has what
/// the NodeManager's last heartbeats: either brings an offer back that was thought gone.
const GRACE: Duration = Duration::from_secs(300);

/// Starts of the two managers, in ms since 1970, by which a restart is noticed; `None`: not
/// known (a NodeManager before 3.0 does not tell).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Era {
    pub resource_manager: Option<i64>,
    pub node_manager: Option<i64>,
}

impl Era {
    /// Whether another ResourceManager is known to have taken over, or the same to have restarted.
    pub fn manager_changed(self, now: Era) -> bool {
        matches!((self.resource_manager, now.resource_manager), (Some(a), Some(b)) if a != b)
    }

    /// Whether the NodeManager is known to have started between the two.
    pub fn node_manager_restarted(self, now: Era) -> bool {
        matches!((self.node_manager, now.node_manager), (Some(then), Some(now)) if then != now)
    }

    /// Whether one of the two is known to have.
    fn is_over(self, now: Era) -> bool {
        self.manager_changed(now) || self.node_manager_restarted(now)
    }
}

/// What is remembered of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    version: u32,
    /// Which node.
    pub node: NodeId,
    /// What it has without LRS.
    pub configured: Resource,
    /// What LRS sent, newest last. Not the newest alone: a daemon may be killed before it sent
    /// it, an update may be late, and after a failover the NodeManager registers with whichever
    /// had reached it.
    sent: Vec<Resource>,
    /// Which managers were there when the newest was sent or, before that, when `configured` was
    /// first seen.
    era: Era,
    /// Since when the configured value is back.
    given_back: Option<WallTime>,
    /// Under which managers the node was seen DECOMMISSIONING.
    decommissioning: Option<Era>,
    /// What the node has by itself, where others set `configured` to less.
    lowered_from: Option<Resource>,
}

impl Ledger {
    /// Nothing was offered yet.
    pub fn new(node: NodeId, configured: Resource) -> Ledger {
        Ledger {
            version: VERSION,
            node,
            configured,
            sent: Vec::new(),
            era: Era::default(),
            given_back: None,
            decommissioning: None,
            lowered_from: None,
        }
    }

    /// With what yarn-site.xml says in place of what was configured, where no manager can be asked.
    #[must_use]
    pub fn with_site(&self, site: Resource) -> Ledger {
        Ledger { configured: site, lowered_from: None, ..self.clone() }
    }

    /// As it is to be written before `offer` is sent.
    #[must_use]
    pub fn about_to_send(&self, offer: Resource, era: Era) -> Ledger {
        let mut ledger = Ledger { era, given_back: None, ..self.clone() };
        ledger.sent.retain(|sent| *sent != offer);
        ledger.sent.push(offer);
        let surplus = ledger.sent.len().saturating_sub(SENT_KEPT);
        ledger.sent.drain(..surplus);
        ledger
    }

    /// As it is while the configured value is seen to be there.
    #[must_use]
    pub fn given_back(&self, now: WallTime) -> Ledger {
        let mut ledger = self.clone();
        let since = *ledger.given_back.get_or_insert(now);
        let lasted = now.unix_micros().saturating_sub(since.unix_micros());
        // Less than nothing: the clock was set back, and says no more how long it was.
        if !u64::try_from(lasted).is_ok_and(|lasted| Duration::from_micros(lasted) < GRACE) {
            ledger.sent.clear();
        }
        if ledger.sent.is_empty() {
            ledger.given_back = None;
        }
        ledger
    }

    /// As it is while an offer is seen to be there.
    #[must_use]
    pub fn standing(&self) -> Ledger {
        Ledger { given_back: None, ..self.clone() }
    }

    /// As it is while the node is seen DECOMMISSIONING (`true`), or in another state.
    ///
    /// Graceful decommission gives the scheduler's record of the node an over-commit timeout of
    /// 0, and no later update with -1 takes it away: containers that do not fit are killed at
    /// once. The record is made anew when either manager starts.
    #[must_use]
    pub fn decommissioned(&self, seen: bool, era: Era) -> Ledger {
        let mut ledger = self.clone();
        if seen {
            ledger.decommissioning = Some(era);
        } else if let Some(then) = ledger.decommissioning {
            // A start that was not known when it was seen: the next one after it ends it too.
            ledger.decommissioning = (!then.is_over(era)).then_some(Era {
                resource_manager: then.resource_manager.or(era.resource_manager),
                node_manager: then.node_manager.or(era.node_manager),
            });
        }
        ledger
    }

    /// Whether a lower offer would kill containers: see [`Self::decommissioned`].
    pub fn kills(&self) -> bool {
        self.decommissioning.is_some()
    }

    /// What the node has by itself while others keep it below that: an operator who wants less
    /// on a node, or nothing at all (`-updateNodeResource NODE 0 0`), wants no offer there.
    pub fn lowered_from(&self) -> Option<Resource> {
        self.lowered_from
    }

    /// Whether it says of the node what has to be known after a restart of LRS and `before` does
    /// not, or the other way round. What stands, and what it is to be set back to, is for whoever
    /// has only the record to go by: a removal of LRS, and an operator who gets a command.
    pub fn differs_for_good(&self, before: Option<&Ledger>) -> bool {
        let lasting = |ledger: &Ledger| {
            let base = (!ledger.is_clear()).then_some(ledger.configured);
            // The mark as it is: one of an earlier start of a manager would be over too soon.
            (ledger.decommissioning, ledger.lowered_from, base)
        };
        lasting(self) != before.map_or((None, None, None), lasting)
    }

    /// Which managers were there when the newest offer was sent.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Whether the newest figure LRS sent is this one.
    pub fn sent_last(&self, figure: Resource) -> bool {
        self.sent.last() == Some(&figure)
    }

    /// Whether an offer stands, or was given back less than `ago` before `now`.
    pub fn stood_within(&self, ago: Duration, now: WallTime) -> bool {
        let age = |since: WallTime| now.unix_micros().saturating_sub(since.unix_micros());
        let recent =
            |since| u64::try_from(age(since)).is_ok_and(|a| Duration::from_micros(a) < ago);
        !self.sent.is_empty() && self.given_back.is_none_or(recent)
    }

    /// Whether `advertised` is a figure of LRS's, or was one.
    pub fn is_ours(&self, advertised: Resource) -> bool {
        advertised != self.configured && self.sent.contains(&advertised)
    }

    /// Whether what LRS sent last is more than the node has by configuration, and was not given
    /// back since: where that is not shown any more, others took it away.
    pub fn has_offered(&self) -> bool {
        !self.is_clear() && self.sent.last().is_some_and(|newest| *newest != self.configured)
    }

    /// Whether nothing of LRS's may stand.
    pub fn is_clear(&self) -> bool {
        self.sent.is_empty() || self.given_back.is_some()
    }

    fn is_worth_keeping(&self) -> bool {
        !self.sent.is_empty() || self.kills() || self.lowered_from.is_some()
    }
}

/// Which ledger holds for a node that runs and shows `advertised`; `site` is what yarn-site.xml
/// says now, `era` who manages now. `may_return`: whether a figure that LRS sent earlier may be back
/// without anybody having set it.
///
/// A figure that is neither configured nor LRS's was set by others: an edited yarn-site.xml, an
/// operator's rmadmin, dynamic-resources.xml. It is the new configured value; where it is less than
/// the node has by itself (what the site says or, where that is not known, what was there before) it
/// is also all that is to be offered. So is the site's figure the configured value once its
/// NodeManager has started since the offer that is shown was sent, whatever that offer is. Without a
/// ledger every figure is foreign: LRS writes each down before it sends it, and never lowers a
/// node that it did not raise.
pub fn recognise(
    known: Option<&Ledger>,
    node: &NodeId,
    advertised: Resource,
    site: Option<Resource>,
    era: Era,
    may_return: bool,
) -> Ledger {
    let less = |by_itself: Option<Resource>| by_itself.filter(|whole| whole.exceeds(advertised));
    let Some(known) = known.filter(|ledger| ledger.node == *node) else {
        let fresh = Ledger::new(node.clone(), advertised);
        return Ledger { era, lowered_from: less(site), ..fresh };
    };
    // What a NodeManager shows that has started since is its own.
    let restarted = known.era.node_manager_restarted(era);
    let by_itself = |before: Resource| site.or((!restarted).then_some(before));
    if advertised == known.configured {
        let lowered_from = known.lowered_from.and_then(|before| less(by_itself(before)));
        return Ledger { lowered_from, ..known.clone() };
    }
    if may_return && known.is_ours(advertised) {
        let edited = site.filter(|_| restarted);
        return Ledger { configured: edited.unwrap_or(known.configured), ..known.clone() };
    }
    Ledger {
        era,
        decommissioning: known.decommissioning,
        lowered_from: less(by_itself(known.lowered_from.unwrap_or(known.configured))),
        ..Ledger::new(node.clone(), advertised)
    }
}

/// The file of the ledger.
#[derive(Clone, Debug)]
pub struct LedgerFile(PathBuf);

/// A ledger that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LedgerError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(
        "{path} is damaged ({reason}) and was set aside as {aside}; what the node shows now is built \
         on: if that is more than it should have, set it back once with `yarn rmadmin -updateNodeResource \
         NODE_ID MEMORY_MB VCORES -1` or, if the node was decommissioned since its NodeManager \
         started, restart its NodeManager: what that command lowers would kill containers then",
        path = path.display(), aside = aside.display()
    )]
    Damaged { path: PathBuf, aside: PathBuf, reason: String },
}

impl LedgerFile {
    /// The one in this directory.
    pub fn in_dir(dir: &Path) -> LedgerFile {
        LedgerFile(dir.join("yarn.json"))
    }

    /// What an earlier daemon left; `None`: nothing. A damaged file is set aside.
    pub fn read(&self) -> Result<Option<Ledger>, LedgerError> {
        let bytes = match files::read(&self.0) {
            Ok(bytes) => bytes,
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        /// What a ledger of any version has.
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let of_head = serde_json::from_slice::<Head>(&bytes);
        let reason = match (of_head, serde_json::from_slice(&bytes)) {
            (Ok(head), _) if head.version != VERSION => {
                format!("version {} and not {VERSION}, so of another lrs-yarn", head.version)
            }
            (_, Ok(ledger)) => return Ok(Some(ledger)),
            (_, Err(error)) => error.to_string(),
        };
        let aside = self.0.with_extension("json.damaged");
        std::fs::rename(&self.0, &aside).map_err(|source| StateError {
            action: "set aside",
            path: self.0.clone(),
            source,
        })?;
        Err(LedgerError::Damaged { path: self.0.clone(), aside, reason })
    }

    /// Replaces it; where there is nothing to remember it is removed.
    pub fn write(&self, ledger: &Ledger) -> Result<(), StateError> {
        if !ledger.is_worth_keeping() {
            return files::remove(&self.0);
        }
        let bytes = serde_json::to_vec(ledger).map_err(|error| StateError {
            action: "write",
            path: self.0.clone(),
            source: error.into(),
        })?;
        files::write_atomically(&self.0, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: Resource = Resource { memory_mib: 8192, vcores: 8 };
    const OFFER: Resource = Resource { memory_mib: 10_240, vcores: 10 };
    const OLDER: Resource = Resource { memory_mib: 9216, vcores: 9 };
    const FOREIGN: Resource = Resource { memory_mib: 5000, vcores: 5 };
    const ERA: Era = Era { resource_manager: Some(1), node_manager: Some(1) };

    fn recognised(known: Option<&Ledger>, advertised: Resource, site: Option<Resource>) -> Ledger {
        recognise(known, &node(), advertised, site, ERA, true)
    }

    fn at(seconds: i64) -> WallTime {
        WallTime::from_unix_micros(seconds * 1_000_000)
    }

    fn node() -> NodeId {
        "node1:45454".parse().unwrap()
    }

    fn offered() -> Ledger {
        Ledger::new(node(), SITE).about_to_send(OLDER, ERA).about_to_send(OFFER, ERA)
    }

    #[test]
    fn an_offer_of_ours_is_not_taken_for_the_configured_value() {
        for advertised in [OFFER, OLDER, SITE] {
            assert_eq!(recognised(Some(&offered()), advertised, None), offered());
        }
    }

    #[test]
    fn a_figure_of_others_is_the_new_configured_value() {
        let more = Resource { memory_mib: 16_384, vcores: 16 };
        let found = recognised(Some(&offered()), more, Some(SITE));
        assert_eq!(found, Ledger { era: ERA, ..Ledger::new(node(), more) });
    }

    #[test]
    fn a_figure_below_the_nodes_own_is_known_for_that_until_it_is_not() {
        let nothing = Resource { memory_mib: 0, vcores: 0 };
        let restarted = Era { node_manager: Some(2), ..ERA };
        for site in [Some(SITE), None] {
            let lowered = recognised(Some(&offered()), FOREIGN, site);
            assert_eq!((lowered.configured, lowered.lowered_from()), (FOREIGN, Some(SITE)));
            assert_eq!(recognised(Some(&lowered), FOREIGN, site), lowered, "it stays");
            let further = recognised(Some(&lowered), nothing, site);
            assert_eq!(further.lowered_from(), Some(SITE), "not what it was lowered to first");
            let half = Resource { memory_mib: 16_384, vcores: 1 };
            assert_eq!(recognised(Some(&further), half, site).lowered_from(), Some(SITE));
            let back = recognised(Some(&further), SITE, site);
            assert_eq!((back.configured, back.lowered_from()), (SITE, None));
            let anew = recognise(Some(&lowered), &node(), SITE, site, restarted, true);
            assert_eq!((anew.configured, anew.lowered_from()), (SITE, None));
            assert!(lowered.differs_for_good(Some(&offered())) && lowered.differs_for_good(None));
            assert!(!back.differs_for_good(None));
        }
        let lowered = recognised(Some(&offered()), FOREIGN, None);
        let smaller = recognise(Some(&offered()), &node(), FOREIGN, None, restarted, true);
        assert_eq!(smaller.lowered_from(), None, "the NodeManager came back with less");
        let again = recognise(Some(&lowered), &node(), FOREIGN, None, restarted, true);
        assert_eq!(again.lowered_from(), None, "that is what it measures itself");
        let by_site = recognised(Some(&lowered), FOREIGN, Some(FOREIGN));
        assert_eq!(by_site.lowered_from(), None, "the site says so too");
        assert_eq!(recognised(None, FOREIGN, Some(SITE)).lowered_from(), Some(SITE));
        assert_eq!(recognised(None, OFFER, Some(SITE)).lowered_from(), None);
        let edited = Resource { memory_mib: 16_384, vcores: 16 };
        let known = recognised(Some(&offered()), SITE, Some(edited));
        assert_eq!(
            known.lowered_from(),
            None,
            "yarn-site.xml was edited, the node was not lowered"
        );
        assert_eq!(lowered.with_site(SITE), Ledger { era: ERA, ..Ledger::new(node(), SITE) });
    }

    #[test]
    fn without_a_ledger_every_figure_is_foreign() {
        for site in [Some(SITE), None] {
            let raised = recognised(None, OFFER, site);
            assert_eq!((raised.configured, raised.lowered_from()), (OFFER, None));
        }
        assert_eq!(recognised(None, FOREIGN, Some(SITE)).configured, FOREIGN, "lowered on purpose");
        let other: NodeId = "node1:4711".parse().unwrap();
        let elsewhere = recognise(Some(&offered()), &other, OFFER, Some(SITE), ERA, true);
        assert_eq!(elsewhere.configured, OFFER, "of that node nothing was written down");
    }

    #[test]
    fn an_earlier_figure_that_others_set_is_theirs() {
        let set = recognise(Some(&offered()), &node(), OLDER, Some(SITE), ERA, false);
        assert_eq!(set, Ledger { era: ERA, ..Ledger::new(node(), OLDER) });
        assert_eq!(recognised(Some(&offered()), OLDER, Some(SITE)), offered(), "it came back");
    }

    #[test]
    fn a_sites_figure_that_equals_an_old_offer_is_the_sites_once_its_node_manager_restarted() {
        let restarted = Era { node_manager: Some(2), ..ERA };
        let with =
            |site, era| recognise(Some(&offered()), &node(), OLDER, site, era, true).configured;
        assert_eq!(with(Some(OLDER), restarted), OLDER);
        assert_eq!(with(Some(OLDER), ERA), SITE, "edited, and not yet in force");
        assert_eq!(with(Some(SITE), restarted), SITE, "the offer still stands");
        assert_eq!(with(Some(OLDER), Era { node_manager: None, ..ERA }), SITE);
    }

    #[test]
    fn offers_are_remembered_for_a_while_after_they_are_given_back() {
        let back = offered().given_back(at(1000));
        assert!(back.is_clear() && back.is_ours(OFFER));
        let later = back.given_back(at(1299));
        assert!(later.is_ours(OFFER), "a late call or a fail-over brings it back");
        assert!(!later.standing().is_clear());
        assert!(offered().has_offered() && !back.has_offered());
        assert!(!offered().about_to_send(SITE, ERA).has_offered(), "sent, and not seen yet");
        let over = later.given_back(at(1300));
        assert_eq!(over, Ledger { era: ERA, ..Ledger::new(node(), SITE) });
        assert!(!back.given_back(at(0)).is_ours(OFFER), "a clock that was set back");
        let minute = Duration::from_secs(60);
        assert!(offered().stood_within(minute, at(9000)) && back.stood_within(minute, at(1059)));
        assert!(!back.stood_within(minute, at(1060)) && !back.stood_within(minute, at(0)));
        assert!(!over.stood_within(minute, at(1300)));
    }

    #[test]
    fn decommissioning_is_remembered_until_a_manager_restarts() {
        let seen = Ledger::new(node(), SITE).decommissioned(true, ERA);
        assert!(seen.kills() && seen.decommissioned(false, ERA).kills());
        assert!(recognised(Some(&seen), FOREIGN, None).kills());
        for restarted in
            [Era { node_manager: Some(2), ..ERA }, Era { resource_manager: Some(2), ..ERA }]
        {
            assert!(!seen.decommissioned(false, restarted).kills());
        }
        assert!(seen.decommissioned(false, Era { node_manager: None, ..ERA }).kills());
        let unknown = Era { node_manager: None, ..ERA };
        let known_later = seen.decommissioned(true, unknown).decommissioned(false, ERA);
        assert!(known_later.kills(), "it may have started before");
        let restarted = Era { node_manager: ERA.node_manager.map(|at| at + 1), ..ERA };
        assert!(!known_later.decommissioned(false, restarted).kills());
        let later = seen.decommissioned(true, Era { node_manager: Some(2), ..ERA });
        assert!(later.differs_for_good(Some(&seen)), "that start does not end it any more");
        assert!(!seen.decommissioned(true, ERA).differs_for_good(Some(&seen)));
    }

    #[test]
    fn it_remembers_a_bounded_number_of_offers() {
        let nth = |vcores| Resource { memory_mib: 9000, vcores };
        let many = (0..100).fold(offered(), |ledger, n| ledger.about_to_send(nth(n), ERA));
        assert!(many.is_ours(nth(99)) && many.is_ours(nth(84)) && !many.is_ours(nth(83)));
        assert!(!many.about_to_send(SITE, ERA).is_ours(SITE), "configured is never ours");
    }

    #[test]
    fn it_survives_and_goes_when_nothing_of_ours_stands() {
        let dir = tempfile::tempdir().unwrap();
        let file = LedgerFile::in_dir(dir.path());
        assert!(file.read().unwrap().is_none());
        file.write(&offered()).unwrap();
        assert_eq!(file.read().unwrap(), Some(offered()));
        file.write(&Ledger::new(node(), SITE)).unwrap();
        assert!(file.read().unwrap().is_none());
        file.write(&Ledger::new(node(), SITE)).unwrap();
        let lowered = recognised(None, FOREIGN, Some(SITE));
        file.write(&lowered).unwrap();
        assert_eq!(file.read().unwrap(), Some(lowered), "an operator's wish outlives us");
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("yarn.json");
        let file = LedgerFile::in_dir(dir.path());
        let newer = r#"{"version":2,"nodes":[]}"#;
        for damaged in ["", "{", "[]", "{\"version\":1}", newer] {
            std::fs::write(&path, damaged).unwrap();
            let error = file.read().unwrap_err().to_string();
            assert!(error.contains("yarn.json.damaged"), "{error}");
            assert_eq!(error.contains("version 2"), damaged == newer, "{error}");
            assert!(error.contains("-updateNodeResource NODE_ID MEMORY_MB VCORES -1`"), "{error}");
            assert!(error.contains("decommissioned") && error.contains("restart its"), "{error}");
            assert!(!path.exists());
            assert!(file.read().unwrap().is_none());
        }
    }
}
