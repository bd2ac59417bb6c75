//! Taking the offer back when LRS leaves: at a stop of lrsd, and at the removal of LRS.
//!
//! The agent does it like any lower offer, but there is one chance and little time. What could not
//! be done stays in the ledger, where the next lrsd finds it, and is said with the command that
//! does it by hand, or why none is safe ([`Left`]).
//!
//! The command of `offer_by = "rmadmin"` starts a Java machine, which takes seconds: it has
//! longer than a call, and is killed when that is over. It is still less than the service manager
//! waits (TimeoutStopSec= in systemd/lrsd.service).

use std::time::Duration;

use super::Resource;
use super::agent::{Agent, Told, View};
use super::client::Client;
use super::ledger::{LedgerError, LedgerFile};
use super::offer::{NodeMemory, SlotSize, Slots};
use super::rmadmin::command_line;
use crate::clock;
use crate::config::{Config, OfferBy};
use crate::units::BootTime;
use crate::yarn::join;
use lrs_hadoop_conf::site::Site;
use lrs_hadoop_conf::{NodeId, Trust};

/// How long a stop may take with `offer_by = "rest"`: some hundredths of a second are needed.
const REST_WITHIN: Duration = Duration::from_millis(600);

/// The same with "rmadmin": a Java machine with a ticket from a keytab is ready in two or three.
const RMADMIN_WITHIN: Duration = Duration::from_secs(5);

/// Of that, how long one call to a web service may take.
const REST_CALL: Duration = Duration::from_millis(400);
const RMADMIN_CALL: Duration = Duration::from_secs(1);

/// How long it may take while packages are removed: nothing waits for that but its operator.
const AT_REMOVAL: Duration = Duration::from_secs(30);

/// What LRS offered may stand although LRS leaves.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Left {
    #[error(
        "what LRS offered YARN for {node} may still stand: {why}. An lrsd that runs again with \
         [yarn] enabled puts it right; by hand: {command}"
    )]
    Offer { node: NodeId, why: String, command: String },
    #[error(
        "what LRS offered YARN for {node} may still stand: {why}. Do not set it back by hand: the \
         node was being decommissioned, and the ResourceManager would kill containers that \
         {configured} has no room for. Restart its NodeManager, which registers with its own \
         figures; containers run on where it recovers them"
    )]
    Kept { node: NodeId, why: String, configured: Resource },
    #[error("whether an offer of LRS's still stands at YARN cannot be told: {0}")]
    Unknown(#[from] LedgerError),
}

/// Says of what is left behind, from what is written down.
#[derive(Clone, Debug)]
pub struct Witness {
    file: LedgerFile,
    rmadmin: Vec<String>,
}

impl Witness {
    /// A witness of the ledger these settings have.
    pub fn of(config: &Config) -> Witness {
        let file = LedgerFile::in_runtime_dir(&config.daemon.runtime_dir);
        Witness { file, rmadmin: config.yarn.rmadmin.clone() }
    }

    /// # Errors
    /// What is left behind, `why` being the reason.
    pub fn check(&self, why: &str) -> Result<(), Left> {
        let Some(ledger) = self.file.read()?.filter(|ledger| !ledger.is_clear()) else {
            return Ok(());
        };
        let (why, configured) = (why.to_owned(), ledger.configured);
        if ledger.kills() {
            return Err(Left::Kept { node: ledger.node, why, configured });
        }
        let command = command_line(&self.rmadmin, &ledger.node, configured);
        Err(Left::Offer { node: ledger.node, why, command })
    }

    /// The same where the thread that talks to YARN was waited for and did not end.
    ///
    /// # Errors
    /// What is left behind.
    pub fn check_what_hangs(&self, waited: Duration) -> Result<(), Left> {
        self.check(&format!(
            "a call or a run of the command hangs, and a stop waits no longer than {waited:?}"
        ))
    }
}

/// How long the thread that talks to YARN may need to end.
pub fn within(by: OfferBy) -> Duration {
    match by {
        OfferBy::Rest => REST_WITHIN,
        OfferBy::Rmadmin => RMADMIN_WITHIN,
    }
}

/// Takes back what stands while lrsd stops; `tell` hears of each pass.
///
/// # Errors
/// Why it may still stand.
pub(super) fn at_stop(
    agent: &mut Agent,
    client: &mut Client,
    view: &View,
    config: &Config,
    tell: impl FnMut(&Agent, Told),
) -> Result<(), String> {
    if agent.is_clear() {
        return Ok(());
    }
    if !view.enforce {
        return Err("observe mode changes nothing".into());
    }
    let by = config.yarn.offer_by;
    let call = match by {
        OfferBy::Rest => REST_CALL,
        OfferBy::Rmadmin => RMADMIN_CALL,
    };
    let deadline = clock::boot_time().after(within(by));
    take_back(agent, client, view, call.min(config.yarn.timeout), deadline, tell)
}

