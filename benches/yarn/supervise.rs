//! The measuring process as a child, and what it may leave: daemons, containers, groups, files.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::cluster::group_for;
use crate::harness::groups_below;
use crate::process;

/// Set for the child.
const SUPERVISED: &str = "LRS_BENCH_SUPERVISED";

pub fn is_supervised() -> bool {
    std::env::var_os(SUPERVISED).is_some()
}

/// Runs this program again with a directory for all its files, on the disk of cargo's target
/// directory: what is read and written must not be on a tmpfs, as /tmp often is.
pub fn supervise() -> ExitCode {
    let scratch = tempfile::Builder::new()
        .prefix("lrs-bench-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a directory");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (status, pid) = runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT");
        let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM");
        // The main thread is the parent whose end is the child's end.
        let mut child = Command::new(std::env::current_exe().expect("the path of this benchmark"))
            .args(std::env::args_os().skip(1))
            .env(SUPERVISED, "1")
            .env("TMPDIR", scratch.path())
            .spawn()
            .expect("the benchmark starts");
        loop {
            let tick = tokio::time::sleep(Duration::from_millis(100));
            tokio::select! {
                _ = interrupt.recv() => child.kill().expect("kill"),
                _ = terminate.recv() => child.kill().expect("kill"),
                _ = tick => {}
            }
            if let Some(status) = child.try_wait().expect("wait") {
                break (status, child.id());
            }
        }
    });
    // Everything the child started carries the directory's name.
    process::sweep(scratch.path());
    remove_groups(scratch.path(), pid);
    if status.success() {
        if let Err(error) = scratch.close() {
            eprintln!("left behind: {error}");
        }
        ExitCode::SUCCESS
    } else {
        eprintln!("files and logs: {}", scratch.keep().display());
        ExitCode::FAILURE
    }
}

/// Those of clusters below `scratch`, and those of daemons that the process `pid` started.
fn remove_groups(scratch: &Path, pid: u32) {
    let own = format!("lrs-test-{pid}-");
    let mount = Path::new("/sys/fs/cgroup");
    let mut groups: Vec<_> = children(scratch)
        .filter(|dir| named(dir, "lrs-yarn-"))
        .map(|dir| group_for(&dir))
        .collect();
    for hierarchy in children(mount).chain([mount.to_owned()]) {
        groups.extend(children(&hierarchy).filter(|dir| named(dir, &own)));
    }
    for group in groups.iter().filter(|group| group.exists()).flat_map(|g| groups_below(g)) {
        // What was killed just now may keep its group a moment longer.
        let removed = (0..20).any(|_| {
            fs::remove_dir(&group).is_ok() || {
                std::thread::sleep(Duration::from_millis(100));
                false
            }
        });
        if !removed {
            eprintln!("left behind: {}", group.display());
        }
    }
}

fn children(dir: &Path) -> impl Iterator<Item = std::path::PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn named(path: &Path, prefix: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
}
