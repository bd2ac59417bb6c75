//! How tasks ended, as their history says it: true, or not known.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::Daemon;

/// A program that ends by `exit_group` of another thread than the main one, which may be gone.
const THREADS: &str = r#"
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
def end():
    time.sleep(0.2)
    os._exit(int(sys.argv[2]))
threading.Thread(target=end).start()
if sys.argv[1] == "gone":
    libc.syscall(60 if os.uname().machine == "x86_64" else 93, 0)
time.sleep(60)
"#;

/// The `exit` event of the task, once it is there.
fn exit_of(daemon: &Daemon, name: &str) -> Value {
    daemon.eventually(&format!("how {name} ended"), |daemon| {
        let named = |event: &Value| event["inputs"]["name"] == name;
        daemon.events().into_iter().find(|event| event["type"] == "exit" && named(event))
    })
}

#[test]
#[ignore = "needs root and cgroups"]
fn whatever_way_a_task_ends_is_reported_and_its_job_counts_failures() {
    let mut daemon = Daemon::start("ends", "[slots]\nactive = 4\npassive = 8\nexpand = false\n");
    let core = "ulimit -c unlimited; cd \"$1\"; kill -ABRT $$";
    let dir = daemon.dir.path().to_str().expect("UTF-8").to_owned();
    let mut ways: Vec<(&str, Vec<&str>, Value)> = vec![
        ("well", vec!["true"], json!({"exit_status": 0})),
        ("badly", vec!["sh", "-c", "exit 3"], json!({"exit_status": 3})),
        (
            "killed",
            vec!["sh", "-c", "kill -KILL $$"],
            json!({"exit_signal": 9, "core_dumped": false}),
        ),
        ("core", vec!["sh", "-c", core, "sh", &dir], json!({"exit_signal": 6})),
        ("thread", vec!["python3", "-c", THREADS, "stays", "5"], json!({"exit_status": 5})),
        ("leader", vec!["python3", "-c", THREADS, "gone", "7"], json!({"exit_status": 7})),
    ];
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("NOT TESTED: a program that its threads end; there is no python3 here");
        ways.truncate(4);
    }
    for reaps in [false, true] {
        for (name, command, wanted) in &ways {
            let name = format!("{name}-{reaps}");
            let options = ["--name", &name, "--job", "ends"];
            if reaps {
                // Its parent waits for it, and is faster than lrsd as a rule.
                let arguments = [&["run"], &options[..], &["--"], command].concat();
                let _ = daemon.ctl_command(&arguments).stdout(Stdio::null()).status().unwrap();
            } else {
                daemon.run(&options, command);
            }
            if reaps && !pidfds_keep_status() {
                eprintln!("{name}: this kernel keeps no status at a pidfd: right or not known");
                continue;
            }
            let exit = exit_of(&daemon, &name);
            for (key, value) in wanted.as_object().expect("an object") {
                assert_eq!(exit["inputs"][key], *value, "{name}: {exit}");
            }
            let task = exit["task"].as_str().expect("a task");
            let story = daemon.ok(&["why", task]);
            assert!(story.contains("its main process "), "{story}");
            daemon.eventually("its end", |daemon| {
                let events = daemon.events();
                let ends = |event: &&Value| event["task"] == task && event["type"] == "completed";
                (events.iter().filter(ends).count() == 1).then_some(())
            });
        }
    }
    let failed = |daemon: &Daemon| daemon.json(&["jobs"])[0]["failed"].as_u64().unwrap();
    let counted = failed(&daemon);
    if pidfds_keep_status() {
        assert_eq!(counted as usize, 2 * (ways.len() - 1), "all but the two that went well");
    }
    daemon.nothing_left();
    let history = daemon.json(&["history", "--job", "ends"]);
    let ended = history.as_array().expect("a list");
    assert_eq!(ended.len(), 2 * ways.len(), "{history}");
    for task in ended {
        let badly = task["exit_status"] == 3;
        let name = task["name"].as_str().expect("a name");
        assert!(!badly || name.starts_with("badly"), "{task}");
        assert!(task["ended_at"].is_string() && task["elapsed_seconds"].is_f64(), "{task}");
        assert!(task["cpu_seconds"].is_number() && task["tier"] == "active", "{task}");
    }
    assert_eq!(ended[1]["exit_status"], 3, "the zombie had it: {history}");
    let failures =
        |daemon: &Daemon| daemon.json(&["history", "--failed", "--user", "root", "--since", "10m"]);
    let before = failures(&daemon);
    assert_eq!(before.as_array().map(Vec::len), usize::try_from(counted).ok(), "{before}");
    let timed = |daemon: &Daemon| {
        let job = &daemon.json(&["jobs"])[0];
        assert!(job["duration_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{job}");
        (job["duration_seconds"].clone(), job["last_timed_at"].clone())
    };
    let durations = timed(&daemon);
    // The counts and the ended tasks are those of the history.
    daemon.kill();
    daemon.launch();
    assert_eq!(failed(&daemon), counted);
    assert_eq!(timed(&daemon), durations);
    assert_eq!(daemon.json(&["history", "--job", "ends"]), history);
    assert_eq!(failures(&daemon), before);
}

