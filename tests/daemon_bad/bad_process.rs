//! Processes that cannot be tasks, will not be for long, or make it hard.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Daemon, procs, signal};
use crate::member::{MEMBER, OTHER, STRANGER, stranger, with_members};

const TWO: &str = "[slots]\nactive = 2\npassive = 2\nexpand = false\n";
const QUICK: &str = "daemon.sample_period = \"100ms\"\n";

#[test]
#[ignore = "needs root and cgroups"]
fn what_cannot_be_a_task_is_refused_with_the_reason() {
    let mut daemon = Daemon::start("unfit", TWO);
    let lrsd = daemon.pid();
    let admit = |daemon: &Daemon, pid: i32, words: &str| {
        daemon.refused(&["admit", &pid.to_string()], 1, words);
        daemon.refused(&["admit", "--in-place", &pid.to_string()], 1, words);
    };
    admit(&daemon, i32::MAX, "does not exist");
    let ended = daemon.process(&["true"]);
    daemon.join(ended);
    admit(&daemon, ended, "does not exist");
    let zombie = daemon.process(&["true"]);
    daemon.eventually("a zombie", |_| {
        let stat = fs::read_to_string(format!("/proc/{zombie}/stat")).unwrap();
        stat.contains(") Z ").then_some(())
    });
    admit(&daemon, zombie, "has ended");
    admit(&daemon, 1, "init process");
    // kthreadd; a machine with another pid 2 runs this in a container.
    assert_eq!(fs::read_to_string("/proc/2/comm").unwrap(), "kthreadd\n");
    admit(&daemon, 2, "kernel thread");
    admit(&daemon, lrsd, "lrsd itself");
    let thread = fs::read_dir(format!("/proc/{lrsd}/task"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<i32>().ok())
        .find(|tid| *tid != lrsd)
        .unwrap();
    admit(&daemon, thread, "is a thread");
    for usage in ["0", "-1", "2147483648", "pid", ""] {
        daemon.refused(&["admit", "--", usage], 2, "invalid value");
    }
    assert_eq!(daemon.status()["totals"]["admitted"], 0);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_process_that_proc_hides_is_not_reported_as_absent() {
    // An lrsd without rights where /proc shows each user its own processes alone (proc(5)).
    let mut daemon = Daemon::observing("");
    let lrsd = daemon.dir.path().join("lrsd");
    fs::copy(env!("CARGO_BIN_EXE_lrsd"), &lrsd).unwrap();
    std::os::unix::fs::chown(daemon.dir.path(), Some(STRANGER), Some(STRANGER)).unwrap();
    daemon.program = lrsd.display().to_string();
    let id = STRANGER.to_string();
    let hidden = format!(
        "mount -t proc -o hidepid=2 proc /proc && \
         exec setpriv --reuid {id} --regid {id} --clear-groups \"$@\""
    );
    daemon.wrapper = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &hidden, "sh"]
        .map(str::to_owned)
        .into();
    daemon.launch();
    let of_root = daemon.process(&["cat"]).to_string();
    let refused = stranger(&daemon, OTHER, &["admit", &of_root]).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains("hidepid") && !words.contains("does not exist"), "{words}");
    let absent = stranger(&daemon, OTHER, &["admit", &i32::MAX.to_string()]).output().unwrap();
    let words = String::from_utf8_lossy(&absent.stderr);
    assert!(words.contains("does not exist") && !words.contains("hidepid"), "{words}");
}

