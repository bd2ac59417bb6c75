//! The thread against a web server that plays both managers.

use std::sync::Mutex;

use super::super::test_server::{Answer, Request, Server};
use super::*;
use crate::command::CommandReceiver;
use crate::config::OfferBy;
use crate::core::event::{Change, EventKind};
use crate::core::model::Priority;
use crate::discover::Hint;
use crate::discover::rest::Rest;
use crate::yarn::rm::Resource;
use crate::yarn::rm::ledger::{Era, Ledger};

const GIB: u64 = 1 << 30;

/// Shows what it was last told.
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

fn snapshot(config: &Arc<Config>, passive: u32) -> Arc<Snapshot> {
    let status = proto::Status {
        node: Some(proto::Node {
            memory: Some(proto::MemoryUse { total_bytes: Some(64 * GIB), ..Default::default() }),
            sampled_at: Some(prost_types::Timestamp::default()),
            ..Default::default()
        }),
        slots: Some(proto::Slots {
            active: Some(proto::ActiveSlots { capacity: 2, ..Default::default() }),
            passive: Some(proto::PassiveSlots { capacity: passive, base: 2, ..Default::default() }),
        }),
        state: proto::NodeState::Accepting.into(),
        ..Default::default()
    };
    let config = Some(Arc::clone(config));
    Arc::new(Snapshot { status: Arc::new(status), config, ..Snapshot::default() })
}

/// The next command that `wanted` takes, from the loop's end of the queue.
fn next<T>(commands: &mut CommandReceiver, wanted: impl Fn(Command) -> Option<T>) -> T {
    loop {
        match commands.try_next() {
            Some(command) => {
                if let Some(found) = wanted(command) {
                    return found;
                }
            }
            None => {
                commands.clear_wake();
                let mut fd = [rustix::event::PollFd::from_borrowed_fd(
                    commands.wake_fd(),
                    rustix::event::PollFlags::IN,
                )];
                let patience = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
                let woken = rustix::event::poll(&mut fd, Some(&patience)).unwrap();
                assert_eq!(woken, 1, "nothing within 20 s");
            }
        }
    }
}

/// The next report with a change. Hints on the way to it are lost.
fn next_change(commands: &mut CommandReceiver) -> Change {
    next_change_past(commands, &mut Vec::new())
}

/// The same, with the hints that came before it.
fn next_change_past(commands: &mut CommandReceiver, passed: &mut Vec<Hint>) -> Change {
    let passed = std::cell::RefCell::new(passed);
    next(commands, |command| match command {
        Command::ReportIntegration { changes, .. } => changes.into_iter().next(),
        Command::Hint { hints, reply, .. } => {
            let _ = reply.send(Ok(()));
            passed.borrow_mut().extend(hints);
            None
        }
        other => panic!("{other:?}"),
    })
}

fn next_hint(commands: &mut CommandReceiver) -> Hint {
    next(commands, |command| match command {
        Command::Hint { hints, reply, .. } => {
            reply.send(Ok(())).unwrap();
            hints.into_iter().next()
        }
        Command::ReportIntegration { .. } => None,
        other => panic!("{other:?}"),
    })
}

