//! The work against a web server that plays both managers, and an lrsd that is played.

use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;

use lrs_api::proto::ContainerHint;
use tokio::runtime::Runtime;

use super::*;
use crate::Resource;
use crate::ledger::{Era, Ledger};
use crate::link::LinkError;
use crate::settings::{OfferBy, defaults};
use crate::test_server::{Answer, Request, Server};

const GIB: u64 = 1 << 30;
const LONG: Duration = Duration::from_secs(20);

/// Shows the last update that it got.
fn cluster() -> Server {
    let shown = Mutex::new((8192u64, 8u32));
    Server::start(move |request: &Request| {
        let mut shown = shown.lock().unwrap();
        let number = |tag: &str| {
            let (_, rest) = request.body.split_once(&format!("<{tag}>"))?;
            rest.split_once('<')?.0.parse::<u64>().ok()
        };
        if let (Some(memory), Some(vcores)) = (number("memory"), number("vCores")) {
            *shown = (memory, vcores as u32);
            return Answer::json("{}");
        }
        let (memory, vcores) = *shown;
        match request.path() {
            "/ws/v1/node/info" => Answer::json(r#"{"nodeInfo":{"id":"localhost:45454"}}"#),
            "/ws/v1/node/containers" => {
                Answer::json(r#"{"containers":{"container":{"id":"container_1_0001_01_000002"}}}"#)
            }
            "/ws/v1/cluster/info" => {
                Answer::json(r#"{"clusterInfo":{"id":1,"startedOn":1,"haState":"ACTIVE"}}"#)
            }
            "/ws/v1/cluster/apps/application_1_0001" => {
                Answer::json(r#"{"app":{"id":"application_1_0001","priority":7,"queue":"root.q"}}"#)
            }
            _ => Answer::json(&format!(
                r#"{{"node":{{"id":"localhost:45454","state":"RUNNING",
                "totalResource":{{"memory":{memory},"vCores":{vcores}}}}}}}"#
            )),
        }
    })
}

fn status(passive: u32) -> proto::Status {
    proto::Status {
        node: Some(proto::Node {
            memory: Some(proto::MemoryUse {
                node_total_bytes: Some(64 * GIB),
                ..Default::default()
            }),
            sampled_at: Some(Default::default()),
            ..Default::default()
        }),
        slots: Some(proto::Slots {
            active: Some(proto::ActiveSlots { capacity: 2, ..Default::default() }),
            passive: Some(proto::PassiveSlots { capacity: passive, base: 2, ..Default::default() }),
        }),
        state: proto::NodeState::Accepting.into(),
        ..Default::default()
    }
}

enum Received {
    Hint(ContainerHint),
    Change(proto::IntegrationChange),
}

/// An lrsd that takes everything.
struct Played(mpsc::Sender<Received>);

impl Lrsd for Played {
    fn hint(&mut self, hints: Vec<ContainerHint>) -> Result<(), LinkError> {
        hints.into_iter().for_each(|hint| self.0.send(Received::Hint(hint)).unwrap());
        Ok(())
    }

    fn report(&mut self, report: proto::ReportIntegrationRequest) -> Result<(), LinkError> {
        assert!(report.yarn.unwrap().enabled);
        report
            .changes
            .into_iter()
            .for_each(|change| self.0.send(Received::Change(change)).unwrap());
        Ok(())
    }

    fn node_managers(&mut self) -> Result<Option<u32>, LinkError> {
        Err(LinkError::Away)
    }
}

/// lrs-yarn at work in a directory of its own.
struct Running {
    publish: watch::Sender<LrsdState>,
    stop: watch::Sender<bool>,
    received: mpsc::Receiver<Received>,
    work: JoinHandle<(Ended, Result<(), String>)>,
    witness: Witness,
    /// Where waits are.
    _runtime: Runtime,
}

impl Running {
    fn start(dir: &std::path::Path, endpoints: Endpoints, settings: Settings) -> Running {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let witness = Witness::of(dir, Some(&settings));
        let settings = Arc::new(settings);
        let (publish, seen) = watch::channel(LrsdState {
            is_fresh: true,
            settings: Some(Arc::clone(&settings)),
            ..LrsdState::nothing(None)
        });
        let (stop, stopping) = watch::channel(false);
        let link = Link { runtime: runtime.handle().clone(), seen };
        let parts = Parts { link, state_dir: dir.to_owned(), stopping };
        let (say, received) = mpsc::channel();
        let work = std::thread::spawn(move || {
            let mut reports = Reports::new(Box::new(Played(say)));
            let mut talker = Talker::at(endpoints, &parts, settings).unwrap();
            let ended = talker.run(&mut reports);
            (ended, talker.give_back(&mut reports))
        });
        Running { publish, stop, received, work, witness, _runtime: runtime }
    }

    /// lrsd has so many passive slots.
    fn slots(&self, passive: u32) {
        self.publish.send_modify(|seen| {
            seen.status = Some(Arc::new(status(passive)));
            seen.away_since = None;
        });
    }

