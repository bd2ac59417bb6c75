//! Requests that no client should make, clients that misbehave, and too much of everything.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use rustix::process::Signal;
use tonic::transport::{Channel, Endpoint};

use crate::harness::{Daemon, PATIENCE, signal};

const TWO: &str = "[slots]\nactive = 2\npassive = 2\nexpand = false\n";

#[test]
#[ignore = "needs root and cgroups"]
fn names_are_shown_as_given_or_refused() {
    let mut daemon = Daemon::start("names", TWO);
    let name = "../..//ä b/%n\\ {}";
    let pid = daemon.run(&["--name", name, "--job", "/", "--kind", &"k".repeat(256)], &["cat"]);
    let task = daemon.task_of(pid);
    assert_eq!((&task["name"], &task["job"]), (&name.into(), &"/".into()));
    let below = task["cgroup"].as_str().unwrap().matches('/').count();
    assert_eq!(below, daemon.root.matches('/').count() + 2, "names are no paths");
    let long = "x".repeat(300);
    for (bad, words) in [
        (long.as_str(), "at most 256"),
        ("a\nb", "control character"),
        ("a\u{1b}[2Jb", "control character"),
        ("\u{9b}31m", "control character"),
        ("", "is empty"),
    ] {
        for option in ["--name", "--job", "--kind"] {
            daemon.refused(&["run", option, bad, "--", "true"], 125, words);
        }
        daemon.refused(&["reserve", "--job", bad], 2, words);
    }
    for id in ["../../etc/passwd", "t1-1/..", "T", "", &long, "a\nb"] {
        for command in ["task", "why", "release", "cancel"] {
            let output = daemon.ctl(&[command, "--", id]);
            assert_eq!(output.status.code(), Some(1), "{command} {id:?}");
            assert!(!output.stderr.contains(&0x1b) && !output.stderr.is_empty());
        }
    }
    daemon.refused(&["release", "t0000001-1"], 1, "no task t0000001-1");
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn priorities_have_the_range_of_their_type() {
    let mut daemon = Daemon::start("limits", "[slots]\nactive = 1\npassive = 3\nexpand = false\n");
    let (lowest, highest) = (i32::MIN.to_string(), i32::MAX.to_string());
    let low = daemon.run(&["--priority", &lowest], &["cat"]);
    let low_task = daemon.task_of(low);
    assert_eq!(low_task["tier"], "active");
    assert_eq!(daemon.status()["lowest_active_priority"], i32::MIN);
    let high = daemon.run(&["--priority", &highest], &["cat"]);
    assert_eq!(daemon.task_of(high)["tier"], "active");
    assert_eq!(daemon.task_of(low)["tier"], "passive");
    let id = low_task["id"].as_str().unwrap();
    daemon.ok(&["priority", id, &highest]);
    assert_eq!(daemon.task_of(low)["tier"], "passive", "only a higher priority swaps");
    daemon.ok(&["priority", daemon.task_of(high)["id"].as_str().unwrap(), "0"]);
    assert_eq!(daemon.task_of(low)["tier"], "active");
    daemon.ok(&["priority", daemon.task_of(high)["id"].as_str().unwrap(), &highest]);
    daemon.ok(&["priority", id, &lowest]);
    assert_eq!(daemon.task_of(low)["tier"], "passive");
    for beyond in ["2147483648", "-2147483649", "1e3", "high"] {
        daemon.refused(&["priority", id, beyond], 2, "invalid value");
        daemon.refused(&["run", "--priority", beyond, "--", "true"], 125, "invalid value");
        daemon.refused(&["reserve", "--priority", beyond], 2, "invalid value");
    }
    // A storm of changes ends in the order of the last ones.
    let number = |n: u32| (if n.is_multiple_of(2) { i32::MIN } else { i32::MAX }).to_string();
    let storm: Vec<Child> = (0..60)
        .map(|n| {
            let mut command = daemon.ctl_command(&["priority", id, &number(n)]);
            command.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in storm {
        assert!(child.wait().unwrap().success());
    }
    daemon.ok(&["priority", id, "0"]);
    assert_eq!(daemon.task_of(high)["tier"], "active");
    daemon.consistent();
    for pid in [low, high] {
        daemon.finish(pid);
        daemon.join(pid);
    }
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_reservation_is_good_once_and_in_time() {
    let mut daemon = Daemon::start("once", TWO);
    let run = |rid: &str| ["run", "--reservation", rid, "--", "true"].map(str::to_owned);
    let refused = |daemon: &Daemon, rid: &str, words: &str| {
        let arguments = run(rid.trim());
        daemon.refused(&arguments.each_ref().map(String::as_str), 125, words);
    };
    let used = daemon.ok(&["reserve"]);
    daemon.ok(&["run", "--reservation", used.trim(), "--", "true"]);
    refused(&daemon, &used, "used, cancelled or has expired");
    daemon.refused(&["cancel", used.trim()], 1, "used, cancelled or has expired");
    let cancelled = daemon.ok(&["reserve"]);
    daemon.ok(&["cancel", cancelled.trim()]);
    daemon.refused(&["cancel", cancelled.trim()], 1, "used, cancelled or has expired");
    refused(&daemon, &cancelled, "used, cancelled or has expired");
    let late = daemon.ok(&["reserve", "--ttl", "100ms"]);
    daemon.eventually("its end", |daemon| {
        (daemon.status()["slots"]["active"]["reserved"] == 0).then_some(())
    });
    refused(&daemon, &late, "used, cancelled or has expired");
    let (prefix, _) = used.trim().split_once('-').unwrap();
    refused(&daemon, &format!("{prefix}-999"), "was ever made");
    refused(&daemon, "r0000001-0", "no reservation");
    refused(&daemon, "garbage", "no reservation garbage");
    // All of it still holds after a kill.
    daemon.kill();
    daemon.launch();
    refused(&daemon, &used, "used, cancelled or has expired");
    refused(&daemon, &late, "used, cancelled or has expired");
    daemon.nothing_left();
    assert_eq!(daemon.status()["totals"]["completed"], 1);
}

/// A client in this process, for more requests than processes can make.
async fn client(daemon: &Daemon) -> ShaperClient<Channel> {
    let socket = daemon.socket();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://lrsd");
    ShaperClient::new(endpoint.connect_with_connector(connector).await.unwrap())
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
#[ignore = "needs root and cgroups"]
fn ten_thousand_reservations() {
    let slow = std::env::var_os("LRS_TEST_SLOW").is_some();
    let count: u32 = if slow { 1_000 } else { 10_000 };
    let mut daemon = Daemon::start("flood", TWO);
    let ask = || proto::ReserveRequest { ttl_ms: Some(3_600_000), ..Default::default() };
    block_on(async {
        let mut client = client(&daemon).await;
        let mut granted = 0;
        for _ in 0..count {
            match client.reserve(ask()).await {
                Ok(_) => granted += 1,
                Err(status) => assert_eq!(status.code(), tonic::Code::ResourceExhausted),
            }
        }
        assert_eq!(granted, 4, "what there is");
    });
    // And where there is room for all of them.
    daemon.configure("[slots]\nactive = 2\npassive = 65536\n");
    daemon.ok(&["reload"]);
    let count = count / 5;
    let ids: Vec<String> = block_on(async {
        let mut client = client(&daemon).await;
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(client.reserve(ask()).await.unwrap().into_inner().id);
        }
        ids
    });
    let reserved = |daemon: &Daemon| daemon.status()["slots"]["passive"]["reserved"].clone();
    assert_eq!(reserved(&daemon), count + 2);
    daemon.kill();
    daemon.launch();
    assert_eq!(reserved(&daemon), count + 2);
    daemon.ok(&["run", "--", "true"]);
    block_on(async {
        let mut client = client(&daemon).await;
        for id in ids {
            client.cancel_reservation(proto::CancelReservationRequest { id }).await.unwrap();
        }
    });
    assert_eq!(reserved(&daemon), 2);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn garbage_and_silence_on_the_socket_stop_no_other_client() {
    let daemon = Daemon::start("garbage", TWO);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0u8, 0, 0, 4, 0, 0, 0, 0, 0];
    let mut silent = daemon.connect();
    let mut half = daemon.connect();
    half.write_all(&preface[..7]).unwrap();
    let huge_frame = [&preface[..], &settings, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat();
    let bad_headers =
        [&preface[..], &settings, &[0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]];
    let bad_headers = bad_headers.concat();
    for garbage in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        &[0u8; 4096],
        &[0xffu8; 65536],
        &huge_frame,
        &bad_headers,
    ] {
        daemon.talk(garbage, 1 << 16);
        daemon.status();
    }
    // Whoever says nothing is shut out in the end.
    for stream in [&mut silent, &mut half] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        let closed = stream.read_to_end(&mut rest);
        assert!(
            closed.is_ok() || closed.is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock)
        );
    }
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn waiters_that_die_make_room_for_those_behind_them() {
    let mut daemon = Daemon::start("waiters", "[slots]\nactive = 1\npassive = 0\nexpand = false\n");
    let holder = daemon.run(&[], &["cat"]);
    daemon.task_of(holder);
    let waiting = |daemon: &Daemon, count: usize| {
        daemon.eventually("waiters", |daemon| (daemon.status()["waiting"] == count).then_some(()));
    };
    let dies = daemon.run(&["--wait"], &["cat"]);
    waiting(&daemon, 1);
    let next = daemon.run(&["--wait"], &["cat"]);
    waiting(&daemon, 2);
    signal(dies, Signal::KILL);
    daemon.join(dies);
    waiting(&daemon, 1);
    daemon.refused(&["run", "--wait=300ms", "--", "true"], 124, "");
    waiting(&daemon, 1);
    // A drain keeps those who wait, and lets no task in.
    daemon.ok(&["drain"]);
    daemon.finish(holder);
    daemon.join(holder);
    daemon.eventually("an empty tier", |daemon| daemon.tasks().is_empty().then_some(()));
    assert_eq!(daemon.status()["waiting"], 1);
    daemon.refused(&["run", "--", "true"], 125, "draining");
    daemon.ok(&["resume"]);
    daemon.task_of(next);
    daemon.finish(next);
    assert!(daemon.join(next).success());
    daemon.nothing_left();
    assert_eq!(daemon.status()["totals"]["admitted"], 2);
}

#[test]
#[ignore = "needs root and cgroups"]
fn two_hundred_at_once() {
    let count = if std::env::var_os("LRS_TEST_SLOW").is_some() { 40 } else { 200 };
    let mut daemon = Daemon::start("crowd", TWO);
    let pids: Vec<i32> = (0..count).map(|_| daemon.run(&["--wait"], &["true"])).collect();
    for pid in pids {
        assert!(daemon.join(pid).success());
    }
    daemon.nothing_left();
    let totals = daemon.status()["totals"].clone();
    assert_eq!((&totals["admitted"], &totals["completed"]), (&count.into(), &count.into()));
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_stopped_daemon_and_stopped_clients_delay_no_other() {
    let mut daemon = Daemon::start("sigstop", TWO);
    let active: Vec<i32> = (0..2).map(|_| daemon.run(&[], &["cat"])).collect();
    for pid in &active {
        daemon.task_of(*pid);
    }
    let passive = daemon.run(&[], &["cat"]);
    assert_eq!(daemon.task_of(passive)["tier"], "passive");
    let follower =
        daemon.ctl_command(&["events", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let follower = daemon.keep(follower);
    signal(follower, Signal::STOP);
    signal(daemon.pid(), Signal::STOP);
    daemon.finish(active[0]);
    assert!(daemon.join(active[0]).success(), "tasks end without the daemon");
    let waiter = daemon.run(&["--wait"], &["cat"]);
    signal(daemon.pid(), Signal::CONT);
    daemon.eventually("a promotion", |daemon| {
        (daemon.task_of(passive)["tier"] == "active").then_some(())
    });
    daemon.task_of(waiter);
    // Enough events to fill every buffer on the way to the stopped reader.
    let id = daemon.task_of(waiter)["id"].as_str().unwrap().to_owned();
    for priority in ["1", "-1"].iter().cycle().take(40) {
        daemon.ok(&["priority", &id, priority]);
    }
    for pid in [active[1], passive, waiter] {
        daemon.finish(pid);
        assert!(daemon.join(pid).success());
    }
    daemon.nothing_left();
    let (code, took) = daemon.stop();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}");
    signal(follower, Signal::CONT);
}

#[test]
#[ignore = "needs root and cgroups"]
fn releases_race_with_ends_and_reloads_storm() {
    let mut daemon = Daemon::start("races", TWO);
    let mut released = 0;
    for _ in 0..30 {
        let pid = daemon.run(&["--wait"], &["cat"]);
        let id = daemon.task_of(pid)["id"].as_str().unwrap().to_owned();
        let release = daemon.ctl_command(&["release", &id]).stderr(Stdio::piped()).spawn().unwrap();
        daemon.finish(pid);
        signal(daemon.pid(), Signal::HUP);
        let output = release.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || text.contains("no task"), "{text}");
        released += u64::from(output.status.success());
        assert!(daemon.join(pid).success(), "a release harms no process");
    }
    daemon.nothing_left();
    let totals = daemon.status()["totals"].clone();
    assert_eq!(totals["released"], released);
    assert_eq!(totals["completed"], 30 - released);
}
