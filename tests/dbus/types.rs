//! Every reply and every signal has on the wire the types its introspection shows: strongly typed
//! clients (GDBus, sd-bus) drop what differs. Signals are checked wherever they are read
//! ([`Signals`]); here those a running node seldom sends.

use std::collections::BTreeSet;
use std::sync::Arc;

use lrs::command::{Command, QueuePage};
use lrs::core::event::EventKind;
use lrs::proto;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use serde_json::json;
use zbus::message::Message;
use zbus::zvariant::{Fd, Value};

use crate::bench::{Bench, event, status, task, task_id, task_path};
use crate::client::{
    MANAGER, PATH, PROPERTIES, Signals, TASK, call, described, introspect, none, with,
};

/// Answers every command as the loop would have granted it.
async fn grant_all(mut commands: tokio::sync::mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        match command {
            Command::Admit { reply, .. } => drop(reply.send(Ok(task(1)))),
            Command::Reserve { reply, .. } => {
                let tier = proto::Tier::Active.into();
                let granted =
                    proto::Reservation { id: "r0000001-1".into(), tier, ..Default::default() };
                drop(reply.send(Ok(granted)));
            }
            Command::SetPriority { reply, .. } => drop(reply.send(Ok(task(1)))),
            Command::SetJobPriority { reply, .. } => {
                drop(reply.send(Ok(proto::SetJobPriorityResponse { tasks: 2, waiting: 1 })));
            }
            Command::Discover { .. } => panic!("no server sends what only a finder says"),
            Command::ListQueue { reply, .. } => drop(reply.send(Ok(QueuePage::default()))),
            Command::Reload { reply, .. } => drop(reply.send(Ok(vec!["slots.active".into()]))),
            Command::CancelReservation { reply, .. }
            | Command::Release { reply, .. }
            | Command::Drain { reply, .. }
            | Command::Resume { reply, .. } => drop(reply.send(Ok(()))),
            Command::Hint { .. }
            | Command::Record { .. }
            | Command::VerifyTiers { .. }
            | Command::ReportIntegration { .. }
            | Command::YarnFound(_)
            | Command::Looked(_)
            | Command::FinderTrouble(_) => {}
        }
    }
}

fn types(reply: &Message) -> String {
    reply.body().signature().to_string_no_parens()
}

#[tokio::test]
async fn replies_have_the_types_that_are_described() {
    let mut bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let id = task_id(1).to_string();
    bench.events.push(event(1, EventKind::Admitted, &id));
    bench.publish(|snapshot| {
        snapshot.status = Arc::new(status());
        snapshot.tasks.insert(task_id(1), Arc::new(task(1)));
        snapshot.jobs = Arc::new(vec![proto::Job { job: "j".into(), ..Default::default() }]);
    });
    let (_, nothing) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(grant_all(std::mem::replace(&mut bench.commands, nothing)));
    let task = task_path(1);
    let (of_manager, of_task) = (introspect(&client, PATH).await, introspect(&client, &task).await);
    let mut called = BTreeSet::new();
    macro_rules! replied {
        ($path:expr, $interface:expr, $member:expr, $body:expr) => {{
            let reply = call(&client, $path, $interface, $member, &$body).await.unwrap();
            let xml = if $path == PATH { &of_manager } else { &of_task };
            let expected = described(xml, $interface, "method", $member);
            assert_eq!(types(&reply), expected, "{}", $member);
            called.insert(format!("{}.{}", $interface, $member));
        }};
    }
    for member in
        ["GetStatus", "ListTasks", "ListJobs", "Drain", "Resume", "Reload", "GetConfig", "GetYarn"]
    {
        replied!(PATH, MANAGER, member, ());
    }
    for member in ["GetTask", "Explain", "Release"] {
        replied!(PATH, MANAGER, member, (&*id,));
    }
    replied!(PATH, MANAGER, "Admit", (7i32, none()));
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    replied!(PATH, MANAGER, "AdmitPidfd", (Fd::from(pidfd), none()));
    replied!(PATH, MANAGER, "Reserve", (none(),));
    replied!(PATH, MANAGER, "CancelReservation", ("r0000001-1",));
    replied!(PATH, MANAGER, "SetPriority", (&*id, 1i32));
    replied!(PATH, MANAGER, "SetJobPriority", ("j", 1i32, none()));
    replied!(PATH, MANAGER, "EvaluateJob", (with([("computing_rate", Value::from(0.1))]),));
    replied!(PATH, MANAGER, "EvaluateJobs", (vec![with([("computing_rate", Value::from(0.1))])],));
    replied!(PATH, MANAGER, "Events", (1u64, 0u32));
    replied!(PATH, MANAGER, "ListHistory", (with([("failed", Value::from(true))]),));
    replied!(PATH, MANAGER, "ListQueue", (none(),));
    bench.events.push(event(2, EventKind::Completed, "t0000001-9"));
    replied!(PATH, MANAGER, "WaitTask", ("t0000001-9", none()));
    replied!(&*task, TASK, "Release", ());
    replied!(&*task, TASK, "SetPriority", (1i32,));
    replied!(&*task, TASK, "Explain", ());
    for path in [PATH, &*task] {
        let interface = if path == PATH { MANAGER } else { TASK };
        replied!(path, PROPERTIES, "GetAll", (interface,));
        let name = if path == PATH { "Cores" } else { "Pid" };
        replied!(path, PROPERTIES, "Get", (interface, name));
        replied!(path, "org.freedesktop.DBus.Introspectable", "Introspect", ());
        replied!(path, "org.freedesktop.DBus.Peer", "Ping", ());
        replied!(path, "org.freedesktop.DBus.Peer", "GetMachineId", ());
    }
    replied!(PATH, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", ());
    // Set alone has no reply to look at.
    for (xml, interface) in [(&of_manager, MANAGER), (&of_task, TASK)] {
        for method in crate::server::methods(xml, interface) {
            assert!(called.contains(&format!("{interface}.{method}")), "{interface}.{method}");
        }
    }
}

#[tokio::test]
async fn signals_have_the_types_that_are_described() {
    let bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let mut signals = Signals::listen(&client).await;
    let id = task_id(1).to_string();
    bench.events.push(event(1, EventKind::Admitted, &id));
    bench.publish(|snapshot| {
        snapshot.status = Arc::new(status());
        snapshot.tasks.insert(task_id(1), Arc::new(task(1)));
    });
    let mut sent = BTreeSet::new();
    let mut until = async |last: &str| {
        loop {
            let signal = signals.next().await;
            sent.insert(signal.member.clone());
            if signal.member == last {
                break;
            }
        }
    };
    until("SlotsChanged").await;
    for (seq, kind) in [(2, EventKind::Promoted), (3, EventKind::Demoted), (4, EventKind::Released)]
    {
        bench.events.push(event(seq, kind, &id));
    }
    // What is not known any more is named in the third argument.
    bench.publish(|snapshot| {
        let lost = proto::Task { priority: None, ..task(1) };
        snapshot.tasks.insert(task_id(1), Arc::new(lost));
    });
    until("TaskReleased").await;
    bench.events.push(event(5, EventKind::Completed, &id));
    bench.publish(|snapshot| {
        snapshot.tasks.remove(&task_id(1));
    });
    until("TaskCompleted").await;
    let xml = introspect(&client, PATH).await;
    let described = xml.split("<signal name=\"").skip(1);
    for signal in described.map(|signal| signal.split_once('"').unwrap().0) {
        assert!(sent.contains(signal), "{signal} was not sent: {}", json!(sent));
    }
}
