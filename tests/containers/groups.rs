//! The hierarchy a NodeManager is given for its containers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lrs_testbed::groups::{cpu_mount, remove_groups};

use crate::harness::PATIENCE;

/// What a NodeManager writes into a new group: shares or weight, and with strict resource usage
/// the quota in microseconds a second.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub v1_shares: u64,
    pub v2_weight: u64,
    pub quota: Option<u64>,
}

/// One vcore.
pub const GUARANTEED: Given = Given { v1_shares: 1024, v2_weight: 100, quota: None };

/// Whatever the number of vcores.
pub const OPPORTUNISTIC: Given = Given { v1_shares: 2, v2_weight: 1, quota: None };

/// A directory for groups, in the hierarchy with the cpu controller alone.
pub struct Groups {
    pub v1: bool,
    /// As `yarn.nodemanager.linux-container-executor.cgroups.hierarchy` has it.
    pub hierarchy: String,
    dir: PathBuf,
}

impl Groups {
    pub fn new(name: &str) -> Groups {
        let (mount, v1) = cpu_mount().expect("cgroups");
        // Process numbers of a namespace begin anew, so that the name is the test's.
        let hierarchy = format!("/lrs-test-{name}-yarn");
        let dir = mount.join(&hierarchy[1..]);
        fs::create_dir_all(&dir).expect("a group");
        if !v1 {
            for above in [&mount, &dir] {
                fs::write(above.join("cgroup.subtree_control"), "+cpu").expect("+cpu");
            }
        }
        Groups { v1, hierarchy, dir }
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn make(&self, name: &str, given: Given) {
        let dir = self.dir(name);
        fs::create_dir(&dir).expect("a group");
        self.write_weight(name, given);
        let write = |file: &str, text: String| fs::write(dir.join(file), text).expect(file);
        match given.quota {
            Some(quota) if self.v1 => {
                write("cpu.cfs_period_us", "1000000".into());
                write("cpu.cfs_quota_us", quota.to_string());
            }
            Some(quota) => write("cpu.max", format!("{quota} 1000000")),
            None => {}
        }
    }

    /// As at the start of a container, and when its execution type changes.
    pub fn write_weight(&self, name: &str, given: Given) {
        let value = if self.v1 { given.v1_shares } else { given.v2_weight };
        fs::write(self.weight_file(name), value.to_string()).expect("a weight");
    }

    pub fn weight(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.weight_file(name)).expect("a weight");
        text.trim().parse().expect("a number")
    }

    fn weight_file(&self, name: &str) -> PathBuf {
        self.dir(name).join(if self.v1 { "cpu.shares" } else { "cpu.weight" })
    }

    /// What `given` is in the file.
    pub fn value(&self, given: Given) -> u64 {
        if self.v1 { given.v1_shares } else { given.v2_weight }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        remove_groups(&self.dir).expect("all of it goes");
    }
}

/// Removes a group that its last process is just leaving, as the NodeManager does: by trying.
pub fn remove(dir: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = fs::remove_dir(dir) {
        assert!(Instant::now() < deadline, "{}: {error}", dir.display());
        std::thread::yield_now();
    }
}

/// A process's groups, one line for each hierarchy.
pub fn groups_of(pid: i32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a process");
    text.lines().map(str::to_owned).collect()
}
