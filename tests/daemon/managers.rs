//! What another manager holds stays in its hands: processes in groups like those of Slurm, docker,
//! kubelet, HTCondor and Nomad, on the real kernel.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use lrs_testbed::groups::remove_groups;
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, groups_below, signal};
use crate::member::{MEMBER, stranger, with_members};

const SETTINGS: &str = "daemon.sample_period = \"100ms\"\n\
                        [slots]\nactive = 1\npassive = 7\nexpand = false\n";

/// A group of another manager in every hierarchy LRS moves processes in, or in some of them.
struct Managed {
    /// The topmost group of each hierarchy, removed at the end.
    tops: Vec<PathBuf>,
    /// The groups for processes: below those, and elsewhere the root, wherever the test itself runs.
    dirs: Vec<PathBuf>,
}

impl Managed {
    /// `path` below a group of this test's own, where `wanted` says of a mount.
    fn new(daemon: &Daemon, path: &str, wanted: impl Fn(&str) -> bool) -> Managed {
        let mounts =
            daemon.root_dirs().into_iter().filter_map(|dir| Some(dir.parent()?.to_owned()));
        let is_wanted = |mount: &PathBuf| wanted(&mount.file_name().unwrap().to_string_lossy());
        let (held, free): (Vec<PathBuf>, Vec<PathBuf>) = mounts.partition(is_wanted);
        let name = format!("{}-manager", daemon.root);
        let tops: Vec<PathBuf> = held.iter().map(|mount| mount.join(&name)).collect();
        let dirs = tops.iter().map(|top| top.join(path)).chain(free).collect::<Vec<_>>();
        for dir in &dirs {
            fs::create_dir_all(dir).expect("a cgroup");
        }
        // On v2 a group has a weight where the one above gives it the controller.
        for top in &tops {
            for group in groups_below(top).iter().rev().filter(|group| !dirs.contains(group)) {
                let _ = fs::write(group.join("cgroup.subtree_control"), "+cpu");
            }
        }
        Managed { tops, dirs }
    }

    fn everywhere(daemon: &Daemon, path: &str) -> Managed {
        Managed::new(daemon, path, |_| true)
    }

    fn take(&self, pid: u32) {
        for dir in &self.dirs {
            fs::write(dir.join("cgroup.procs"), pid.to_string()).expect("a move");
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        for top in &self.tops {
            if let Err(stays) = remove_groups(top) {
                eprintln!("left behind: {stays}");
            }
        }
    }
}

fn groups_of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a running process")
}

fn is_v1(daemon: &Daemon) -> bool {
    daemon.status()["cgroup"]["version"] == 1
}