    /// What the next change leads to, with the hints that came before it.
    fn offered(&self, hints: &mut Vec<ContainerHint>) -> String {
        loop {
            match self.received.recv_timeout(LONG).unwrap() {
                Received::Hint(hint) => hints.push(hint),
                Received::Change(change) => {
                    assert_eq!(change.r#type, "offered", "{change:?}");
                    return change.to.unwrap();
                }
            }
        }
    }

    fn hint(&self) -> ContainerHint {
        match self.received.recv_timeout(LONG).unwrap() {
            Received::Hint(hint) => hint,
            Received::Change(change) => panic!("{change:?}"),
        }
    }

    fn stop(self) -> Result<(), String> {
        self.stop.send_replace(true);
        let (ended, given_back) = self.work.join().unwrap();
        assert_eq!(ended, Ended::Stop);
        given_back.or_else(|why| self.witness.check(&why)).map_err(|left| left.to_string())
    }
}

#[test]
fn it_offers_follows_tells_hints_and_takes_back() {
    let server = cluster();
    let dir = tempfile::tempdir().unwrap();
    let mut settings = defaults();
    settings.yarn.enabled = true;
    settings.yarn.offer = true;
    // No look but those that something happened for.
    settings.yarn.poll = Duration::from_secs(3600);
    let endpoints = Endpoints {
        resource_managers: vec![server.base()],
        node_manager: Some(server.base()),
        // Named, so that it does not matter how many NodeManagers run on the test's machine.
        node_id: Some("localhost:45454".parse().unwrap()),
        ..Endpoints::default()
    };
    let running = Running::start(dir.path(), endpoints, settings);
    running.slots(5);
    let mut hints = Vec::new();
    assert_eq!(running.offered(&mut hints), "11264 MiB, 11 vcores");
    let hint = hints.pop().unwrap_or_else(|| running.hint());
    assert_eq!((hint.priority, hint.queue.as_deref()), (Some(7), Some("root.q")));
    running.slots(3);
    assert_eq!(running.offered(&mut hints), "9216 MiB, 9 vcores");

    // lrsd is away: for so long as a restart takes nothing happens.
    let gone = |for_seconds| {
        let since = clock::boot_time().0 - Duration::from_secs(for_seconds);
        running.publish.send_modify(|seen| seen.away_since = Some(BootTime(since)));
    };
    gone(10);
    assert!(running.received.recv_timeout(Duration::from_millis(500)).is_err());
    gone(16);
    assert_eq!(running.offered(&mut hints), "8192 MiB, 8 vcores");
    running.slots(3);
    assert_eq!(running.offered(&mut hints), "9216 MiB, 9 vcores", "it is back");

    running.stop().unwrap();
    let left = std::fs::read_to_string(dir.path().join("yarn.json")).unwrap();
    assert!(!left.contains(r#""given_back":null"#), "nothing stands any more: {left}");
}

#[test]
fn a_manager_that_hangs_does_not_hold_up_the_stop() {
    let server = Server::start(|_| Answer::Nothing);
    let dir = tempfile::tempdir().unwrap();
    let endpoints = Endpoints { resource_managers: vec![server.base()], ..Endpoints::default() };
    let mut settings = defaults();
    settings.yarn.enabled = true;
    let running = Running::start(dir.path(), endpoints, settings);
    let before = clock::boot_time();
    running.stop().unwrap();
    assert!(clock::boot_time().since(before) < Duration::from_secs(2));
}

#[test]
fn other_managers_and_no_yarn_begin_anew() {
    let changes: [fn(&mut Settings); 2] =
        [|it| it.yarn.lasting.user = "x".into(), |it| it.yarn.enabled = false];
    for change in changes {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = defaults();
        settings.yarn.enabled = true;
        let running = Running::start(dir.path(), Endpoints::default(), settings.clone());
        change(&mut settings);
        running.publish.send_modify(|seen| seen.settings = Some(Arc::new(settings)));
        assert_eq!(running.work.join().unwrap().0, Ended::Anew);
    }
}

#[test]
fn other_addresses_in_hadoops_files_begin_anew() {
    let conf = tempfile::tempdir().unwrap();
    // No server listens at such a port.
    let write = |port: u16| {
        let name = "yarn.resourcemanager.webapp.address";
        let text = format!(
            "<configuration><property name='{name}' value='127.0.0.1:{port}'/></configuration>"
        );
        let path = conf.path().join("yarn-site.xml");
        let new = path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, path).unwrap();
    };
    write(1);
    let dir = tempfile::tempdir().unwrap();
    let mut settings = defaults();
    settings.yarn.poll = Duration::from_millis(10);
    settings.yarn.lasting.conf_dir = conf.path().to_owned();
    settings.yarn.lasting.node_manager = Some("http://127.0.0.1:1".into());
    let endpoints = Endpoints::read(&settings.yarn.lasting).unwrap();
    settings.yarn.enabled = true;
    let running = Running::start(dir.path(), endpoints, settings);
    running.slots(2);
    write(2);
    assert_eq!(running.work.join().unwrap().0, Ended::Anew);
}

/// A node with a ResourceManager that cannot be read, and a command in place of rmadmin.
struct Unseen {
    dir: tempfile::TempDir,
    settings: Settings,
}

impl Unseen {
    /// `script` runs in a directory of its own, in which `calls` has the figures of each run that
    /// came to its end.
    fn new(script: &str) -> Unseen {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("cd '{}'; {script}; echo $3 $4 >>calls", dir.path().display());
        let mut settings = defaults();
        settings.yarn.enabled = true;
        settings.yarn.offer = true;
        settings.yarn.lasting.offer_by = OfferBy::Rmadmin;
        settings.yarn.lasting.rmadmin = ["sh", "-c", &script, "rmadmin"].map(str::to_owned).into();
        Unseen { dir, settings }
    }

    fn start(&self, offer: bool) -> Running {
        let mut settings = self.settings.clone();
        settings.yarn.offer = offer;
        let endpoints = Endpoints {
            node_id: Some("node1:45454".parse().unwrap()),
            configured: Some(Resource { memory_mib: 8192, vcores: 8 }),
            ..Endpoints::default()
        };
        let running = Running::start(self.dir.path(), endpoints, settings);
        running.slots(5);
        running
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("calls")).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_stop_waits_until_the_command_has_taken_the_offer_back() {
    let node = Unseen::new("true");
    for calls in [2, 4] {
        let running = node.start(true);
        assert_eq!(running.offered(&mut Vec::new()), "11264 MiB, 11 vcores");
        running.stop().unwrap();
        assert_eq!(node.calls().len(), calls);
        assert_eq!(node.calls()[calls - 2..], ["11264 11", "8192 8"]);
    }
}

#[test]
fn what_the_command_could_not_take_back_is_reported_and_made_up_for() {
    let node = Unseen::new("if [ -e broken ]; then echo no ticket; exit 1; fi");
    let running = node.start(true);
    running.offered(&mut Vec::new());
    let broken = node.dir.path().join("broken");
    std::fs::write(&broken, "").unwrap();
    let left = running.stop().unwrap_err();
    assert!(
        left.contains("for node1:45454 may still stand") && left.contains("no ticket"),
        "{left}"
    );
    let (_, by_hand) = left.split_once("by hand: ").unwrap();
    std::fs::remove_file(broken).unwrap();
    let typed = std::process::Command::new("sh").args(["-c", by_hand]).status().unwrap();
    assert!(typed.success(), "{by_hand}");
    assert_eq!(node.calls(), ["11264 11", "8192 8"]);
    let next = node.start(false);
    assert_eq!(next.offered(&mut Vec::new()), "8192 MiB, 8 vcores", "it got no report of that");
    next.stop().unwrap();
    node.start(false).stop().unwrap();
    assert_eq!(node.calls().len(), 3);
}

#[test]
fn a_command_that_hangs_does_not_hold_up_the_stop() {
    let node = Unseen::new("[ $3 -gt 8192 ] || exec sleep 60");
    let running = node.start(true);
    running.offered(&mut Vec::new());
    let before = clock::boot_time();
    let left = running.stop().unwrap_err();
    assert!(clock::boot_time().since(before) < give_back::AT_STOP + Duration::from_secs(2));
    assert!(left.contains("was killed"), "{left}");
    assert!(left.ends_with("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
}

/// Without Hadoop's files no manager is called; an offer of the time before may stand all the same.
#[test]
fn a_stop_names_the_offer_without_a_word_to_yarn() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let left_at_a_stop = |settings: Option<&Settings>| {
        let (_publish, seen) = watch::channel(LrsdState::nothing(settings.cloned()));
        let (_stop, stopping) = watch::channel(true);
        let link = Link { runtime: runtime.handle().clone(), seen };
        logged(|| until_stopped(Parts { link, state_dir: dir.path().to_owned(), stopping }))
    };
    let mut settings = defaults();
    settings.yarn.enabled = true;
    settings.yarn.lasting.conf_dir = dir.path().join("nowhere");
    let log = left_at_a_stop(Some(&settings));
    assert!(!log.contains("may still stand"), "nothing was offered: {log}");
    let configured = Resource { memory_mib: 8192, vcores: 8 };
    let offer = Resource { memory_mib: 9216, vcores: 9 };
    let ledger = Ledger::new("node1:45454".parse().unwrap(), configured);
    let file = LedgerFile::in_dir(dir.path());
    file.write(&ledger.about_to_send(offer, Era::default())).unwrap();
    for (settings, why) in [(Some(&settings), "nowhere"), (None, "has not answered yet")] {
        let log = left_at_a_stop(settings);
        let (_, left) = log.split_once("may still stand: ").expect(&log);
        assert!(left.contains(why), "{left}");
        assert!(left.contains("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
    }
}

/// What this thread logs during `work`.
fn logged(work: impl FnOnce()) -> String {
    let kept = Arc::new(LogBuffer::default());
    let writer = Arc::clone(&kept);
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = kept.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[derive(Default)]
struct LogBuffer(Mutex<Vec<u8>>);

impl std::io::Write for &LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