#[test]
#[ignore = "needs root and cgroups"]
fn members_of_a_task_learn_which() {
    let mut daemon = Daemon::start("member", TWO);
    let main = daemon.run(&[], &["sh", "-c", "exec 3<&0; cat <&3 & wait"]);
    let task = daemon.task_of(main);
    let id = task["id"].as_str().unwrap();
    assert_eq!(daemon.ok(&["admit", &main.to_string()]).trim(), id, "the same caller, again");
    let group = daemon.cpu_dir(&task);
    let child =
        daemon.eventually("a child", |_| procs(&group).into_iter().find(|pid| *pid != main));
    daemon.refused(&["admit", &child.to_string()], 1, id);
    daemon.refused(&["admit", "--in-place", &child.to_string()], 1, id);
    let rid = daemon.ok(&["reserve"]);
    daemon.refused(&["admit", "--reservation", rid.trim(), &child.to_string()], 1, id);
    assert_eq!(daemon.status()["slots"]["active"]["reserved"], 1, "it was not used up");
    // A nested run executes inside the outer slot.
    let nested = format!("{} run -- true && cat", env!("CARGO_BIN_EXE_lrsctl"));
    let outer = daemon.run(&["--reservation", rid.trim()], &["sh", "-c", &nested]);
    let outer_task = daemon.task_of(outer);
    for pid in [main, outer] {
        daemon.finish(pid);
        assert!(daemon.join(pid).success());
    }
    daemon.nothing_left();
    let why = daemon.ok(&["why", outer_task["id"].as_str().unwrap()]);
    assert!(why.contains("admitted") && why.contains("completed"), "{why}");
    daemon.nothing_left();
    assert_eq!(daemon.status()["totals"]["completed"], 2);
}

