//! Taking the offer back when LRS leaves: at a stop, and at the removal of LRS.
//!
//! The agent does it like any lower offer, but there is one chance and little time. What could not
//! be done stays in the ledger, where the next lrs-yarn finds it, and is reported with the command
//! that does it by hand, or why none is safe ([`NotGivenBack`]).

use std::path::Path;
use std::time::Duration;

use lrs_core::units::BootTime;
use lrs_hadoop_conf::NodeId;
use lrs_host::clock;

use super::agent::{Agent, Outcome, View};
use super::client::Client;
use super::ledger::{LedgerError, LedgerFile};
use super::offer::{NodeMemory, SlotSize, Slots};
use super::rmadmin::command_line;
use super::settings::Settings;
use super::{Endpoints, Resource};

/// How long it may take at a stop. Some hundredths of a second are needed over REST; the Java machine
/// of `offer_by = "rmadmin"`, with a ticket from a keytab, is ready in two or three seconds.
pub const AT_STOP: Duration = Duration::from_secs(5);

/// How long it may take while packages are removed: nothing waits for that but its operator.
const AT_REMOVAL: Duration = Duration::from_secs(30);

/// What LRS offered may stand although LRS leaves.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum NotGivenBack {
    #[error(
        "what LRS offered YARN for {node} may still stand: {why}. An lrs-yarn that runs again \
         puts it right; by hand: {command}"
    )]
    Offer { node: NodeId, why: String, command: String },
    #[error(
        "what LRS offered YARN for {node} may still stand: {why}. Do not set it back by hand: the \
         node was being decommissioned, and the ResourceManager would kill containers that \
         {configured} has no room for. Restart its NodeManager, which registers with its own \
         figures; containers run on where it recovers them"
    )]
    Kept { node: NodeId, why: String, configured: Resource },
    #[error("whether an offer of LRS's is still in force at YARN is not known: {0}")]
    Unknown(#[from] LedgerError),
}

/// Says of what is left behind, from what is written down.
#[derive(Clone, Debug)]
pub struct Witness {
    file: LedgerFile,
    rmadmin: Vec<String>,
}

impl Witness {
    /// A witness of the ledger in `dir`. Without settings it names the command that everybody has.
    pub fn of(dir: &Path, settings: Option<&Settings>) -> Witness {
        let set = settings.map(|settings| settings.yarn.lasting.rmadmin.clone());
        let rmadmin = set.unwrap_or_else(|| ["yarn", "rmadmin"].map(str::to_owned).to_vec());
        Witness { file: LedgerFile::in_dir(dir), rmadmin }
    }

    /// # Errors
    /// What is left behind, `why` being the reason.
    pub fn check(&self, why: &str) -> Result<(), NotGivenBack> {
        let Some(ledger) = self.file.read()?.filter(|ledger| !ledger.is_clear()) else {
            return Ok(());
        };
        let (why, configured) = (why.to_owned(), ledger.configured);
        if ledger.kills() {
            return Err(NotGivenBack::Kept { node: ledger.node, why, configured });
        }
        let command = command_line(&self.rmadmin, &ledger.node, configured);
        Err(NotGivenBack::Offer { node: ledger.node, why, command })
    }
}

/// Takes back the offer in force at a stop; `tell` gets the outcome of each pass.
///
/// # Errors
/// Why it may still stand.
pub(super) fn at_stop(
    agent: &mut Agent,
    client: &mut Client,
    view: &View,
    call: Duration,
    tell: impl FnMut(&Agent, Outcome),
) -> Result<(), String> {
    if agent.is_clear() {
        return Ok(());
    }
    if !view.enforce {
        return Err("observe mode changes nothing".into());
    }
    let deadline = clock::boot_time().after(AT_STOP);
    take_back(agent, client, view, call, deadline, tell)
}

/// Takes back what stands when LRS is removed, from what is kept in `dir`. Answers the node of the
/// offer; `None`: nothing stood.
///
/// # Errors
/// What is left behind.
pub fn at_removal(dir: &Path) -> Result<Option<NodeId>, NotGivenBack> {
    let file = LedgerFile::in_dir(dir);
    let Some(ledger) = file.read()?.filter(|ledger| !ledger.is_clear()) else {
        return Ok(None);
    };
    let kept = Settings::kept(dir).map_err(|error| error.to_string());
    let settings = kept.and_then(|kept| kept.ok_or("the settings of lrs-yarn are gone".to_owned()));
    let witness = Witness::of(dir, settings.as_ref().ok());
    let why = match settings.and_then(|settings| take_back_alone(&settings, file)) {
        Ok(()) => "the node has another id now".to_owned(),
        Err(why) => why,
    };
    witness.check(&why)?;
    Ok(Some(ledger.node))
}

