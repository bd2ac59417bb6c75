//! The history over restarts and boots, and on disks that are damaged, full or frozen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::Daemon;

/// One that keeps its past in `dir`, with short cycles.
fn keeping(name: &str, dir: &Path) -> Daemon {
    Daemon::start(name, &format!("daemon.sample_period = \"100ms\"\nhistory.directory = {dir:?}\n"))
}

/// Runs a task of the job `nightly` that fails, until it has ended. It is reaped only then: before Linux 6.15
/// the kernel does not say afterwards how a process ended.
fn run_what_fails(daemon: &mut Daemon) {
    let pid = daemon.run(&["--job", "nightly"], &["sh", "-c", "read x; exit 3"]);
    daemon.task_of(pid);
    daemon.finish(pid);
    daemon.eventually("the end", |daemon| daemon.tasks().is_empty().then_some(()));
    daemon.join(pid);
}

/// The same, until its end is in the history.
fn fail_once(daemon: &mut Daemon, before: usize) {
    run_what_fails(daemon);
    daemon.eventually("the end in the history", |daemon| {
        (failed(daemon).len() > before).then_some(())
    });
}

fn list(daemon: &Daemon, arguments: &[&str]) -> Vec<Value> {
    let json = daemon.json(&[&["history"], arguments].concat());
    json.as_array().unwrap().clone()
}

fn failed(daemon: &Daemon) -> Vec<Value> {
    list(daemon, &["--failed", "--since", "1h"])
}

fn cycles(daemon: &Daemon) -> usize {
    list(daemon, &["--node"]).len()
}

fn lost(daemon: &Daemon) -> Option<u64> {
    daemon.status()["daemon"]["history_lost"].as_u64()
}

fn warning(daemon: &Daemon) -> Option<String> {
    let status = daemon.status();
    let mut warnings = status["warnings"].as_array().unwrap().iter().filter_map(Value::as_str);
    warnings.find(|warning| warning.contains("history.directory")).map(str::to_owned)
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_past_is_there_after_a_kill_a_boot_and_damage() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("history");
    let mut daemon = keeping("past", &dir);
    fail_once(&mut daemon, 0);
    daemon.eventually("cycles", |daemon| (cycles(daemon) >= 20).then_some(()));
    assert_eq!((lost(&daemon), warning(&daemon)), (Some(0), None));
    let before = failed(&daemon);
    assert_eq!(
        (before[0]["job"].as_str(), &before[0]["exit_status"]),
        (Some("nightly"), &3.into())
    );
    let jobs = daemon.json(&["jobs", "--since", "1h"]);
    assert_eq!((&jobs[0]["job"], &jobs[0]["failed"]), (&"nightly".into(), &1.into()));
    assert!(daemon.ok(&["plot", "-o", "-", "--since", "10m"]).starts_with("<svg"));
    daemon.kill();
    daemon.launch();
    assert_eq!(failed(&daemon), before, "once, of the records and the disk");
    // A boot: what is in memory is gone.
    daemon.stop();
    fs::remove_dir_all(daemon.runtime().join("state")).unwrap();
    daemon.launch();
    assert_eq!(failed(&daemon), before);
    assert_eq!(list(&daemon, &["--until", "1m"]).len(), 0);
    let seen = cycles(&daemon);
    assert!(seen >= 20, "{seen}");
    daemon.stop();
    for kind in ["cycles", "tasks"] {
        let path = dir.join(format!("{kind}-1"));
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xFF;
        bytes.truncate(bytes.len() - usize::from(kind == "cycles"));
        fs::write(&path, bytes).unwrap();
    }
    daemon.launch();
    assert_eq!(failed(&daemon).len(), 0, "it was the only one");
    assert!(cycles(&daemon) >= seen - 2);
    daemon.eventually("a word", |daemon| {
        (daemon.log().matches(" are damaged, or of a node").count() == 2).then_some(())
    });
    fail_once(&mut daemon, 0);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_private_daemon_keeps_no_past_unless_one_is_configured() {
    let daemon = Daemon::start("no-past", "daemon.sample_period = \"100ms\"\n");
    assert_eq!((lost(&daemon), cycles(&daemon)), (None, 0));
    let config = daemon.json(&["config", "show"]);
    assert_eq!(config["history"]["directory"], "");
}

/// A small file system of its own, gone with this.
struct Disk {
    mounted: tempfile::TempDir,
    image: tempfile::NamedTempFile,
}

fn done(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

impl Disk {
    fn new() -> Disk {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(8 << 20).unwrap();
        let disk = Disk { mounted: tempfile::tempdir().unwrap(), image };
        let image = disk.image.path().to_str().unwrap();
        done("mkfs.ext4", &["-q", "-m", "0", image]);
        done("mount", &["-o", "loop", image, disk.path()]);
        disk
    }

    fn path(&self) -> &str {
        self.mounted.path().to_str().unwrap()
    }

    fn dir(&self) -> PathBuf {
        self.mounted.path().join("history")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Thawed it answers that it is not frozen.
        let _ = Command::new("fsfreeze").args(["-u", self.path()]).output();
        let _ = Command::new("umount").args(["-l", self.path()]).status();
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_full_disk_is_warned_of_and_costs_no_end() {
    let disk = Disk::new();
    let mut daemon = keeping("full-disk", &disk.dir());
    daemon.eventually("a cycle", |daemon| (cycles(daemon) > 0).then_some(()));
    let filler = disk.mounted.path().join("filler");
    let mut source = fs::File::open("/dev/zero").unwrap();
    // Until there is no room.
    std::io::copy(&mut source, &mut fs::File::create(&filler).unwrap()).unwrap_err();
    let warned = daemon.eventually("a warning", warning);
    assert!(warned.contains("No space left"), "{warned}");
    fail_once(&mut daemon, 0);
    assert!(lost(&daemon).unwrap() > 0, "cycles");
    fs::remove_file(&filler).unwrap();
    daemon.eventually("room", |daemon| warning(daemon).is_none().then_some(()));
    daemon.stop();
    fs::remove_dir_all(daemon.runtime().join("state")).unwrap();
    daemon.launch();
    assert_eq!(failed(&daemon).len(), 1, "it waited in memory");
    assert!(!daemon.log().contains("are damaged"), "{}", daemon.log());
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_frozen_disk_is_not_waited_for() {
    let disk = Disk::new();
    let mut daemon = keeping("frozen-disk", &disk.dir());
    daemon.eventually("a cycle", |daemon| (cycles(daemon) > 0).then_some(()));
    done("fsfreeze", &["-f", disk.path()]);
    // More cycles than the queue holds: the loop goes on, and counts them.
    daemon.eventually("losses", |daemon| lost(daemon).filter(|lost| *lost > 3));
    run_what_fails(&mut daemon);
    daemon.refused(&["history"], 3, "does not answer");
    done("fsfreeze", &["-u", disk.path()]);
    daemon.eventually("the end that waited", |daemon| (failed(daemon).len() == 1).then_some(()));
    assert_eq!(daemon.stop().0, Some(0));
}