#[test]
fn it_offers_follows_tells_hints_and_takes_back() {
    let server = cluster();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let mut config = Config::default();
    config.daemon.runtime_dir = dir.path().to_owned();
    config.yarn.offer = true;
    // No look but those that something happened for.
    config.yarn.poll = Duration::from_secs(3600);
    let config = Arc::new(config);
    let (publish, newest) = watch::channel(Arc::new(Snapshot::default()));
    let (commands, mut taken) = crate::command::queue().unwrap();
    let endpoints = Endpoints {
        resource_managers: vec![server.base()],
        node_manager: Some(server.base()),
        // Named, so that it does not matter how many NodeManagers run on the test's machine.
        node_id: Some("localhost:45454".parse().unwrap()),
        ..Endpoints::default()
    };
    let (stop, stopping) = watch::channel(false);
    let config_of_parts = Arc::clone(&config);
    let parts = Parts {
        endpoints,
        config: config_of_parts,
        snapshot: newest,
        commands,
        stopping,
        alive: Rest::begin(Duration::ZERO, None).0,
    };
    let handle = start(parts).unwrap();

    publish.send_replace(snapshot(&config, 5));
    let mut hints = Vec::new();
    let change = next_change_past(&mut taken, &mut hints);
    assert_eq!(change.kind, EventKind::Offered, "{change:?}");
    assert_eq!(change.to.as_deref(), Some("11264 MiB, 11 vcores"));
    let hint = hints.pop().unwrap_or_else(|| next_hint(&mut taken));
    assert_eq!((hint.priority, hint.queue.as_deref()), (Some(Priority(7)), Some("root.q")));

    publish.send_replace(snapshot(&config, 3));
    assert_eq!(next_change(&mut taken).to.as_deref(), Some("9216 MiB, 9 vcores"));

    let before = clock::boot_time();
    stop.send_replace(true);
    handle.join(Duration::from_secs(10)).unwrap();
    assert!(clock::boot_time().since(before) < Duration::from_secs(5));
    let change = next_change(&mut taken);
    assert_eq!(change.to.as_deref(), Some("8192 MiB, 8 vcores"));
    let left = std::fs::read_to_string(dir.path().join("state/yarn.json")).unwrap();
    assert!(!left.contains(r#""given_back":null"#), "nothing stands any more: {left}");
}

#[test]
fn a_manager_that_hangs_does_not_hold_up_the_stop() {
    let server = Server::start(|_| Answer::Nothing);
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.daemon.runtime_dir = dir.path().to_owned();
    let config = Arc::new(config);
    let (_publish, newest) = watch::channel(snapshot(&config, 5));
    let (commands, _taken) = crate::command::queue().unwrap();
    let endpoints = Endpoints { resource_managers: vec![server.base()], ..Endpoints::default() };
    let (stop, stopping) = watch::channel(false);
    let parts = Parts {
        endpoints,
        config,
        snapshot: newest,
        commands,
        stopping,
        alive: Rest::begin(Duration::ZERO, None).0,
    };
    let handle = start(parts).unwrap();
    let before = clock::boot_time();
    stop.send_replace(true);
    handle.join(Duration::from_millis(200)).unwrap();
    assert!(clock::boot_time().since(before) < Duration::from_secs(2));
}

/// A node whose ResourceManager cannot be read, and a command in place of rmadmin.
struct Unseen {
    dir: tempfile::TempDir,
    config: Config,
}

/// What a run of it makes to follow.
struct Running {
    handle: Handle,
    stop: watch::Sender<bool>,
    changes: CommandReceiver,
    rest: Rest,
    _snapshot: watch::Sender<Arc<Snapshot>>,
}

impl Unseen {
    /// `script` runs in a directory of its own, in which `calls` has the figures of each run that
    /// came to its end.
    fn new(script: &str) -> Unseen {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let script = format!("cd '{}'; {script}; echo $3 $4 >>calls", dir.path().display());
        let mut config = Config::default();
        config.daemon.runtime_dir = dir.path().to_owned();
        config.yarn.offer = true;
        config.yarn.offer_by = OfferBy::Rmadmin;
        config.yarn.rmadmin = ["sh", "-c", &script, "rmadmin"].map(str::to_owned).to_vec();
        Unseen { dir, config }
    }

    fn start(&self, offer: bool) -> Running {
        let mut config = self.config.clone();
        config.yarn.offer = offer;
        let config = Arc::new(config);
        let (_snapshot, newest) = watch::channel(snapshot(&config, 5));
        let (commands, changes) = crate::command::queue().unwrap();
        let endpoints = Endpoints {
            node_id: Some("node1:45454".parse().unwrap()),
            configured: Some(Resource { memory_mib: 8192, vcores: 8 }),
            ..Endpoints::default()
        };
        let (stop, stopping) = watch::channel(false);
        let (alive, rest) = Rest::begin(LONG, Some(Witness::of(&config)));
        let parts = Parts { endpoints, config, snapshot: newest, commands, stopping, alive };
        Running { handle: start(parts).unwrap(), stop, changes, rest, _snapshot }
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("calls")).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Running {
    fn offered(&mut self) -> Option<String> {
        let change = next_change(&mut self.changes);
        assert_eq!(change.kind, EventKind::Offered, "{change:?}");
        change.to
    }

    fn stop(self, within: Duration) -> Result<(), String> {
        self.stop.send_replace(true);
        self.handle.join(within).map_err(|left| left.to_string())
    }
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_stop_waits_until_the_command_has_taken_the_offer_back() {
    let node = Unseen::new("true");
    let mut lrsd = node.start(true);
    assert_eq!(lrsd.offered().as_deref(), Some("11264 MiB, 11 vcores"));
    lrsd.stop(LONG).unwrap();
    assert_eq!(node.calls(), ["11264 11", "8192 8"]);
    let mut again = node.start(true);
    assert_eq!(again.offered().as_deref(), Some("11264 MiB, 11 vcores"));
    again.stop(LONG).unwrap();
    assert_eq!(node.calls().len(), 4);
}

#[test]
fn what_the_command_could_not_take_back_is_said_and_made_up_for() {
    let node = Unseen::new("if [ -e broken ]; then echo no ticket; exit 1; fi");
    let mut lrsd = node.start(true);
    lrsd.offered();
    let broken = node.dir.path().join("broken");
    std::fs::write(&broken, "").unwrap();
    let left = lrsd.stop(LONG).unwrap_err();
    assert!(
        left.contains("for node1:45454 may still stand") && left.contains("no ticket"),
        "{left}"
    );
    let (_, by_hand) = left.split_once("by hand: ").unwrap();
    std::fs::remove_file(broken).unwrap();
    let typed = std::process::Command::new("sh").args(["-c", by_hand]).status().unwrap();
    assert!(typed.success(), "{by_hand}");
    assert_eq!(node.calls(), ["11264 11", "8192 8"]);
    let mut next = node.start(false);
    assert_eq!(next.offered().as_deref(), Some("8192 MiB, 8 vcores"), "nobody told it of that");
    next.stop(LONG).unwrap();
    node.start(false).stop(LONG).unwrap();
    assert_eq!(node.calls().len(), 3);
}

#[test]
fn why_the_command_failed_is_known_though_nobody_joins_the_thread() {
    let node = Unseen::new("if [ -e broken ]; then echo no ticket; exit 1; fi");
    let mut lrsd = node.start(true);
    lrsd.offered();
    std::fs::write(node.dir.path().join("broken"), "").unwrap();
    lrsd.stop.send_replace(true);
    // Who started it hangs, with the handle.
    let left = lrsd.rest.wait(clock::boot_time().after(LONG)).unwrap_err().to_string();
    assert!(left.contains("said: no ticket"), "{left}");
    assert!(left.ends_with("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
    lrsd.handle.join(LONG).unwrap_err();
}

#[test]
fn a_command_that_hangs_does_not_hold_up_the_stop() {
    let node = Unseen::new("[ $3 -gt 8192 ] || exec sleep 60");
    let mut lrsd = node.start(true);
    lrsd.offered();
    let before = clock::boot_time();
    let left = lrsd.stop(Duration::from_millis(300)).unwrap_err();
    assert!(clock::boot_time().since(before) < Duration::from_secs(3));
    assert!(left.contains("no longer than 300ms"), "{left}");
    assert!(left.ends_with("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
}

#[test]
fn it_ends_when_nobody_is_left_to_stop_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.daemon.runtime_dir = dir.path().to_owned();
    let (_publish, newest) = watch::channel(Arc::new(Snapshot::default()));
    let (commands, _taken) = crate::command::queue().unwrap();
    let (stop, stopping) = watch::channel(false);
    let parts = Parts {
        endpoints: Endpoints::default(),
        config: Arc::new(config),
        snapshot: newest,
        commands,
        stopping,
        alive: Rest::begin(Duration::ZERO, None).0,
    };
    let handle = start(parts).unwrap();
    assert!(!handle.has_ended());
    drop(stop);
    let ended = handle.ended.recv_timeout(Duration::from_secs(20));
    assert_eq!(ended, Ok(Ok(())), "it would wait a minute for the first reading");
    handle.thread.join().unwrap();
}

#[test]
fn one_that_ended_by_itself_says_why_and_what_stands() {
    let node = Unseen::new("echo no ticket; exit 1");
    let file = LedgerFile::in_runtime_dir(node.dir.path());
    let configured = Resource { memory_mib: 8192, vcores: 8 };
    let ledger = Ledger::new("node1:45454".parse().unwrap(), configured);
    let offer = Resource { memory_mib: 9216, vcores: 9 };
    file.write(&ledger.about_to_send(offer, Era::default())).unwrap();
    let over = |end: fn(mpsc::Sender<Result<(), String>>)| {
        let (send, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || end(send));
        let handle = Handle { ended, thread, witness: Witness::of(&node.config) };
        while !handle.has_ended() {
            std::thread::yield_now();
        }
        let (why, left) = handle.fate();
        let left = left.unwrap_err().to_string();
        assert!(left.ends_with("-updateNodeResource node1:45454 8192 8 -1"), "{left}");
        (why, left)
    };
    let (why, left) = over(|send| send.send(Err("no descriptors".into())).unwrap());
    assert_eq!(why.as_deref(), Some("no descriptors"));
    assert!(left.contains("no descriptors") && !left.contains("panicked"), "{left}");
    let (why, left) = over(|_| panic!("of the test"));
    assert_eq!(why, None);
    assert!(left.contains("panicked"), "{left}");
}
