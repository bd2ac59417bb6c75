//! What the measuring process may leave: daemons, containers, groups, files.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::cluster::group_for;
use crate::disk;
use crate::harness::groups_below;
use crate::{process, supervisor};

/// Set for the child.
const SUPERVISED: &str = "LRS_BENCH_SUPERVISED";

pub fn is_supervised() -> bool {
    std::env::var_os(SUPERVISED).is_some()
}

/// Runs this program again with a directory for all its files.
pub fn supervise() -> ExitCode {
    let scratch = supervisor::scratch_on_disk();
    let (status, pid) = supervisor::run_again(|command| {
        command.env(SUPERVISED, "1").env("TMPDIR", scratch.path());
    });
    disk::await_gone(scratch.path());
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