/// Takes back what stands when LRS is removed, from the ledger alone: no daemon runs. Answers
/// whose offer it was; `None`: nothing stood.
///
/// # Errors
/// What is left behind.
pub fn at_removal(config: &Config) -> Result<Option<NodeId>, Left> {
    let witness = Witness::of(config);
    let Some(ledger) = witness.file.read()?.filter(|ledger| !ledger.is_clear()) else {
        return Ok(None);
    };
    let why = match take_back_alone(config, witness.file.clone()) {
        Ok(()) => "the node has another id now".to_owned(),
        Err(why) => why,
    };
    witness.check(&why)?;
    Ok(Some(ledger.node))
}

fn take_back_alone(config: &Config, file: LedgerFile) -> Result<(), String> {
    let trust = Trust::of(&config.yarn.user);
    let site = Site::read(&config.yarn.conf_dir, &trust).map_err(|error| error.to_string())?;
    let endpoints = join::endpoints(&config.yarn, &site, trust);
    let mut client =
        Client::of(&config.yarn, endpoints.clone()).map_err(|error| error.to_string())?;
    let (mut agent, damage) = Agent::new(endpoints, config.yarn.offer_by, file);
    if let Some(error) = damage {
        return Err(error.to_string());
    }
    let view = View {
        slots: Slots::default(),
        memory: NodeMemory::default(),
        slot: SlotSize { memory: config.yarn.slot_memory, vcores: config.yarn.slot_vcores },
        offer: false,
        enforce: true,
        poll: config.yarn.poll,
    };
    let deadline = clock::boot_time().after(AT_REMOVAL);
    let call = config.yarn.timeout;
    // Nobody reads a history any more; what went wrong is the answer.
    take_back(&mut agent, &mut client, &view, call, deadline, |_, _| ())
}

/// Passes until nothing stands, one fails, or the next would come too late.
fn take_back(
    agent: &mut Agent,
    client: &mut Client,
    view: &View,
    call: Duration,
    deadline: BootTime,
    mut tell: impl FnMut(&Agent, Told),
) -> Result<(), String> {
    agent.hurry();
    while !agent.is_clear() {
        let now = clock::now();
        let left = deadline.since(now.boot);
        client.set_timeouts(call.min(left), left);
        let told = agent.pass(client, view, now);
        tell(agent, told);
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
    use crate::config::Auto;

    const SITE: Resource = Resource { memory_mib: 8192, vcores: 8 };
    const OFFER: Resource = Resource { memory_mib: 9216, vcores: 9 };

    #[test]
    fn nobody_is_told_to_send_by_hand_what_would_kill() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let mut config = Config::default();
        config.daemon.runtime_dir = dir.path().to_owned();
        let file = LedgerFile::in_runtime_dir(dir.path());
        let offered = Ledger::new("node1:45454".parse().unwrap(), SITE)
            .about_to_send(OFFER, Era::default())
            .decommissioned(true, Era::default());
        file.write(&offered).unwrap();
        let left = Witness::of(&config).check("it was killed").unwrap_err().to_string();
        assert!(left.contains("it was killed") && !left.contains("-updateNode"), "{left}");
        assert!(left.contains("8192 MiB, 8 vcores") && left.contains("NodeManager"), "{left}");
        let restarted = Era { node_manager: Some(2), ..Era::default() };
        let started = Era { node_manager: Some(1), ..Era::default() };
        let anew = offered.decommissioned(true, started).decommissioned(false, restarted);
        file.write(&anew).unwrap();
        let left = Witness::of(&config).check("it was killed").unwrap_err().to_string();
        assert!(left.ends_with("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
    }

    #[test]
    fn the_removal_takes_back_what_a_stop_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("state")).unwrap();
        std::fs::write(path("yarn-site.xml"), "<configuration/>").unwrap();
        let node_manager = Server::start(|_| Answer::status(404));
        let mut config = Config::default();
        config.daemon.runtime_dir = dir.path().to_owned();
        config.yarn.conf_dir = dir.path().to_owned();
        config.yarn.node_manager = Auto::Fixed(node_manager.base());
        config.yarn.resource_managers = Auto::Fixed(Vec::new());
        config.yarn.node_id = Auto::Fixed("node1:45454".parse().unwrap());
        config.yarn.offer_by = OfferBy::Rmadmin;
        let script = format!("cd '{}' && ls ready && echo $3 $4 >>calls", dir.path().display());
        config.yarn.rmadmin = ["sh", "-c", &script, "rmadmin"].map(str::to_owned).to_vec();
        assert!(at_removal(&config).unwrap().is_none(), "nothing was offered");

        let file = LedgerFile::in_runtime_dir(dir.path());
        let ledger = Ledger::new("node1:45454".parse().unwrap(), SITE);
        file.write(&ledger.about_to_send(OFFER, Era::default())).unwrap();
        let left = at_removal(&config).unwrap_err().to_string();
        assert!(left.contains("ended with exit status"), "{left}");
        assert!(left.ends_with("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
        std::fs::write(path("ready"), "").unwrap();
        for expected in [Some("node1:45454"), None] {
            let node = at_removal(&config).unwrap();
            assert_eq!(node.as_ref().map(NodeId::as_str), expected);
            assert_eq!(std::fs::read_to_string(path("calls")).unwrap(), "8192 8\n");
        }
    }
}
