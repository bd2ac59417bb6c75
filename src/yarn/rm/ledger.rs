//! What was configured and what LRS put in its place.
//!
//! The ResourceManager shows one figure for a node. After a `kill -9` of lrsd nothing about that
//! figure says whether it is the site's or an offer of the daemon before; taken for the site's,
//! offers would pile up with every restart. So what is about to be sent is written down before it
//! is sent: `<runtime_dir>/state/yarn.json`. The record has no boot in it: the ResourceManager
//! outlives this node's boots. (Where the runtime directory is on a tmpfs it goes with the boot,
//! and so does the offer: a NodeManager that starts registers with its own figures.)

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{NodeId, Resource};
use crate::state::{StateError, files};

/// Version of the record's layout.
const VERSION: u32 = 1;

/// Most offers remembered. One that shows up after so many later ones were sent is a mystery.
const SENT_KEPT: usize = 16;

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
}

impl Ledger {
    /// Nothing was offered yet.
    pub fn new(node: NodeId, configured: Resource) -> Ledger {
        Ledger { version: VERSION, node, configured, sent: Vec::new() }
    }

    /// As it is to be written before `offer` is sent.
    #[must_use]
    pub fn about_to_send(&self, offer: Resource) -> Ledger {
        let mut ledger = self.clone();
        ledger.sent.retain(|sent| *sent != offer);
        ledger.sent.push(offer);
        let surplus = ledger.sent.len().saturating_sub(SENT_KEPT);
        ledger.sent.drain(..surplus);
        ledger
    }

    /// As it is once the configured value is seen to be back.
    #[must_use]
    pub fn given_back(&self) -> Ledger {
        Ledger::new(self.node.clone(), self.configured)
    }

    /// Whether `advertised` is there because LRS sent it.
    pub fn is_ours(&self, advertised: Resource) -> bool {
        advertised != self.configured && self.sent.contains(&advertised)
    }

    /// Whether anything of LRS's may stand.
    pub fn is_clear(&self) -> bool {
        self.sent.is_empty()
    }
}

/// Which ledger holds for a node that shows `advertised`; `site` is what yarn-site.xml says.
///
/// A figure that is neither configured nor LRS's was set by somebody: an edited yarn-site.xml, an
/// operator's rmadmin. It is the new configured value. Without a ledger a figure above the site's
/// own may be a forgotten offer, so the site's wins.
pub fn recognise(
    known: Option<&Ledger>,
    node: &NodeId,
    advertised: Resource,
    site: Option<Resource>,
) -> Ledger {
    match known.filter(|ledger| ledger.node == *node) {
        Some(ledger) if ledger.is_ours(advertised) || advertised == ledger.configured => {
            ledger.clone()
        }
        Some(_) => Ledger::new(node.clone(), advertised),
        None => Ledger::new(node.clone(), site.unwrap_or(advertised)),
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
        "{path} is damaged ({reason}) and was set aside as {aside}; if the ResourceManager shows \
         more than yarn-site.xml says, set it back once with `yarn rmadmin -updateNodeResource`",
        path = path.display(), aside = aside.display()
    )]
    Damaged { path: PathBuf, aside: PathBuf, reason: String },
}

impl LedgerFile {
    /// In the state directory of this runtime directory, which is made if it is not there.
    pub fn in_runtime_dir(runtime_dir: &Path) -> LedgerFile {
        LedgerFile(runtime_dir.join("state").join("yarn.json"))
    }

    /// What an earlier daemon left; `None`: nothing. A damaged file is set aside.
    pub fn read(&self) -> Result<Option<Ledger>, LedgerError> {
        let bytes = match files::read(&self.0) {
            Ok(bytes) => bytes,
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let reason = match serde_json::from_slice::<Ledger>(&bytes) {
            Ok(ledger) if ledger.version == VERSION => return Ok(Some(ledger)),
            Ok(ledger) => format!("version {} instead of {VERSION}", ledger.version),
            Err(error) => error.to_string(),
        };
        let aside = self.0.with_extension("json.damaged");
        std::fs::rename(&self.0, &aside).map_err(|source| StateError {
            action: "set aside",
            path: self.0.clone(),
            source,
        })?;
        Err(LedgerError::Damaged { path: self.0.clone(), aside, reason })
    }

    /// Replaces it; where nothing of LRS's stands it is removed.
    pub fn write(&self, ledger: &Ledger) -> Result<(), StateError> {
        if ledger.is_clear() {
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

    fn node() -> NodeId {
        "node1:45454".parse().unwrap()
    }

    fn offered() -> Ledger {
        Ledger::new(node(), SITE).about_to_send(OLDER).about_to_send(OFFER)
    }

    #[test]
    fn an_offer_of_ours_is_not_taken_for_the_configured_value() {
        for advertised in [OFFER, OLDER, SITE] {
            assert_eq!(recognise(Some(&offered()), &node(), advertised, None), offered());
        }
    }

    #[test]
    fn a_figure_of_somebody_elses_is_the_new_configured_value() {
        let found = recognise(Some(&offered()), &node(), FOREIGN, Some(SITE));
        assert_eq!(found, Ledger::new(node(), FOREIGN));
    }

    #[test]
    fn without_a_ledger_the_site_wins_over_what_may_be_a_forgotten_offer() {
        assert_eq!(recognise(None, &node(), OFFER, Some(SITE)).configured, SITE);
        assert_eq!(recognise(None, &node(), OFFER, None).configured, OFFER);
        let other: NodeId = "node1:4711".parse().unwrap();
        assert_eq!(recognise(Some(&offered()), &other, OFFER, Some(SITE)).configured, SITE);
    }

    #[test]
    fn it_remembers_a_bounded_number_of_offers() {
        let nth = |vcores| Resource { memory_mib: 9000, vcores };
        let many = (0..100).fold(offered(), |ledger, n| ledger.about_to_send(nth(n)));
        assert!(many.is_ours(nth(99)) && many.is_ours(nth(84)) && !many.is_ours(nth(83)));
        assert!(!many.about_to_send(SITE).is_ours(SITE), "configured is never ours");
    }

    #[test]
    fn it_survives_and_goes_when_nothing_of_ours_stands() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let file = LedgerFile::in_runtime_dir(dir.path());
        assert!(file.read().unwrap().is_none());
        file.write(&offered()).unwrap();
        assert_eq!(file.read().unwrap(), Some(offered()));
        file.write(&Ledger::new(node(), SITE)).unwrap();
        assert!(file.read().unwrap().is_none());
        file.write(&Ledger::new(node(), SITE)).unwrap();
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_said() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let path = dir.path().join("state/yarn.json");
        let file = LedgerFile::in_runtime_dir(dir.path());
        let newer = r#"{"version":2,"node":"n:1","configured":{"memory_mib":1,"vcores":1},
            "sent":[]}"#;
        for damaged in ["", "{", "[]", "{\"version\":1}", newer] {
            std::fs::write(&path, damaged).unwrap();
            let error = file.read().unwrap_err().to_string();
            assert!(error.contains("yarn.json.damaged"), "{error}");
            assert!(!path.exists());
            assert!(file.read().unwrap().is_none());
        }
    }
}
