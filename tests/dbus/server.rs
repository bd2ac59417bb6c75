//! Every member of the interface, against a loop played by the test.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lrs::command::{Caller, Command, CommandError, ErrorKind, QueueId, Subject, Wait};
use lrs::core::event::EventKind;
use lrs::core::model::{Priority, ReservationId};
use lrs::core::state::Lease;
use lrs::proto;
use lrs::units::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::json;
use zbus::zvariant::{Fd, OwnedObjectPath, OwnedValue, Value};

use crate::bench::{Bench, event, status, task, task_id, task_path};
use crate::client::{
    ERROR, MANAGER, PATH, PROPERTIES, Signals, TASK, all, call, get, introspect, manager, map,
    maps, none, plain, soon, with,
};

fn this_process(caller: &Caller) {
    assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
    assert_eq!(caller.process.pid(), Pid::new(std::process::id() as i32));
    assert_eq!(caller.granted, None);
}

#[tokio::test]
async fn admit_arrives_typed_and_is_answered() {
    let mut bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let options = with([
        ("name", "n/ä".into()),
        ("job", "j".into()),
        ("kind", "k".into()),
        ("priority", Value::from(-7i64)),
        ("reservation", "r0000001-9".into()),
        ("in_place", true.into()),
        ("keep_unit", true.into()),
        ("wait_ms", Value::from(1500u16)),
        ("ticket", "as it came".into()),
    ]);
    let asked = tokio::spawn(async move { manager(&client, "Admit", &(0i32, options)).await });
    let Command::Admit { caller, request, reply } = bench.next_command().await else {
        panic!("not an Admit");
    };
    this_process(&caller);
    assert_eq!(
        request.subject,
        Subject::Process(caller.process.pid().unwrap()),
        "pid 0 is the caller"
    );
    assert!(request.start_ticks.is_some(), "the caller is more than its number");
    assert_eq!(request.labels.name.unwrap().as_str(), "n/ä");
    assert_eq!(request.labels.job.unwrap().as_str(), "j");
    assert_eq!(request.labels.kind.unwrap().as_str(), "k");
    assert_eq!(request.priority, Some(Priority(-7)));
    assert_eq!(request.reservation, Some(ReservationId { epoch: 1, number: 9 }));
    assert!(request.in_place && request.keep_unit);
    assert_eq!(request.wait, Wait::For(Duration::from_millis(1500)));
    assert_eq!(request.ticket.as_deref(), Some("as it came"));
    reply.send(Ok(task(3))).unwrap();
    let reply = soon(asked).await.unwrap().unwrap();
    let (id, path): (String, OwnedObjectPath) = reply.body().deserialize().unwrap();
    assert_eq!((id, path.to_string()), (task_id(3).to_string(), task_path(3)));
}