fn take_back_alone(settings: &Settings, file: LedgerFile) -> Result<(), String> {
    let yarn = &settings.yarn;
    let endpoints = Endpoints::read(&yarn.lasting).map_err(|error| error.to_string())?;
    let mut client = Client::of(yarn, endpoints.clone()).map_err(|error| error.to_string())?;
    let (mut agent, damage) = Agent::new(endpoints, yarn.lasting.offer_by, file);
    if let Some(error) = damage {
        return Err(error.to_string());
    }
    let view = View {
        slots: Slots::default(),
        memory: NodeMemory::default(),
        slot: SlotSize { memory: yarn.slot_memory, vcores: yarn.slot_vcores },
        offer: false,
        enforce: true,
        poll: yarn.poll,
    };
    let deadline = clock::boot_time().after(AT_REMOVAL);
    // The history is not read any more; what went wrong is the answer.
    take_back(&mut agent, &mut client, &view, yarn.timeout, deadline, |_, _| ())
}

/// Passes until nothing stands, one fails, or the next would come too late.
fn take_back(
    agent: &mut Agent,
    client: &mut Client,
    view: &View,
    call: Duration,
    deadline: BootTime,
    mut tell: impl FnMut(&Agent, Outcome),
) -> Result<(), String> {
    agent.hurry();
    while !agent.is_clear() {
        let now = clock::now();
        let left = deadline.since(now.boot);
        client.set_timeouts(call.min(left), left);
        let outcome = agent.pass(client, view, now);
        tell(agent, outcome);
        if let Some(failure) = agent.failure() {
            return Err(failure.to_owned());
        }
        let next = agent.next(view);
        if !agent.is_clear() {
            if next > deadline {
                return Err("the ResourceManager does not show the configured value yet".into());
            }
            std::thread::sleep(next.since(clock::boot_time()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Era, Ledger};
    use super::super::test_server::{Answer, Server};
    use super::*;

    const SITE: Resource = Resource { memory_mib: 8192, vcores: 8 };
    const OFFER: Resource = Resource { memory_mib: 9216, vcores: 9 };

    #[test]
    fn no_advice_to_send_by_hand_what_would_kill() {
        let dir = tempfile::tempdir().unwrap();
        let file = LedgerFile::in_dir(dir.path());
        let offered = Ledger::new("node1:45454".parse().unwrap(), SITE)
            .about_to_send(OFFER, Era::default())
            .decommissioned(true, Era::default());
        file.write(&offered).unwrap();
        let check =
            || Witness::of(dir.path(), None).check("it was killed").unwrap_err().to_string();
        let left = check();
        assert!(left.contains("it was killed") && !left.contains("-updateNode"), "{left}");
        assert!(left.contains("8192 MiB, 8 vcores") && left.contains("NodeManager"), "{left}");
        let restarted = Era { node_manager: Some(2), ..Era::default() };
        let started = Era { node_manager: Some(1), ..Era::default() };
        let anew = offered.decommissioned(true, started).decommissioned(false, restarted);
        file.write(&anew).unwrap();
        let left = check();
        assert!(left.ends_with("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
    }

    #[test]
    fn the_removal_takes_back_what_a_stop_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("yarn-site.xml"), "<configuration/>").unwrap();
        let node_manager = Server::start(|_| Answer::status(404));
        let script = format!("cd '{}' && ls ready && echo $3 $4 >>calls", dir.path().display());
        let removal = || at_removal(dir.path());
        assert!(removal().unwrap().is_none(), "nothing was offered");

        let file = LedgerFile::in_dir(dir.path());
        let ledger = Ledger::new("node1:45454".parse().unwrap(), SITE);
        file.write(&ledger.about_to_send(OFFER, Era::default())).unwrap();
        let left = removal().unwrap_err().to_string();
        assert!(left.contains("settings of lrs-yarn are gone"), "{left}");
        assert!(left.ends_with("yarn rmadmin -updateNodeResource node1:45454 8192 8 -1"), "{left}");
        let mut kept: toml::Table = lrs::config::Config::default().to_toml().parse().unwrap();
        let yarn = kept["yarn"].as_table_mut().unwrap();
        for (key, value) in [
            ("conf_dir", dir.path().to_str().unwrap().into()),
            ("node_manager", node_manager.base().into()),
            ("resource_managers", toml::Value::Array(Vec::new())),
            ("node_id", "node1:45454".into()),
            ("offer_by", "rmadmin".into()),
            ("rmadmin", ["sh", "-c", &script, "rmadmin"].map(toml::Value::from).to_vec().into()),
        ] {
            yarn.insert(key.to_owned(), value);
        }
        Settings::keep(&kept.to_string(), dir.path()).unwrap();
        let left = removal().unwrap_err().to_string();
        assert!(left.contains("ended with exit status"), "{left}");
        assert!(left.ends_with("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
        std::fs::write(path("ready"), "").unwrap();
        for expected in [Some("node1:45454"), None] {
            let node = removal().unwrap();
            assert_eq!(node.as_ref().map(NodeId::as_str), expected);
            assert_eq!(std::fs::read_to_string(path("calls")).unwrap(), "8192 8\n");
        }
    }
}
