//! A runtime directory or a cgroup root in a bad way. No task is lost for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lrs::state::checksum::{self, Checked};

use crate::harness::{Daemon, groups_below, procs};
use crate::member::{STRANGER, with_members};

const TWO: &str = "[slots]\nactive = 2\npassive = 2\nexpand = false\n";
const QUICK: &str = "daemon.sample_period = \"100ms\"\n";

fn journals(daemon: &Daemon) -> Vec<PathBuf> {
    let entries = fs::read_dir(daemon.runtime().join("state")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().contains("journal-")).collect()
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_lost_history_is_reported_and_loses_no_task() {
    let mut daemon = Daemon::start("history", TWO);
    let pids: Vec<i32> = (0..3).map(|_| daemon.run(&["--name", "precious"], &["cat"])).collect();
    daemon.eventually("three tasks", |daemon| (daemon.tasks().len() == 3).then_some(()));
    let before = daemon.tasks();
    for damage in [Some("garbage"), Some(""), Some("{\"journal\":1}\n{}\n\0\0\0"), None] {
        daemon.kill();
        for journal in journals(&daemon) {
            match damage {
                Some(text) => fs::write(&journal, text).unwrap(),
                None => fs::remove_file(&journal).unwrap(),
            }
        }
        daemon.launch();
        let after = daemon.tasks();
        assert_eq!(after.len(), 3, "after {damage:?}");
        for (task, old) in after.iter().zip(&before) {
            for field in ["id", "pid", "name", "tier", "priority", "cgroup", "admitted_at"] {
                assert_eq!(task[field], old[field], "{field} after {damage:?}");
            }
        }
        daemon.consistent();
        let recovered = daemon.events().iter().any(|event| event["type"] == "recovered");
        assert_eq!(recovered, damage.is_some(), "after {damage:?}");
    }
    for pid in pids {
        daemon.finish(pid);
        daemon.join(pid);
    }
    daemon.nothing_left();
    assert_eq!(daemon.status()["totals"]["completed"], 3);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_group_that_cannot_be_looked_at_ends_no_task() {
    let mut daemon = Daemon::start("unseen", TWO);
    let pid = daemon.run(&[], &["cat"]);
    let task = daemon.eventually("a task", |daemon| daemon.tasks().pop());
    daemon.kill();
    let file = format!("state/task-{}.json", task["id"].as_str().unwrap());
    let file = daemon.runtime().join(file);
    let kept = fs::read_to_string(&file).unwrap();
    let Checked::Fits(text) = checksum::check(kept.as_bytes()) else { panic!("{kept}") };
    let mut record: serde_json::Value = serde_json::from_slice(&text).unwrap();
    record["record"]["group"]["attachment"] = "in_place".into();
    // ENAMETOOLONG: the kernel does not say whether there is such a group.
    record["record"]["group"]["path"] = format!("/{}", "x".repeat(5000)).into();
    fs::write(&file, checksum::add(record.to_string().into_bytes())).unwrap();
    daemon.launch();
    assert_eq!(daemon.tasks().len(), 1);
    daemon.kill();
    fs::write(&file, kept).unwrap();
    daemon.launch();
    assert_eq!(daemon.tasks()[0]["cgroup"], task["cgroup"]);
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
    assert_eq!(daemon.status()["totals"]["completed"], 1);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_corrupt_reservation_is_set_aside_and_foreign_files_stay() {
    let mut daemon = Daemon::start("aside", TWO);
    let rid = daemon.ok(&["reserve", "--ttl", "1h"]);
    let kept = daemon.ok(&["reserve", "--ttl", "1h"]);
    daemon.kill();
    let state = daemon.runtime().join("state");
    let file = state.join(format!("reservation-{}.json", rid.trim()));
    fs::write(&file, "{\"version\":1}").unwrap();
    fs::write(state.join("task-note.json"), "not ours").unwrap();
    fs::create_dir(state.join("task-t0000001-1.json")).unwrap();
    fs::write(daemon.runtime().join("note"), "not ours").unwrap();
    daemon.launch();
    assert_eq!(daemon.status()["slots"]["active"]["reserved"], 1);
    assert!(file.with_extension("json.damaged").exists());
    assert!(daemon.runtime().join("note").exists());
    assert!(daemon.events().iter().any(|event| event["type"] == "recovered"));
    daemon.ok(&["run", "--reservation", kept.trim(), "--", "true"]);
    daemon.nothing_left();
}

fn warned(daemon: &Daemon, words: &str) -> bool {
    let status = daemon.status();
    let warnings = status["warnings"].as_array().unwrap();
    warnings.iter().any(|warning| warning.as_str().unwrap().contains(words))
}

#[test]
#[ignore = "needs root and cgroups"]
fn flipped_bits_are_seen_and_lose_no_task() {
    let mut daemon = Daemon::start("flips", &format!("{QUICK}{TWO}"));
    let pid = daemon.run(&["--name", "precious", "--group", "etl"], &["cat"]);
    let before = daemon.task_of(pid);
    let id = before["id"].as_str().unwrap().to_owned();
    let record = daemon.runtime().join("state").join(format!("task-{id}.json"));
    let rid = daemon.ok(&["reserve", "--ttl", "1h"]);
    let reservation = daemon.runtime().join(format!("state/reservation-{}.json", rid.trim()));
    for flip in 0..12_usize {
        daemon.kill();
        let journal = journals(&daemon).into_iter().max().unwrap();
        let file = [&record, &journal, &reservation][flip % 3];
        let Ok(mut bytes) = fs::read(file) else {
            // A reservation is gone with its record, and only once.
            assert!(flip > 2 && file == &reservation);
            daemon.launch();
            continue;
        };
        let bit = (flip + 1) * bytes.len() * 8 / 13;
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(file, &bytes).unwrap();
        let mut aside = file.clone().into_os_string();
        aside.push(".damaged");
        daemon.launch();
        assert_eq!(fs::read(&aside).unwrap(), bytes, "it is kept");
        assert!(warned(&daemon, Path::new(&aside).to_str().unwrap()), "{flip}: {file:?}");
        let after = daemon.tasks().pop().unwrap();
        for field in ["id", "tier", "cgroup", "uid"] {
            assert_eq!(after[field], before[field], "{field} after {flip}: {file:?}");
        }
        daemon.consistent();
        fs::remove_file(&aside).unwrap();
        daemon.eventually("no warning", |daemon| (!warned(daemon, ".damaged")).then_some(()));
    }
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn what_was_planted_is_refused_with_the_remedy() {
    let mut daemon = Daemon::new("planted", TWO);
    let (run, config) = (daemon.runtime(), daemon.config());
    let victim = daemon.dir.path().join("victim");
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    fs::write(&victim, "precious").unwrap();
    chmod(&victim, 0o600);
    let give = |path: &Path, uid| std::os::unix::fs::lchown(path, Some(uid), None).unwrap();
    let mut refused = |code, words: &[&str]| {
        let seen = daemon.log().len();
        daemon.spawn();
        assert_eq!(daemon.wait_exit(), Some(code));
        let log = daemon.log()[seen..].to_owned();
        for word in words {
            assert!(log.contains(word), "{word:?} is not in {log}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    };
    fs::create_dir(&run).unwrap();
    chmod(&run, 0o777);
    refused(1, &["others than its owner may write it (mode 777)", "chmod go-w"]);
    chmod(&run, 0o755);
    give(&run, STRANGER);
    refused(1, &["belongs to uid 65534", "chown root"]);
    give(&run, 0);
    std::os::unix::fs::symlink(&victim, run.join("lock")).unwrap();
    refused(1, &["run/lock", "is a symbolic link", "remove it"]);
    fs::remove_file(run.join("lock")).unwrap();
    fs::hard_link(&victim, run.join("lock")).unwrap();
    refused(1, &["run/lock", "has 2 names", "remove it"]);
    fs::remove_file(run.join("lock")).unwrap();
    std::os::unix::fs::symlink("elsewhere", run.join("state")).unwrap();
    refused(1, &["run/state", "symbolic link"]);
    fs::remove_file(run.join("state")).unwrap();
    chmod(&config, 0o666);
    refused(78, &["lrs.toml", "mode 666", "chmod go-w"]);
    chmod(&config, 0o644);
    give(&config, STRANGER);
    refused(78, &["lrs.toml", "belongs to uid 65534"]);
    give(&config, 0);
    // A link of root's is none of it.
    fs::rename(&config, daemon.dir.path().join("real.toml")).unwrap();
    std::os::unix::fs::symlink("real.toml", &config).unwrap();
    daemon.launch();
    chmod(&daemon.dir.path().join("real.toml"), 0o666);
    daemon.refused(&["reload"], 1, "the old settings stay");
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
#[ignore = "needs root and cgroups"]
fn no_other_user_can_hold_the_lock_and_keep_lrsd_down() {
    let mut daemon = with_members("heldlock", TWO);
    let lock = daemon.runtime().join("lock");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(daemon.dir.path(), open).unwrap();
    let hold = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["flock", "--shared", "--nonblock"])
        .arg(&lock)
        .arg("true")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&hold.stderr);
    assert!(!hold.status.success() && stderr.contains("Permission denied"), "{stderr}");
    assert_eq!(daemon.stop().0, Some(0));
    fs::set_permissions(&lock, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    daemon.launch();
    assert!(daemon.log().contains("had mode 644"), "{}", daemon.log());
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_removed_socket_is_put_back() {
    let mut daemon = Daemon::start("socket", TWO);
    let pid = daemon.run(&[], &["cat"]);
    daemon.task_of(pid);
    for _ in 0..2 {
        fs::remove_file(daemon.socket()).unwrap();
        daemon.serving(|daemon| daemon.ctl(&["status"]).status.success().then_some(()));
    }
    assert!(daemon.log().contains("was removed; it is there again"), "{}", daemon.log());
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
    assert_eq!(daemon.stop().0, Some(0));
    assert!(!daemon.socket().exists());
}

/// A small tmpfs over the runtime directory, gone with this.
struct Small(PathBuf);

impl Small {
    fn mount(dir: &Path) -> Small {
        fs::create_dir_all(dir).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs"])
            .arg(dir)
            .status()
            .unwrap();
        assert!(done.success(), "cannot mount a tmpfs");
        Small(dir.to_owned())
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("fill")).unwrap();
        while std::io::Write::write(&mut file, &[0; 512]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("fill")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_full_disk_refuses_newcomers_and_harms_no_task() {
    let mut daemon = Daemon::new("full", &format!("{QUICK}{TWO}"));
    let disk = Small::mount(&daemon.runtime());
    daemon.launch();
    let first = daemon.run(&[], &["cat"]);
    let first_task = daemon.task_of(first);
    let id = first_task["id"].as_str().unwrap();
    let outsider = daemon.process(&["cat"]);
    disk.fill();
    for _ in 0..3 {
        daemon.refused(&["admit", &outsider.to_string()], 1, "No space left on device");
        daemon.refused(&["reserve"], 1, "No space left on device");
        let status = daemon.status();
        let warned = status["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|warning| warning.as_str().unwrap().contains("state is not being stored"));
        assert!(warned, "the warning stays as long as the trouble: {status}");
    }
    assert_eq!(daemon.task_of(first)["tier"], "active");
    assert_eq!(daemon.status()["slots"]["active"]["free"], 1);
    daemon.ok(&["priority", id, "7"]);
    // Ends and promotions need no room; enough events to tear a line of the history.
    for _ in 0..40 {
        daemon.ok(&["drain"]);
        daemon.ok(&["resume"]);
    }
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.tasks().len(), 1, "it starts, and the task is there");
    daemon.ok(&["resume"]);
    daemon.ok(&["priority", id, "7"]);
    disk.empty();
    daemon.eventually("recovery", |daemon| {
        let warnings = daemon.status()["warnings"].to_string();
        (!warnings.contains("not being stored")).then_some(())
    });
    // What could not be stored then is stored now.
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.tasks()[0]["priority"], 7);
    daemon.ok(&["admit", &outsider.to_string()]);
    for pid in [first, outsider] {
        daemon.finish(pid);
        daemon.join(pid);
    }
    daemon.nothing_left();
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
#[ignore = "needs root and cgroups"]
fn an_unwritable_runtime_directory_is_an_error_that_names_it() {
    let mut daemon = Daemon::new("readonly", TWO);
    let disk = Small::mount(&daemon.runtime());
    let done = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status().unwrap();
    assert!(done.success());
    daemon.spawn();
    assert_eq!(daemon.wait_exit(), Some(1));
    let log = daemon.log();
    assert!(log.contains("Read-only file system") && log.contains("is writable"), "{log}");
    assert!(daemon.root_dirs().is_empty());
}

/// Lets the daemon see cgroupfs read-only.
const READ_ONLY: &str = "for m in $(while read -r _ dir kind _; do \
     case $kind in cgroup|cgroup2) echo $dir;; esac; done </proc/self/mounts); do \
     mount -o remount,bind,ro $m || exit 99; done; exec \"$@\"";

#[test]
#[ignore = "needs root and cgroups"]
fn a_read_only_cgroup_tree_is_refused_with_the_remedy() {
    for there_before in [false, true] {
        let mut daemon = Daemon::new("rocgroup", TWO);
        if there_before {
            // A first daemon leaves its root behind when it is killed.
            daemon.launch();
            daemon.kill();
        }
        daemon.wrapper =
            ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh"].map(str::to_owned).to_vec();
        daemon.spawn();
        assert_eq!(daemon.wait_exit(), Some(1), "{}", daemon.log());
        let log = daemon.log();
        assert!(log.contains("remount it writable"), "{log}");
        assert!(log.contains("observe"), "{log}");
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn foreign_groups_below_the_root_are_left_alone() {
    let mut daemon = Daemon::start("foreign", TWO);
    let base = daemon.cpu_dir(&serde_json::json!({"cgroup": format!("/{}", daemon.root)}));
    let other = base.join("other");
    fs::create_dir(&other).unwrap();
    let pid = daemon.process(&["cat"]);
    fs::write(other.join("cgroup.procs"), pid.to_string()).unwrap();
    daemon.refused(&["admit", &pid.to_string()], 1, "below the LRS root");
    daemon.refused(&["admit", "--in-place", &pid.to_string()], 1, "below the LRS root");
    daemon.kill();
    daemon.launch();
    assert!(daemon.tasks().is_empty());
    daemon.ok(&["run", "--", "true"]);
    assert_eq!(daemon.stop().0, Some(0));
    assert_eq!(procs(&other), [pid], "no process was moved, nothing removed");
    daemon.launch();
    daemon.finish(pid);
    daemon.join(pid);
    fs::remove_dir(&other).or_else(|_| fs::remove_dir(&other)).unwrap();
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_root_removed_under_the_daemon_is_made_anew() {
    let daemon = Daemon::start("removed", TWO);
    for root in daemon.root_dirs() {
        for dir in groups_below(&root) {
            fs::remove_dir(dir).unwrap();
        }
    }
    daemon.ok(&["run", "--", "true"]);
    daemon.consistent();
    daemon.nothing_left();
}