#[tokio::test]
async fn a_pidfd_carries_the_identity_of_its_process() {
    let mut bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let mut child = std::process::Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pidfd = pidfd_open(rustix::process::Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    let asking = client.clone();
    let sent = pidfd.try_clone().unwrap();
    let asked =
        tokio::spawn(
            async move { manager(&asking, "AdmitPidfd", &(Fd::from(sent), none())).await },
        );
    let Command::Admit { request, reply, .. } = bench.next_command().await else {
        panic!("not an Admit");
    };
    let pid = Pid::new(child.id() as i32).unwrap();
    assert_eq!(request.subject, Subject::Process(pid));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    assert_eq!(request.start_ticks, Some(started.parse().unwrap()));
    reply.send(Ok(task(1))).unwrap();
    soon(asked).await.unwrap().unwrap();

    drop(child.stdin.take());
    child.wait().unwrap();
    let gone = manager(&client, "AdmitPidfd", &(Fd::from(pidfd), none())).await.unwrap_err();
    assert_eq!(gone.0, format!("{ERROR}NotFound"), "{gone:?}");
    let file = std::fs::File::open("/dev/null").unwrap();
    let arguments = (Fd::from(std::os::fd::OwnedFd::from(file)), none());
    let odd = manager(&client, "AdmitPidfd", &arguments).await.unwrap_err();
    assert_eq!(odd.0, format!("{ERROR}InvalidArgument"), "{odd:?}");
}

#[tokio::test]
async fn the_other_commands_arrive_and_are_answered() {
    let mut bench = Bench::start().await;
    let client = bench.bus.connect().await;

    macro_rules! exchange {
        ($path:expr, $interface:expr, $member:expr, $body:expr,
         $pattern:pat => $reply:ident($answer:expr), $check:block) => {{
            let client = client.clone();
            let path = String::from($path);
            let called =
                tokio::spawn(async move { call(&client, &path, $interface, $member, &$body).await });
            let command = bench.next_command().await;
            let $pattern = command else { panic!("{command:?}") };
            $check
            $reply.send($answer).unwrap();
            soon(called).await.unwrap().unwrap()
        }};
    }

    let granted = proto::Reservation {
        id: "r0000001-5".into(),
        tier: proto::Tier::Passive.into(),
        expires_at: Some(prost_types::Timestamp { seconds: 7, nanos: 0 }),
        ..Default::default()
    };
    let reply = exchange!(
        PATH, MANAGER, "Reserve",
        (with([("job", "j".into()), ("priority", 4i32.into()), ("ttl_ms", 250u64.into())]),),
        Command::Reserve { caller, request, reply } => reply(Ok(granted.clone())), {
            this_process(&caller);
            assert_eq!(request.labels.job.unwrap().as_str(), "j");
            assert_eq!(request.priority, Priority(4));
            assert_eq!(request.lease, Lease::one(Some(Duration::from_millis(250))));
        }
    );
    let answer: (String, String, String) = reply.body().deserialize().unwrap();
    let expected = ("r0000001-5".into(), "passive".into(), "1970-01-01T00:00:07.000000Z".into());
    assert_eq!(answer, expected);

    exchange!(
        PATH, MANAGER, "CancelReservation", ("r0000001-5",),
        Command::CancelReservation { id, reply, .. } => reply(Ok(())), {
            assert_eq!(id, QueueId::Reservation(ReservationId { epoch: 1, number: 5 }));
        }
    );

    // The manager by id, and the task's own object.
    bench.publish(|snapshot| {
        snapshot.tasks.insert(task_id(2), Arc::new(task(2)));
    });
    for (path, interface) in [(PATH.to_owned(), MANAGER), (task_path(2), TASK)] {
        let id = task_id(2).to_string();
        let of_manager = interface == MANAGER;
        if of_manager {
            exchange!(path.clone(), MANAGER, "Release", (id,),
            Command::Release { id, reply, .. } => reply(Ok(())), {
                assert_eq!(id, task_id(2));
            });
            exchange!(path, MANAGER, "SetPriority", (task_id(2).to_string(), 5i32),
            Command::SetPriority { id, priority, reply, .. } => reply(Ok(task(2))), {
                assert_eq!((id, priority), (task_id(2), Priority(5)));
            });
        } else {
            exchange!(path.clone(), TASK, "Release", (),
            Command::Release { id, reply, .. } => reply(Ok(())), {
                assert_eq!(id, task_id(2));
            });
            exchange!(path, TASK, "SetPriority", (-5i32,),
            Command::SetPriority { id, priority, reply, .. } => reply(Ok(task(2))), {
                assert_eq!((id, priority), (task_id(2), Priority(-5)));
            });
        }
    }

    let options = with([("uid", Value::from(7u32))]);
    let changed = proto::SetJobPriorityResponse { tasks: 2, waiting: 1 };
    let reply = exchange!(
        PATH, MANAGER, "SetJobPriority", ("j", -2i32, options),
        Command::SetJobPriority { request, reply, .. } => reply(Ok(changed)), {
            assert_eq!((request.job.as_str(), request.uid), ("j", Some(7)));
            assert_eq!(request.priority, Priority(-2));
        }
    );
    assert_eq!(reply.body().deserialize::<(u32, u32)>().unwrap(), (2, 1));

    exchange!(PATH, MANAGER, "Drain", (), Command::Drain { caller, reply } => reply(Ok(())), {
        this_process(&caller);
    });
    exchange!(PATH, MANAGER, "Resume", (), Command::Resume { caller, reply } => reply(Ok(())), {
        this_process(&caller);
    });
    let reply = exchange!(
        PATH, MANAGER, "Reload", (),
        Command::Reload { caller, reply } => reply(Ok(vec!["slots.active".into()])), {
            this_process(&caller);
        }
    );
    assert_eq!(reply.body().deserialize::<Vec<String>>().unwrap(), ["slots.active"]);
}

#[tokio::test]
async fn every_kind_of_error_has_its_name() {
    let mut bench = Bench::start().await;
    let client = bench.bus.connect().await;
    for (kind, name) in [
        (ErrorKind::InvalidArgument, "InvalidArgument"),
        (ErrorKind::NotFound, "NotFound"),
        (ErrorKind::AlreadyExists(task_id(1)), "AlreadyExists t0000001-1"),
        (ErrorKind::NoFreeSlot, "NoFreeSlot"),
        (ErrorKind::FailedPrecondition, "FailedPrecondition"),
        // There is no polkit on this bus.
        (ErrorKind::PermissionDenied, "PermissionDenied"),
        (ErrorKind::WaitTimedOut, "WaitTimedOut"),
        (ErrorKind::Unavailable, "Unavailable"),
        (ErrorKind::Internal, "Internal"),
    ] {
        let asking = client.clone();
        let asked = tokio::spawn(async move { manager(&asking, "Drain", &()).await });
        let Command::Drain { reply, .. } = bench.next_command().await else { panic!("no Drain") };
        reply.send(Err(CommandError::new(kind, "why"))).unwrap();
        let error = soon(asked).await.unwrap().unwrap_err();
        assert_eq!(error, (format!("{ERROR}{name}"), "why".to_owned()));
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_reported() {
    let bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let invalid = format!("{ERROR}InvalidArgument");
    for (options, words) in [
        (
            with([("prio", 1i32.into())]),
            "option \"prio\": unknown field `prio`, expected one of `name`, `job`",
        ),
        (
            with([("priority", "high".into())]),
            "option \"priority\": invalid type: string \"high\", expected i32",
        ),
        (with([("priority", i64::MAX.into())]), "option \"priority\": invalid value: integer"),
        (with([("wait_ms", (-1i32).into())]), "option \"wait_ms\": invalid value: integer"),
        (with([("name", "".into())]), "name is empty"),
        (with([("wait_ms", 1u64.into()), ("wait_forever", true.into())]), "exclude each other"),
    ] {
        let (name, message) = manager(&client, "Admit", &(1i32, options)).await.unwrap_err();
        assert_eq!(name, invalid, "{message}");
        assert!(message.contains(words), "{message}");
    }
    let standard = "org.freedesktop.DBus.Error.";
    for (path, interface, member, name) in [
        (PATH, MANAGER, "Admit", "InvalidArgs"),
        (PATH, MANAGER, "Admire", "UnknownMethod"),
        (PATH, TASK, "Release", "UnknownInterface"),
        ("/org/lrs", MANAGER, "Drain", "UnknownInterface"),
        ("/org/lrs/Shaper1/task/t0000001_1", TASK, "Release", "UnknownObject"),
        ("/nowhere", "org.freedesktop.DBus.Introspectable", "Introspect", "UnknownObject"),
    ] {
        let error = call(&client, path, interface, member, &()).await.unwrap_err();
        assert_eq!(error.0, format!("{standard}{name}"), "{error:?}");
    }
    for (interface, name, error) in [
        (MANAGER, "Colour", "UnknownProperty"),
        (PROPERTIES, "Cores", "UnknownProperty"),
        (TASK, "Tier", "UnknownInterface"),
        (MANAGER, "Cores", "PropertyReadOnly"),
        ("", "Cores", "PropertyReadOnly"),
    ] {
        let arguments = (interface, name, Value::from(1u32));
        let answer = call(&client, PATH, PROPERTIES, "Set", &arguments).await.unwrap_err();
        assert_eq!(answer.0, format!("{standard}{error}"), "{interface} {name}");
        if error != "PropertyReadOnly" {
            let answer = call(&client, PATH, PROPERTIES, "Get", &(interface, name)).await;
            assert_eq!(answer.unwrap_err().0, format!("{standard}{error}"), "{interface} {name}");
        }
    }
    // Any path answers a ping, and a call need not name its interface.
    call(&client, "/nowhere", "org.freedesktop.DBus.Peer", "Ping", &()).await.unwrap();
    let bare = client.call_method(Some("org.lrs.Shaper1"), PATH, None::<&str>, "GetConfig", &());
    soon(bare).await.unwrap();
}

#[tokio::test]
async fn reading_calls_answer_from_the_snapshot() {
    let bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let id = task_id(1).to_string();
    bench.events.push(event(1, EventKind::Admitted, &id));
    bench.events.push(event(2, EventKind::Promoted, &id));
    bench.publish(|snapshot| {
        snapshot.status = Arc::new(status());
        snapshot.tasks.insert(task_id(1), Arc::new(task(1)));
        snapshot.jobs = Arc::new(vec![proto::Job { job: "j".into(), ..Default::default() }]);
        snapshot.config_toml = "[slots]\n".into();
    });
    // What --json prints, less what is null.
    let shown = |message: serde_json::Value| without_nulls(message);
    let mut answer = map(&manager(&client, "GetStatus", &()).await.unwrap());
    // As of the answer.
    let age = answer.as_object_mut().unwrap().remove("last_turn_seconds").unwrap();
    assert!(age.is_number(), "{age}");
    let daemon = answer.as_object_mut().unwrap().remove("daemon").unwrap();
    assert!(daemon["cpu_seconds"].is_number() && daemon["resident_bytes"].is_number(), "{daemon}");
    assert_eq!(daemon["events"], json!({"admitted": 1, "promoted": 1}));
    assert_eq!(answer, shown(json!(status())));
    let answer = map(&manager(&client, "GetTask", &(&id,)).await.unwrap());
    assert_eq!(answer, shown(json!(task(1))));
    for (member, expected) in [
        ("ListTasks", json!([task(1)])),
        ("ListJobs", json!([proto::Job { job: "j".into(), ..Default::default() }])),
    ] {
        let reply = manager(&client, member, &()).await.unwrap();
        let body = reply.body();
        let list: Vec<HashMap<String, Value<'_>>> = body.deserialize().unwrap();
        assert_eq!(maps(&list), shown(expected), "{member}");
    }
    let reply = manager(&client, "GetConfig", &()).await.unwrap();
    assert_eq!(reply.body().deserialize::<String>().unwrap(), "[slots]\n");

    for reply in [
        manager(&client, "Explain", &(&id,)).await.unwrap(),
        call(&client, &task_path(1), TASK, "Explain", &()).await.unwrap(),
    ] {
        let body = reply.body();
        let (events, truncated): (Vec<HashMap<String, Value<'_>>>, bool) =
            body.deserialize().unwrap();
        let events = maps(&events);
        assert_eq!(events[0]["type"], "admitted");
        assert_eq!(events[1]["inputs"], json!({"free": 1}));
        assert!(!truncated);
    }
    let unknown = manager(&client, "Explain", &("t0000001-9",)).await.unwrap_err();
    assert_eq!(unknown.0, format!("{ERROR}NotFound"));

    let reply = manager(&client, "Events", &(2u64, 0u32)).await.unwrap();
    let body = reply.body();
    let (events, lost): (Vec<HashMap<String, Value<'_>>>, u64) = body.deserialize().unwrap();
    assert_eq!((maps(&events)[0]["seq"].clone(), events.len(), lost), (json!(2), 1, 0));

    let question = with([("computing_rate", 0.1.into()), ("mean_computing_rate", 0.9.into())]);
    let advice = map(&manager(&client, "EvaluateJob", &(question,)).await.unwrap());
    assert_eq!(advice["advice"], "suits");
}

fn without_nulls(json: serde_json::Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match json {
        Json::Object(object) => Json::Object(
            object
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Json::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[tokio::test]
async fn properties_and_managed_objects() {
    let bench = Bench::start().await;
    let client = bench.bus.connect().await;
    bench.publish(|snapshot| {
        snapshot.status = Arc::new(status());
        snapshot.tasks.insert(task_id(1), Arc::new(task(1)));
    });
    let manager_properties = all(&client, PATH, MANAGER).await;
    assert_eq!(
        manager_properties,
        json!({
            "Version": "0", "StartedAt": "2026-01-02T03:04:05.000000Z", "Hostname": "h",
            "Cores": 2, "Labels": {"rack": "r1"}, "State": "accepting", "Mode": "enforce",
            "ActiveCapacity": 2, "ActiveUsed": 1, "ActiveReserved": 0, "ActiveFree": 1,
            "PassiveCapacity": 2, "PassiveBase": 2, "PassiveMax": 8, "PassiveUsed": 0,
            "PassiveReserved": 0, "PassiveFree": 2, "PassiveOverflow": 0, "PassiveBound": "",
            "Waiting": 0,
            "LowestActivePriority": [-1], "GuardStage": 0, "GuardReason": "",
            "CgroupVersion": 2, "CgroupRoot": "/lrs", "CpuTiers": "idle", "IoTiers": "none",
            "TiersReason": "r", "Warnings": ["w"],
            "Totals": {"admitted": 1, "completed": 0, "left": 0, "released": 0, "refused": 0,
                       "promoted": 0, "demoted": 0},
            "Measured": {"cpu": {"effective": 0.25}, "period_ms": 3000,
                         "running": {"tasks": 1, "rated": 1, "rate_sum": 0.5}},
        })
    );
    let path = task_path(1);
    let task_properties = all(&client, &path, TASK).await;
    // No interface named is the object's own; the standard ones have no properties.
    assert_eq!(all(&client, PATH, "").await, manager_properties);
    assert_eq!(all(&client, &path, "").await, task_properties);
    assert_eq!(get(&client, &path, "", "Tier").await, json!("passive"));
    for standard in ["Peer", "Introspectable", "Properties", "ObjectManager"] {
        let interface = format!("org.freedesktop.DBus.{standard}");
        assert_eq!(all(&client, PATH, &interface).await, json!({}), "{standard}");
    }
    assert_eq!(
        task_properties,
        json!({
            "Id": task_id(1).to_string(), "Name": "n/ä", "Job": "j", "Kind": "", "Group": "",
            "Pid": 123_456, "Uid": 1000, "Tier": "passive", "Priority": -2, "Class": "moderate",
            "AdmittedAt": "2026-01-02T03:04:05.000006Z", "PromotedAt": "", "Attachment": "own",
            "Cgroup": format!("/lrs/{}", task_id(1)), "RatioGroup": "/lrs", "Unit": "",
            "FoundBy": "", "StaysBecause": "", "LostByMove": "", "CpuLane": "", "Opportunistic": false, "Repaired": 0, "Overflow": false,
            "Slotless": false, "Loan": false, "Lends": false, "Cpus": "", "Hinted": false, "Frozen": false, "Stopped": false, "Contested": false, "MainExited": false,
            "Measured": {"computing_rate": 0.5, "cpu_seconds": 12.5, "resident_bytes": 1 << 28,
                         "kernel": {"cpu_weight": 100, "cpu_idle": true}},
        })
    );
    for (path, interface, expected) in
        [(PATH, MANAGER, &manager_properties), (path.as_str(), TASK, &task_properties)]
    {
        for (name, value) in expected.as_object().unwrap() {
            let got = get(&client, path, interface, name).await;
            assert_eq!(got, *value, "{name}");
        }
    }
    let reply = call(&client, PATH, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", &())
        .await
        .unwrap();
    let objects: HashMap<OwnedObjectPath, HashMap<String, HashMap<String, OwnedValue>>> =
        reply.body().deserialize().unwrap();
    assert_eq!(objects.len(), 1);
    let (found, interfaces) = objects.iter().next().unwrap();
    assert_eq!(found.as_str(), path);
    let object: serde_json::Map<_, _> =
        interfaces[TASK].iter().map(|(name, value)| (name.clone(), plain(value))).collect();
    assert_eq!(serde_json::Value::Object(object), task_properties);

    // What is not known is not there.
    bench.publish(|snapshot| {
        let lost = proto::Task { pid: None, uid: None, priority: None, ..task(1) };
        snapshot.tasks.insert(task_id(1), Arc::new(lost));
    });
    let lost = all(&client, &path, TASK).await;
    assert!(lost.get("Uid").is_none() && lost.get("Name").is_some(), "{lost}");
    let unknown = call(&client, &path, PROPERTIES, "Get", &(TASK, "Uid")).await.unwrap_err();
    assert_eq!(unknown.0, format!("{ERROR}FailedPrecondition"));
}

#[tokio::test]
async fn signals_tell_what_changed_in_order_and_nothing_else() {
    let bench = Bench::start().await;
    let client = bench.bus.connect().await;
    bench.publish(|snapshot| snapshot.status = Arc::new(status()));
    let mut signals = Signals::listen(&client).await;
    let path = task_path(1);
    let id = task_id(1).to_string();

    bench.events.push(event(1, EventKind::Admitted, &id));
    bench.publish(|snapshot| {
        snapshot.tasks.insert(task_id(1), Arc::new(task(1)));
    });
    let mut signal = signals.next().await;
    if signal.member == "PropertiesChanged" || signal.member == "SlotsChanged" {
        // The status was published before anybody listened; telling of it may come late.
        signal = signals.until("InterfacesAdded").await;
    }
    assert_eq!(
        (signal.member.as_str(), signal.body[0].as_str()),
        ("InterfacesAdded", Some(&*path))
    );
    assert_eq!(signal.body[1][TASK]["Name"], "n/ä");
    let signal = signals.next().await;
    assert_eq!((signal.member.as_str(), signal.path.as_str()), ("TaskAdmitted", PATH));
    assert_eq!(signal.body, json!([id, path, 1, "a slot was free"]));
    get(&client, &path, TASK, "Id").await;

    // Measured values change with every reading; no signal is sent.
    bench.publish(|snapshot| {
        let measured = proto::Task { cpu_seconds: Some(99.0), ..task(1) };
        snapshot.tasks.insert(task_id(1), Arc::new(measured));
        let mut status = status();
        status.node.as_mut().unwrap().cpu.as_mut().unwrap().effective = Some(0.99);
        snapshot.status = Arc::new(status);
    });
    bench.events.push(event(2, EventKind::Promoted, &id));
    bench.publish(|snapshot| {
        let promoted = proto::Task { tier: proto::Tier::Active.into(), ..task(1) };
        snapshot.tasks.insert(task_id(1), Arc::new(promoted));
        let mut status = status();
        status.slots.as_mut().unwrap().active.as_mut().unwrap().free = 0;
        status.slots.as_mut().unwrap().active.as_mut().unwrap().used = 2;
        snapshot.status = Arc::new(status);
    });
    let signal = signals.next().await;
    assert_eq!((signal.member.as_str(), signal.path.as_str()), ("PropertiesChanged", &*path));
    assert_eq!(signal.body, json!([TASK, {"Tier": "active"}, []]));
    assert_eq!(signals.next().await.member, "TaskPromoted");
    let signal = signals.next().await;
    assert_eq!(signal.body, json!([MANAGER, {"ActiveFree": 0, "ActiveUsed": 2}, []]));
    let signal = signals.next().await;
    assert_eq!((signal.member.as_str(), signal.body), ("SlotsChanged", json!([2, 0, 2, 2])));

    // What is not known any more is named and has no value.
    bench.publish(|snapshot| {
        let lost = proto::Task { priority: None, tier: proto::Tier::Active.into(), ..task(1) };
        snapshot.tasks.insert(task_id(1), Arc::new(lost));
    });
    assert_eq!(signals.next().await.body, json!([TASK, {}, ["Priority"]]));

    // A demotion of what is no task is no signal; an event with no snapshot yet is held back.
    bench.events.push(event(3, EventKind::Demoted, "r0000001-1"));
    bench.events.push(event(4, EventKind::Demoted, &id));
    bench.publish(|_| {});
    let signal = signals.next().await;
    assert_eq!((signal.member.as_str(), signal.body[2].as_u64()), ("TaskDemoted", Some(4)));
    bench.events.push(event(5, EventKind::Completed, &id));
    bench.publish(|snapshot| {
        snapshot.tasks.remove(&task_id(1));
    });
    let signal = signals.next().await;
    assert_eq!((signal.member.as_str(), signal.body), ("InterfacesRemoved", json!([path, [TASK]])));
    assert_eq!(signals.next().await.member, "TaskCompleted");
    let gone = call(&client, &path, TASK, "Explain", &()).await.unwrap_err();
    assert_eq!(gone.0, "org.freedesktop.DBus.Error.UnknownObject");
    bench.events.push(event(6, EventKind::Released, &id));
    bench.publish(|_| {});
    assert_eq!(signals.next().await.member, "TaskReleased");
}

#[tokio::test]
async fn introspection_names_everything_with_its_types() {
    let bench = Bench::start().await;
    let client = bench.bus.connect().await;
    bench.publish(|snapshot| {
        snapshot.tasks.insert(task_id(1), Arc::new(task(1)));
    });
    let xml = async |path: &str| introspect(&client, path).await;
    let manager = xml(PATH).await;
    for part in [
        "<interface name=\"org.lrs.Shaper1.Manager\">",
        "<method name=\"AdmitPidfd\">",
        "<arg name=\"pidfd\" type=\"h\" direction=\"in\"/>",
        "<property name=\"LowestActivePriority\" type=\"ai\" access=\"read\"/>",
        "<annotation name=\"org.freedesktop.DBus.Property.EmitsChangedSignal\" value=\"false\"/>",
        "<signal name=\"TaskAdmitted\">",
        "<interface name=\"org.freedesktop.DBus.ObjectManager\">",
        "<node name=\"task\"/>",
    ] {
        assert!(manager.contains(part), "{part}\n{manager}");
    }
    let name = task_path(1).rsplit('/').next().unwrap().to_owned();
    assert!(xml("/org/lrs/Shaper1/task").await.contains(&format!("<node name=\"{name}\"/>")));
    let top = xml("/").await;
    assert!(top.contains("<node name=\"org\"/>") && !top.contains(PROPERTIES), "{top}");
    let task = xml(&task_path(1)).await;
    assert!(task.contains("<property name=\"Tier\" type=\"s\" access=\"read\"/>"), "{task}");
    // Every member is let through by the shipped bus policy, and nothing else is named in it.
    let policy = include_str!("../../systemd/org.lrs.Shaper1.conf");
    let mut named: Vec<&str> = methods(&manager, MANAGER);
    named.extend(methods(&task, TASK));
    let allowed = policy.matches("send_interface=\"org.lrs.Shaper1.").count();
    assert_eq!(named.len(), allowed, "{named:?}");
    for method in named {
        assert!(policy.contains(&format!("send_member=\"{method}\"")), "{method}");
    }
}

pub fn methods<'a>(xml: &'a str, interface: &str) -> Vec<&'a str> {
    let (_, rest) = xml.split_once(&format!("<interface name=\"{interface}\">")).unwrap();
    let (inside, _) = rest.split_once("</interface>").unwrap();
    inside
        .split("<method name=\"")
        .skip(1)
        .map(|method| method.split_once('"').unwrap().0)
        .collect()
}