/// Linux 6.15 and later.
pub fn pidfds_keep_status() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 15)
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_task_that_goes_on_without_its_main_process_says_how_that_ended_also_after_a_restart() {
    let mut daemon = Daemon::start("left", "[slots]\nactive = 1\npassive = 1\n");
    let pid = daemon.run(&["--name", "left"], &["sh", "-c", "sleep 60 & exit 4"]);
    let ended = |daemon: &Daemon| {
        let task = daemon.tasks().into_iter().find(|task| task["pid"] == pid)?;
        (task["main_exited"] == true && task["exit_status"] == 4).then_some(task)
    };
    let task = daemon.eventually("the end of its main process", ended);
    assert_eq!(task["exit_signal"], Value::Null);
    let text = daemon.ok(&["task", "left"]);
    assert!(text.contains("exited with status 4"), "{text}");
    daemon.kill();
    daemon.launch();
    daemon.eventually("the same after a restart", ended);
}

#[test]
#[ignore = "needs root and cgroups"]
fn an_end_while_no_daemon_runs_is_right_or_not_known() {
    let mut daemon = Daemon::start("away", "[slots]\nactive = 2\npassive = 1\n");
    // The parent of the one waits for it, that of the other does not.
    let zombie = daemon.run(&["--name", "zombie"], &["sh", "-c", "read line || exit 6"]);
    let reaped = daemon.run(&["--name", "reaped"], &["sh", "-c", "read line || exit 6"]);
    let ids = [zombie, reaped].map(|pid| daemon.task_of(pid)["id"].clone());
    daemon.kill();
    daemon.finish(zombie);
    daemon.finish(reaped);
    assert_eq!(daemon.join(reaped).code(), Some(6));
    daemon.launch();
    daemon.nothing_left();
    for id in &ids {
        let events = daemon.events();
        let of_task = |kind: &str| {
            events.iter().filter(|event| event["task"] == *id && event["type"] == kind).count()
        };
        assert_eq!(of_task("completed"), 1);
        assert!(of_task("exit") <= 1);
        for exit in events.iter().filter(|event| event["task"] == *id && event["type"] == "exit") {
            assert_eq!(exit["inputs"]["exit_status"], 6, "{exit}");
        }
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_status_of_0_counts_only_where_lrsd_may_read_it() {
    // Without the right to trace, field 52 is 0 for processes of other users.
    let mut daemon = Daemon::new("untraced", "[slots]\nactive = 2\npassive = 1\n");
    let drop_ptrace = "exec setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace \"$@\"";
    daemon.wrapper = ["sh", "-c", drop_ptrace, "sh"].map(str::to_owned).into();
    daemon.launch();
    for (name, status) in [("well", 0), ("badly", 3)] {
        let script = format!("read line || exit {status}");
        let child = std::process::Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .uid(65534)
            .spawn()
            .unwrap();
        let pid = daemon.keep(child);
        daemon.ok(&["admit", "--name", name, &pid.to_string()]);
        daemon.finish(pid);
        daemon.eventually("its end", |daemon| daemon.tasks().is_empty().then_some(()));
        let exit_event = |daemon: &Daemon| {
            let named = |event: &Value| event["inputs"]["name"] == name;
            daemon.events().into_iter().find(|event| event["type"] == "exit" && named(event))
        };
        match (status, exit_event(&daemon)) {
            (0, exit) => assert_eq!(exit, None, "the 0 that the zombie shows may mean anything"),
            (_, Some(exit)) => assert_eq!(exit["inputs"]["exit_status"], status, "{exit}"),
            (_, None) => {}
        }
        daemon.join(pid);
        if pidfds_keep_status() {
            let exit = exit_of(&daemon, name);
            assert_eq!(exit["inputs"]["exit_status"], status, "{exit}");
        }
    }
}