#[test]
#[ignore = "needs root and cgroups"]
fn others_act_on_their_own_and_only_as_members() {
    let mut daemon = with_members("rights", TWO);
    let roots = daemon.process(&["cat"]);
    let refused = |daemon: &Daemon, groups: &str, arguments: &[&str], words: &str| {
        let output = stranger(daemon, groups, arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let code = if arguments[0] == "run" { 125 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    };
    let (member, other) = (MEMBER, OTHER);
    refused(&daemon, other, &["run", "--", "true"], "usermod -aG lrs");
    refused(&daemon, other, &["reserve"], "may only read");
    refused(&daemon, other, &["admit", &roots.to_string()], "may only read");
    assert!(stranger(&daemon, other, &["status"]).output().unwrap().status.success());
    refused(&daemon, member, &["admit", &roots.to_string()], "belongs to uid 0");
    refused(&daemon, member, &["drain"], "takes root");
    refused(&daemon, member, &["reserve", "--priority", "1"], "up to 0");
    refused(&daemon, member, &["run", "--priority", "1", "--", "true"], "up to 0");
    let rid = daemon.ok(&["reserve"]);
    refused(&daemon, member, &["cancel", rid.trim()], "belongs to uid 0");
    refused(&daemon, member, &["run", "--reservation", rid.trim(), "--", "true"], "uid 0");
    daemon.ok(&["cancel", rid.trim()]);
    let id = daemon.ok(&["admit", &roots.to_string()]);
    refused(&daemon, member, &["release", id.trim()], "belongs to uid 0");
    refused(&daemon, member, &["priority", id.trim(), "-1"], "belongs to uid 0");
    let own = stranger(&daemon, member, &["run", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let own = daemon.keep(own);
    let task = daemon.task_of(own);
    assert_eq!(task["uid"], STRANGER);
    let own_id = task["id"].as_str().unwrap();
    assert!(
        stranger(&daemon, member, &["priority", own_id, "-1"]).output().unwrap().status.success()
    );
    refused(&daemon, member, &["priority", own_id, "1"], "up to 0");
    refused(&daemon, other, &["release", own_id], "may only read");
    assert!(stranger(&daemon, member, &["release", own_id]).output().unwrap().status.success());
    for pid in [own, roots] {
        daemon.finish(pid);
        daemon.join(pid);
    }
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn dying_during_admission_leaves_nothing() {
    let mut daemon = Daemon::start("dying", TWO);
    for round in 0..40 {
        let pid = daemon.process(&["sh", "-c", "cat & cat & wait"]);
        let admit = daemon
            .ctl_command(&["admit", &pid.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Anywhere between before the request and after the answer.
        for _ in 0..round * 50 {
            std::thread::yield_now();
        }
        signal(pid, Signal::KILL);
        let output = admit.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let is_known = ["has ended", "does not exist"].iter().any(|words| text.contains(words));
        assert!(output.status.success() || is_known, "{}: {text}", output.status);
        // The rest of its family reads end of file once the pipe closes.
        daemon.finish(pid);
        daemon.join(pid);
    }
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_process_that_forks_all_the_time_is_moved_whole() {
    let mut daemon = Daemon::start("forks", TWO);
    let script = "exec 3<&0; i=0; while [ $i -lt 200 ]; do i=$((i+1)); (cat <&3) & done; \
                  echo done; wait";
    let mut child = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let pid = daemon.keep(child);
    let id = daemon.ok(&["admit", &pid.to_string()]);
    let task = daemon.task_of(pid);
    assert_eq!(task["id"], id.trim());
    stdout.read_exact(&mut [0; 5]).unwrap();
    let group = daemon.cpu_dir(&task);
    daemon.eventually("all 201 inside", |_| (procs(&group).len() == 201).then_some(()));
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

/// Not a test: the process of the next one.
#[test]
#[ignore = "needs root and cgroups"]
fn forty_threads() {
    if std::env::var_os("LRS_TEST_FORTY_THREADS").is_none() {
        return;
    }
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
    for _ in 0..40 {
        let ended = std::sync::Arc::clone(&ended);
        std::thread::spawn(move || ended.lock().unwrap().recv().is_ok());
    }
    let _ = std::io::stdin().read(&mut [0]);
    drop(end);
}

#[test]
#[ignore = "needs root and cgroups"]
fn forty_threads_move_as_one() {
    let mut daemon = Daemon::start("threads", TWO);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "bad_process::forty_threads"])
        .env("LRS_TEST_FORTY_THREADS", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = daemon.keep(child);
    let threads = |pid| fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    daemon.eventually("forty threads", |_| (threads(pid) > 40).then_some(()));
    daemon.ok(&["admit", &pid.to_string()]);
    let task = daemon.task_of(pid);
    let group = daemon.cpu_dir(&task);
    let path = task["cgroup"].as_str().unwrap();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let groups = fs::read_to_string(thread.unwrap().path().join("cgroup")).unwrap();
        assert!(groups.contains(path), "a thread stayed outside: {groups}");
    }
    assert_eq!(procs(&group), [pid]);
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

/// The mount above the task's group: where another program would move it.
fn elsewhere(daemon: &Daemon, task: &serde_json::Value) -> PathBuf {
    let path = task["cgroup"].as_str().unwrap();
    let depth = path.split('/').filter(|part| !part.is_empty()).count();
    daemon.cpu_dir(task).ancestors().nth(depth).unwrap().join("cgroup.procs")
}

fn drifts(daemon: &Daemon) -> usize {
    daemon.events().iter().filter(|event| event["type"] == "drift").count()
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_process_moved_by_others_is_moved_back_three_times() {
    let mut daemon = Daemon::start("moved", &format!("{QUICK}{TWO}"));
    let pid = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(pid);
    let (group, outside) = (daemon.cpu_dir(&task), elsewhere(&daemon, &task));
    for repair in 1..=3 {
        fs::write(&outside, pid.to_string()).unwrap();
        daemon.eventually("a repair", |daemon| {
            (drifts(daemon) == repair && procs(&group) == [pid]).then_some(())
        });
    }
    fs::write(&outside, pid.to_string()).unwrap();
    daemon.eventually("LRS gives in", |daemon| daemon.tasks().is_empty().then_some(()));
    assert!(daemon.events().iter().any(|event| event["type"] == "contested"));
    assert_eq!(daemon.status()["totals"]["released"], 1);
    daemon.nothing_left();
    daemon.finish(pid);
    assert!(daemon.join(pid).success(), "it was never harmed");
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_main_process_moved_from_its_children_is_noticed() {
    let mut daemon = Daemon::start("parted", &format!("{QUICK}{TWO}"));
    let pid = daemon.run(&[], &["sh", "-c", "exec 3<&0; cat <&3 & wait"]);
    let task = daemon.task_of(pid);
    let (group, outside) = (daemon.cpu_dir(&task), elsewhere(&daemon, &task));
    daemon.eventually("a child", |_| (procs(&group).len() == 2).then_some(()));
    for repair in 1..=3 {
        fs::write(&outside, pid.to_string()).unwrap();
        daemon.eventually("a repair", |daemon| {
            (drifts(daemon) == repair && procs(&group).len() == 2).then_some(())
        });
    }
    fs::write(&outside, pid.to_string()).unwrap();
    daemon.eventually("LRS gives in", |daemon| {
        daemon.tasks().iter().any(|task| task["contested"] == true).then_some(())
    });
    assert_eq!(procs(&group).len(), 1, "the task is what is left in its group");
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_stopped_task_keeps_its_slot_and_takes_part() {
    let mut daemon = Daemon::start("stopped", "[slots]\nactive = 1\npassive = 1\nexpand = false\n");
    let calm = daemon.run(&[], &["cat"]);
    daemon.task_of(calm);
    let pid = daemon.run(&[], &["sh", "-c", "kill -STOP $$; exit 3"]);
    let task = daemon.task_of(pid);
    let id = task["id"].as_str().unwrap();
    daemon.eventually("it stops itself", |_| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") T ").then_some(())
    });
    daemon.ok(&["priority", id, "1"]);
    assert_eq!(daemon.task_of(pid)["tier"], "active");
    signal(pid, Signal::CONT);
    assert_eq!(daemon.join(pid).code(), Some(3));
    daemon.finish(calm);
    daemon.join(calm);
    daemon.nothing_left();
}

/// The group of a process where cgroup2 is mounted.
fn cgroup2_group(pid: i32) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let point = fields.next()?;
        (fields.next()? == "cgroup2").then_some(point)
    })?;
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(mount).join(path))
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_task_may_make_groups_of_its_own() {
    let mut daemon = Daemon::start("subgroups", &format!("{QUICK}{TWO}"));
    let main = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(main);
    let below = daemon.cpu_dir(&task).join("inner");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("cgroup.procs"), main.to_string()).unwrap();
    // In cgroup2 such a group may be threaded, and lists no processes then.
    let unified = cgroup2_group(main);
    let threaded = unified.as_ref().map(|group| group.join("threaded"));
    if let Some(threaded) = &threaded {
        fs::create_dir(threaded).unwrap();
        fs::write(threaded.join("cgroup.type"), "threaded").unwrap();
    }
    let cycles = |daemon: &Daemon| daemon.status()["node"]["sampled_at"].clone();
    for _ in 0..3 {
        let before = cycles(&daemon);
        daemon.eventually("a cycle", |daemon| (cycles(daemon) != before).then_some(()));
        assert_eq!(daemon.status()["warnings"], serde_json::json!([]));
    }
    assert_eq!(procs(&below), [main], "what a task does inside its group is its own");
    assert_eq!(drifts(&daemon), 0);
    daemon.finish(main);
    daemon.join(main);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn hundreds_of_sleeping_tasks_are_admitted_listed_and_ended() {
    // Emulated machines take a minute for a few hundred.
    let count = if std::env::var_os("LRS_TEST_SLOW").is_some() { 100 } else { 600 };
    let mut daemon = Daemon::start("many", "[slots]\nactive = 2\npassive = 4096\n");
    let name = "x".repeat(256);
    let pids: Vec<i32> = (0..count).map(|_| daemon.process(&["cat"])).collect();
    let texts: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let arguments: Vec<&str> = ["admit", "--name", &name, "--job", &name]
        .into_iter()
        .chain(texts.iter().map(String::as_str))
        .collect();
    let ids = daemon.ok(&arguments);
    assert_eq!(ids.lines().count(), count);
    assert_eq!(daemon.tasks().len(), count);
    daemon.consistent();
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.tasks().len(), count);
    for pid in pids {
        daemon.finish(pid);
        assert!(daemon.join(pid).success());
    }
    daemon.nothing_left();
    assert_eq!(daemon.status()["totals"]["completed"], count);
}