/// `lrsctl run` with `options` as a job of the manager's: a shell enters its groups first, and execs
/// it, or stays beside it.
fn run_in(daemon: &mut Daemon, managed: &Managed, alone: bool, options: &str) -> i32 {
    let enter: String = managed
        .dirs
        .iter()
        .map(|dir| format!("echo $$ >{}/cgroup.procs; ", dir.display()))
        .collect();
    let run = format!("{} run {options} -- cat", env!("CARGO_BIN_EXE_lrsctl"));
    let script =
        if alone { format!("{enter}exec {run}") } else { format!("{enter}{run}; exit $?") };
    let child = Command::new("sh")
        .args(["-c", &script])
        .env("LRS_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("sh");
    daemon.keep(child)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn task(daemon: &Daemon, name: &str) -> Value {
    daemon.eventually(name, |daemon| daemon.tasks().into_iter().find(|task| task["name"] == name))
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_run_in_the_group_of_another_manager_stays_there() {
    let mut daemon = Daemon::start("managers", SETTINGS);
    for path in [
        "uid_0/job_1/step_batch/user/task_0",
        "docker/0123456789ab",
        "kubepods/burstable/pod1/container",
        "htcondor/condor_execute_slot1",
        "nomad.slice/share.slice/a.web.scope",
    ] {
        let managed = Managed::everywhere(&daemon, path);
        let pid = run_in(&mut daemon, &managed, true, "--name alone");
        let alone = task(&daemon, "alone");
        assert_eq!(alone["attachment"], "in_place", "{path}: {alone}");
        assert!(alone["stays_because"].as_str().unwrap().contains("would not find it"), "{alone}");
        let groups = groups_of(pid);
        assert!(!groups.contains(&format!("/{}/", daemon.root)), "{path}: {groups}");
        signal(pid, Signal::KILL);
        daemon.join(pid);
        daemon.nothing_left();
        assert!(managed.dirs.iter().all(|dir| dir.is_dir()), "the manager's groups are its own");
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn what_shares_the_group_of_another_manager_is_refused_and_stays() {
    let mut daemon = with_members("managed", SETTINGS);
    let managed = Managed::everywhere(&daemon, "docker/0123456789ab");
    let pids = [daemon.process(&["cat"]), daemon.process(&["cat"])];
    for pid in pids {
        managed.take(pid.unsigned_abs());
    }
    let before = groups_of(pids[0]);
    daemon.refused(&["admit", &pids[0].to_string()], 1, "docker");
    daemon.refused(&["admit", &pids[0].to_string()], 1, "--leave-unit");
    let shell = run_in(&mut daemon, &managed, false, "");
    assert_eq!(daemon.join(shell).code(), Some(125), "{}", daemon.log());
    assert_eq!(groups_of(pids[0]), before);
    assert!(daemon.tasks().is_empty());

    // The override is an administrator's.
    let member = ["admit", "--leave-unit", &pids[0].to_string()];
    let output = stranger(&daemon, MEMBER, &member).output().expect("lrsctl");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_eq!(groups_of(pids[0]), before);
    daemon.ok(&["admit", "--leave-unit", &pids[0].to_string()]);
    assert!(groups_of(pids[0]).contains(&daemon.root));
    let id = daemon.task_of(pids[0])["id"].as_str().unwrap().to_owned();
    daemon.ok(&["release", &id]);
    assert_eq!(groups_of(pids[0]), before, "it goes back to its manager");
    for pid in pids {
        signal(pid, Signal::KILL);
    }
    daemon.nothing_left();
}

/// Slurm with proctrack/cgroup on v1: the freezer is its, the weights are free.
#[test]
#[ignore = "needs root and cgroups"]
fn on_v1_a_process_held_in_the_freezer_is_moved_where_the_weights_are_alone() {
    let mut daemon = Daemon::start("freezer", SETTINGS);
    if !is_v1(&daemon) {
        // One hierarchy has both: the tests above.
        return;
    }
    let managed = Managed::new(&daemon, "uid_0/job_1/step_batch", |mount| mount == "freezer");
    let pid = run_in(&mut daemon, &managed, false, "--name held");
    let held = task(&daemon, "held");
    assert_eq!(held["attachment"], "own", "{held}");
    let main = held["pid"].as_i64().unwrap() as i32;
    let line = |controller: &str| {
        let groups = groups_of(main);
        let of = |line: &&str| line.split(':').nth(1).unwrap().split(',').any(|c| c == controller);
        groups.lines().find(of).unwrap().to_owned()
    };
    assert!(line("freezer").ends_with("/uid_0/job_1/step_batch"), "{}", groups_of(main));
    assert!(line("cpu").contains(&daemon.root));
    // A cycle sees nothing to put right, nor does the next daemon.
    for again in [false, true] {
        if again {
            daemon.kill();
            daemon.launch();
        }
        let sampled = |daemon: &Daemon| daemon.status()["node"]["sampled_at"].clone();
        for _ in 0..3 {
            let before = sampled(&daemon);
            daemon.eventually("a cycle", |daemon| (sampled(daemon) != before).then_some(()));
        }
        let drifts: Vec<Value> =
            daemon.events().into_iter().filter(|event| event["type"] == "drift").collect();
        assert!(drifts.is_empty(), "{drifts:?}");
        assert!(line("freezer").ends_with("/uid_0/job_1/step_batch"));
    }
    daemon.ok(&["release", held["id"].as_str().unwrap()]);
    assert!(line("cpu").ends_with(":/"), "{}", groups_of(main));
    signal(main, Signal::KILL);
    daemon.join(pid);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_rule_leaves_alone_what_another_manager_holds_and_says_so() {
    let rule = "[[discover]]\nname = \"own\"\ncommand = '^cat --lrs-managed'\nattach = \"own\"\nuser = 0\n";
    let mut daemon = Daemon::start("rule", &format!("{SETTINGS}{rule}"));
    let managed = Managed::everywhere(&daemon, "slurm/uid_0/job_7");
    let pid = daemon.process(&["bash", "-c", "read _; exec -a 'cat --lrs-managed' sleep 600"]);
    managed.take(pid.unsigned_abs());
    let before = groups_of(pid);
    daemon.finish(pid);
    daemon.eventually("it is reported", |daemon| {
        let log = daemon.log();
        (log.contains("is not taken as a task") && log.contains("slurm")).then_some(())
    });
    assert!(daemon.tasks().is_empty());
    assert_eq!(groups_of(pid), before);
    signal(pid, Signal::KILL);
    daemon.nothing_left();
}

/// As in a Slurm job: the rule that takes its group in place makes one task of it, and what runs in it
/// uses its slot, also before the job was found.
#[test]
#[ignore = "needs root and cgroups"]
fn a_run_in_a_job_uses_the_slot_of_the_job_and_each_goes_one_by_one() {
    let rule = "[[discover]]\nname = \"jobs\"\ncgroup = '/lrs-test-.*/job_(?<id>[0-9]+)'\n\
                id = \"job-${id}\"\nattach = \"in_place\"\n";
    // A cycle of a minute: only a pass on request finds the job in time.
    let settings = SETTINGS.replace("100ms", "60s");
    let daemon = Daemon::start("job", &format!("{settings}{rule}"));
    let managed = Managed::everywhere(&daemon, "uid_0/job_1/step_batch");
    let count = daemon.dir.path().join("count");
    let line = format!(
        "n=$(ls {dir} | wc -l); touch {dir}/$$; echo $n >>{count}; sleep 0.1; rm {dir}/$$",
        dir = daemon.dir.path().join("now").display(),
        count = count.display(),
    );
    fs::create_dir(daemon.dir.path().join("now")).unwrap();
    let enter: String = managed
        .dirs
        .iter()
        .map(|dir| format!("echo $$ >{}/cgroup.procs; ", dir.display()))
        .collect();
    let lrsctl = env!("CARGO_BIN_EXE_lrsctl");
    let script = format!(
        "{enter}{lrsctl} run --name inner -- true && {lrsctl} run --each 1 2 3 4 -- sh -c '{line}'"
    );
    let status = Command::new("sh")
        .args(["-c", &script])
        .env("LRS_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .status()
        .expect("sh");
    assert!(status.success(), "{}", daemon.log());
    let counts = fs::read_to_string(&count).unwrap();
    assert_eq!(counts, "0\n0\n0\n0\n", "never two at a time");
    let admitted: Vec<Value> =
        daemon.events().into_iter().filter(|event| event["type"] == "admitted").collect();
    assert_eq!(admitted.len(), 1, "{admitted:?}");
    daemon.nothing_left();
}

/// On v1 `systemd-run --scope` makes a group where there is something to set, and goes into the slice's in
/// the hierarchy of the weights.
#[test]
#[ignore = "needs root and cgroups"]
fn on_v1_a_younger_group_in_one_hierarchy_is_enough_to_be_left() {
    let mut daemon = Daemon::start("scope", SETTINGS);
    if !is_v1(&daemon) {
        return;
    }
    let pid = daemon.run(&["--name", "leaves"], &["cat"]);
    let cpu = daemon.cpu_dir(&task(&daemon, "leaves"));
    let top = cpu.ancestors().nth(2).unwrap();
    let in_cpu = |mount: &str| mount.split(',').any(|controller| controller == "cpu");
    let managed = Managed::new(&daemon, "run-1.scope", |mount| !in_cpu(mount));
    managed.take(pid.unsigned_abs());
    fs::write(top.join("cgroup.procs"), pid.to_string()).expect("a move");
    daemon.nothing_left();
    assert!(groups_of(pid).contains("run-1.scope"), "{}", groups_of(pid));
    let left = daemon.events().into_iter().find(|event| event["type"] == "left").unwrap();
    assert!(left["reason"].as_str().unwrap().contains("run-1.scope"), "{left:?}");
    daemon.finish(pid);
    daemon.join(pid);
}

/// What a task puts into a group made after its admission stays there, as `systemd-run --scope` or a
/// rootless container would.
#[test]
#[ignore = "needs root and cgroups"]
fn a_process_that_goes_into_a_younger_group_is_left_there() {
    let mut daemon = Daemon::start("younger", SETTINGS);
    let moved = |daemon: &Daemon, pid: i32, managed: &Managed| {
        managed.take(pid.unsigned_abs());
        daemon.eventually("a pass", |_| groups_of(pid).contains("-manager").then_some(()));
    };
    let events = |daemon: &Daemon, kind: &str| -> Vec<Value> {
        daemon.events().into_iter().filter(|event| event["type"] == kind).collect()
    };

    // The last one, alone in a group with a weight: the task goes on there.
    let pid = daemon.run(&["--name", "follows"], &["cat"]);
    let before = task(&daemon, "follows");
    let managed = Managed::everywhere(&daemon, "run-1.scope");
    moved(&daemon, pid, &managed);
    let after = daemon.eventually("in place", |daemon| {
        let task = daemon.tasks().into_iter().find(|task| task["id"] == before["id"])?;
        (task["attachment"] == "in_place").then_some(task)
    });
    assert!(after["cgroup"].as_str().unwrap().ends_with("/run-1.scope"), "{after}");
    assert_eq!(events(&daemon, "attached").len(), 1);
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.task_of(pid)["id"], before["id"], "also after a restart");
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
    assert_eq!(daemon.status()["totals"]["left"], 0);

    // Beside a foreign process: it is over for LRS.
    let pid = daemon.run(&["--name", "leaves"], &["cat"]);
    task(&daemon, "leaves");
    let managed = Managed::everywhere(&daemon, "run-2.scope");
    let other = daemon.process(&["cat"]);
    managed.take(other.unsigned_abs());
    moved(&daemon, pid, &managed);
    daemon.nothing_left();
    assert!(groups_of(pid).contains("run-2.scope"), "{}", groups_of(pid));
    let left = events(&daemon, "left");
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0]["reason"].as_str().unwrap().contains("run-2.scope"), "{left:?}");
    assert_eq!(daemon.status()["totals"]["left"], 1);
    assert!(daemon.ok(&["history"]).contains("leaves"));
    for pid in [pid, other] {
        daemon.finish(pid);
        daemon.join(pid);
    }

    // The main process alone: what is left is the task.
    let pid = daemon.run(&["--name", "partly"], &["sh", "-c", "sleep 600 & exec cat"]);
    let partly = task(&daemon, "partly");
    let dir = daemon.cpu_dir(&partly);
    daemon.eventually("a child", |_| (crate::harness::procs(&dir).len() == 2).then_some(()));
    let managed = Managed::everywhere(&daemon, "run-3.scope");
    moved(&daemon, pid, &managed);
    daemon.eventually("the rest", |daemon| {
        daemon.task_of(pid)["main_exited"].as_bool().filter(|exited| *exited)
    });
    assert!(groups_of(pid).contains("run-3.scope"));
    let rest = crate::harness::procs(&dir);
    assert_eq!(rest.len(), 1, "{rest:?} beside {pid}");
    signal(rest[0], Signal::KILL);
    daemon.nothing_left();
    daemon.finish(pid);
    daemon.join(pid);
    assert!(events(&daemon, "contested").is_empty());
}
