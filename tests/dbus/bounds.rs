//! What no caller and no bus can do to the server: floods, leaving, stops, a bus that goes, a
//! name that is taken.

use std::sync::Arc;

use lrs::command::Command;
use lrs::core::event::EventKind;
use serde_json::json;
use tokio::task::JoinSet;
use zbus::Connection;
use zbus::message::Message;
use zbus::zvariant::{Fd, Value};

use crate::bench::{Bench, event, limits, name_owned, task, task_id, task_path};
use crate::bus::Bus;
use crate::client::{
    ERROR, MANAGER, PATH, PROPERTIES, Signals, TASK, call, get, manager, soon, with,
};

#[tokio::test]
async fn one_user_cannot_have_more_calls_than_its_share() {
    let calls = 8;
    let mut bench = Bench::with(Bus::start(), lrs::dbus::Limits { calls, ..limits() }).await;
    let client = bench.bus.connect().await;
    manager(&client, "GetConfig", &()).await.unwrap();
    let share = if rustix::process::geteuid().is_root() { calls } else { calls / 2 };
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..share {
        let client = client.clone();
        let options = with([("wait_forever", true.into())]);
        waiting.spawn(async move { manager(&client, "Admit", &(1i32, options)).await });
    }
    let mut replies = Vec::new();
    for _ in 0..share {
        let Command::Admit { reply, .. } = bench.next_command().await else { panic!("no Admit") };
        replies.push(reply);
    }
    let refused = manager(&client, "GetStatus", &()).await.unwrap_err();
    assert_eq!(refused.0, format!("{ERROR}TooManyCalls"), "{refused:?}");
    replies.pop().unwrap().send(Ok(task(1))).unwrap();
    soon(waiting.join_next()).await.unwrap().unwrap().unwrap();
    // Its place is free once the answer is written, which the caller has just read.
    let again = async {
        while manager(&client, "GetStatus", &()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon(again).await;
}

/// Enough to be answered by name, as in gRPC: what comes back is short whatever was sent.
#[tokio::test]
async fn a_call_and_its_error_are_small() {
    let bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let refused = manager(&client, "GetTask", &("x".repeat(65 << 10),)).await.unwrap_err();
    assert_eq!(refused.0, "org.freedesktop.DBus.Error.LimitsExceeded", "{refused:?}");
    let long = "X".repeat(60 << 10);
    let options = with([("unit", Value::from(long.clone()))]);
    for error in [
        manager(&client, "GetTask", &(&long,)).await.unwrap_err(),
        manager(&client, "Admit", &(0i32, options)).await.unwrap_err(),
        manager(&client, &long[..255], &()).await.unwrap_err(),
        call(&client, PATH, PROPERTIES, "Get", &(&long, "x")).await.unwrap_err(),
        call(&client, PATH, PROPERTIES, "Get", &(MANAGER, &long)).await.unwrap_err(),
        call(&client, &format!("/{long}"), MANAGER, "Drain", &()).await.unwrap_err(),
    ] {
        assert!(error.1.len() < 5000, "{} bytes", error.1.len());
    }
}

#[tokio::test]
async fn no_method_takes_two_descriptors() {
    let bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let file = std::fs::File::open("/dev/null").unwrap();
    let two = (Fd::from(&file), Fd::from(&file));
    let refused = manager(&client, "GetConfig", &two).await.unwrap_err();
    assert_eq!(refused.0, "org.freedesktop.DBus.Error.LimitsExceeded", "{refused:?}");
}

/// All at once, before lrsd can know who it is.
#[tokio::test]
async fn a_newcomer_may_send_all_it_wants_at_once() {
    let bench = Bench::start().await;
    let client = bench.bus.connect().await;
    for answer in ask(60, &client).join_all().await {
        answer.unwrap();
    }
}

/// Many calls at once; their answers.
fn ask(calls: usize, client: &Connection) -> JoinSet<Result<Message, (String, String)>> {
    let mut asked = JoinSet::new();
    for _ in 0..calls {
        let client = client.clone();
        asked.spawn(async move { manager(&client, "GetConfig", &()).await });
    }
    asked
}

#[tokio::test]
async fn a_flood_of_newcomers_is_answered_or_refused_and_keeps_no_user_out() {
    let bench = Bench::start().await;
    let mut flood = Vec::new();
    for _ in 0..150 {
        flood.push(bench.bus.connect().await);
    }
    let asked: Vec<_> = flood.iter().map(|client| ask(70, client)).collect();
    let newcomer = bench.bus.connect().await;
    manager(&newcomer, "GetConfig", &()).await.unwrap();
    let mut answers = Vec::new();
    for asked in asked {
        answers.extend(asked.join_all().await);
    }
    let too_many = format!("{ERROR}TooManyCalls");
    for refused in answers.into_iter().filter_map(Result::err) {
        assert_eq!(refused.0, too_many, "{refused:?}");
    }
    // Nothing is left behind.
    for client in &flood {
        manager(client, "GetConfig", &()).await.unwrap();
    }
}

#[tokio::test]
async fn a_wait_ends_when_its_caller_leaves_the_bus() {
    let mut bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let other = bench.bus.connect().await;
    let asked = {
        let client = client.clone();
        let options = with([("wait_forever", true.into())]);
        tokio::spawn(async move { manager(&client, "Admit", &(1i32, options)).await })
    };
    let Command::Admit { mut reply, .. } = bench.next_command().await else { panic!("no Admit") };
    // Meanwhile everybody else is served.
    manager(&other, "GetConfig", &()).await.unwrap();
    assert!(!reply.is_closed());
    asked.abort();
    let _ = asked.await;
    client.close().await.unwrap();
    soon(reply.closed()).await;
}

#[tokio::test]
async fn stopping_ends_what_waits_within_its_time() {
    let mut bench = Bench::start().await;
    let client = bench.bus.connect().await;
    let asked = {
        let client = client.clone();
        let options = with([("wait_forever", true.into())]);
        tokio::spawn(async move { manager(&client, "Admit", &(1i32, options)).await })
    };
    let Command::Admit { reply: _waiting, .. } = bench.next_command().await else {
        panic!("no Admit")
    };
    bench.begin_stop();
    let error = soon(asked).await.unwrap().unwrap_err();
    assert_eq!(error.0, format!("{ERROR}Unavailable"), "{error:?}");
    soon(&mut bench.server).await.unwrap();
}

#[tokio::test]
async fn the_bus_goes_and_comes_back() {
    let mut bench = Bench::start().await;
    bench.publish(|snapshot| {
        snapshot.tasks.insert(task_id(1), Arc::new(task(1)));
    });
    for _ in 0..2 {
        bench.bus.kill();
        bench.bus.run();
        bench.open().await;
        let client = bench.bus.connect().await;
        let found = get(&client, &task_path(1), TASK, "Id").await;
        assert_eq!(found, json!(task_id(1).to_string()));
    }
    // And signals go out on the new connection.
    let client = bench.bus.connect().await;
    let mut signals = Signals::listen(&client).await;
    bench.events.push(event(1, EventKind::Promoted, &task_id(1).to_string()));
    bench.publish(|_| {});
    assert_eq!(signals.next().await.member, "TaskPromoted");
    bench.begin_stop();
    soon(&mut bench.server).await.unwrap();
}

#[tokio::test]
async fn a_name_that_is_taken_is_tried_again() {
    let bus = Bus::start();
    let other = bus.connect().await;
    other.request_name("org.lrs.Shaper1").await.unwrap();
    let bench = Bench::closed(bus, limits());
    // The owner goes; the server takes over by itself.
    other.release_name("org.lrs.Shaper1").await.unwrap();
    let client = bench.bus.connect().await;
    let served = async {
        while manager(&client, "GetConfig", &()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon(served).await;
}

#[tokio::test]
async fn a_missing_policy_is_survived_and_taken_up_when_it_comes() {
    let bus = Bus::with("<deny own=\"org.lrs.Shaper1\"/>");
    let mut bench = Bench::closed(bus, limits());
    let client = bench.bus.connect().await;
    let proxy = zbus::fdo::DBusProxy::new(&client).await.unwrap();
    let owned = proxy.name_has_owner("org.lrs.Shaper1".try_into().unwrap()).await.unwrap();
    assert!(!owned && !bench.server.is_finished());
    bench.bus.kill();
    bench.bus.policy("<allow own=\"*\"/>");
    bench.bus.run();
    name_owned(&bench.bus).await;
    bench.begin_stop();
    soon(&mut bench.server).await.unwrap();
}

#[tokio::test]
async fn no_bus_at_all_does_not_keep_the_server_from_stopping() {
    let mut bus = Bus::start();
    bus.kill();
    let mut bench = Bench::closed(bus, limits());
    bench.begin_stop();
    soon(&mut bench.server).await.unwrap();
}
