//! The thread against a web server that plays both managers.

use std::sync::Mutex;

use super::super::test_server::{Answer, Request, Server};
use super::*;
use crate::command::CommandReceiver;
use crate::core::event::{Change, EventKind};

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
            "/ws/v1/node/info" => Answer::json(r#"{"nodeInfo":{"id":"node1:45454"}}"#),
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
                r#"{{"node":{{"id":"node1:45454","state":"RUNNING",
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

/// The next report with a change, from the loop's end of the queue.
fn next_change(commands: &mut CommandReceiver) -> Change {
    loop {
        match commands.try_next() {
            Some(Command::YarnReport { changes, .. }) => {
                if let Some(change) = changes.into_iter().next() {
                    return change;
                }
            }
            Some(other) => panic!("{other:?}"),
            None => {
                commands.clear_wake();
                let mut fd = [rustix::event::PollFd::from_borrowed_fd(
                    commands.wake_fd(),
                    rustix::event::PollFlags::IN,
                )];
                let patience = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
                let woken = rustix::event::poll(&mut fd, Some(&patience)).unwrap();
                assert_eq!(woken, 1, "no report within 20 s");
            }
        }
    }
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
    let (hints, mut hinted) = tokio::sync::mpsc::unbounded_channel();
    let endpoints = Endpoints {
        resource_managers: vec![server.base()],
        node_manager: Some(server.base()),
        ..Endpoints::default()
    };
    let (stop, stopping) = watch::channel(false);
    let config_of_parts = Arc::clone(&config);
    let parts =
        Parts { endpoints, config: config_of_parts, snapshot: newest, commands, hints, stopping };
    let handle = start(parts).unwrap();

    publish.send_replace(snapshot(&config, 5));
    let change = next_change(&mut taken);
    assert_eq!(change.kind, EventKind::Offered);
    assert_eq!(change.to.as_deref(), Some("11264 MiB, 11 vcores"));
    let hint = hinted.blocking_recv().unwrap();
    assert_eq!((hint.priority, hint.queue.as_deref()), (Some(7), Some("root.q")));

    publish.send_replace(snapshot(&config, 3));
    assert_eq!(next_change(&mut taken).to.as_deref(), Some("9216 MiB, 9 vcores"));

    let before = clock::boot_time();
    stop.send_replace(true);
    handle.join(Duration::from_secs(10));
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
        hints: tokio::sync::mpsc::unbounded_channel().0,
        stopping,
    };
    let handle = start(parts).unwrap();
    let before = clock::boot_time();
    stop.send_replace(true);
    handle.join(Duration::from_millis(200));
    assert!(clock::boot_time().since(before) < Duration::from_secs(2));
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
        hints: tokio::sync::mpsc::unbounded_channel().0,
        stopping,
    };
    let handle = start(parts).unwrap();
    assert!(!handle.has_ended());
    drop(stop);
    let ended = handle.ended.recv_timeout(Duration::from_secs(20));
    assert_eq!(ended, Ok(()), "it would wait a minute for the first reading");
    handle.thread.join().unwrap();
}
