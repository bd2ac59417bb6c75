//! Whether active slots and the CPUs of LRS's tasks fit.

use super::Check;
use super::probe::{Cpus, Reading};
use crate::config::{Auto, Config};

/// Whether active slots and CPUs fit.
pub(super) fn check(cpus: &Reading<Cpus>, config: &Config) -> Check {
    const ID: &str = "cpus";
    let cpus = match (config.slots.active, cpus) {
        (_, Ok(cpus)) => cpus,
        (Auto::Auto, Err(reason)) => {
            return Check::unknown(ID, reason, "set slots.active to a number");
        }
        (Auto::Fixed(active), Err(reason)) => {
            return Check::ok(ID, format!("slots.active = {active}; {reason}"));
        }
    };
    let (list, slots) = (&cpus.list, cpus.usable.slots());
    let mut found = format!("{} to be used ({list})", cpus.usable.spread());
    if let Some(quota) = cpus.usable.binding_quota() {
        found += &format!(", of which a quota above the tasks allows {quota:.2}");
    }
    if !cpus.problems.is_empty() {
        return Check::warn(
            ID,
            format!("{found}; {}", cpus.problems.join("; ")),
            "make the file readable, or put right what it says; until then it does not count",
        );
    }
    match config.slots.active {
        Auto::Auto => Check::ok(ID, format!("{found}, so {slots} active slots")),
        Auto::Fixed(active) if active > slots => Check::warn(
            ID,
            format!("{found}, but slots.active = {active}: active tasks share CPUs"),
            "set slots.active = \"auto\"",
        ),
        Auto::Fixed(active) => Check::ok(ID, format!("{found}, slots.active = {active}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::probe::{Services, Socket, cgroups, cpus};

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Reading<Cpus>) {
        let dir = tempfile::tempdir().unwrap();
        let stat = "cpu  0 0\ncpu0 1 0 0 10\ncpu1 1 0 0 10\n";
        let mountinfo = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let always = [
            ("proc/stat", stat),
            ("proc/self/mountinfo", mountinfo),
            ("proc/self/cgroup", "0::/lrsd.slice\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
        ];
        for (path, text) in always.iter().chain(files) {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let (proc, sys) = (dir.path().join("proc"), dir.path().join("sys"));
        let config = Config::default();
        let services =
            Services { systemd: true, unit: None, yarn_unit: None, bus: Ok(()), policy: None };
        let root = cgroups::root_name(&config, &services);
        let cgroups = cgroups::read(&proc, &sys, &config, &services);
        let cpus = cpus::read((&proc, &sys), &config, root, &cgroups, &Socket::Absent);
        (dir, cpus)
    }

    fn found(files: &[(&str, &str)]) -> String {
        let (_dir, cpus) = machine(files);
        check(&cpus, &Config::default()).found
    }

    #[test]
    fn cpuset_and_quota_of_the_tasks_count_and_those_of_lrsd_do_not() {
        assert_eq!(found(&[]), "2 to be used (0-1), so 2 active slots");
        let slice = "sys/fs/cgroup/lrs/";
        assert_eq!(
            found(&[(&format!("{slice}cpuset.cpus.effective"), "1\n")]),
            "1 to be used (1), so 1 active slots"
        );
        assert_eq!(
            found(&[
                (&format!("{slice}cpu.max"), "100000 100000\n"),
                (&format!("{slice}cpu.stat"), "usage_usec 5\n")
            ]),
            "2 to be used (0-1), of which a quota above the tasks allows 1.00, so 1 active slots"
        );
        assert_eq!(
            found(&[("sys/fs/cgroup/lrsd.slice/cpuset.cpus.effective", "1\n")]),
            "2 to be used (0-1), so 2 active slots"
        );
    }

    #[test]
    fn what_cannot_be_read_is_a_warning() {
        let text = found(&[("sys/devices/system/cpu/online", "many\n")]);
        assert!(text.starts_with("2 to be used (0-1); ") && text.contains("cpu/online"), "{text}");
    }
}
