//! Containers in a group that others made: YARN's LinuxContainerExecutor on v1 makes one in
//! the cpu hierarchy alone, and leaves the process in the root of the others.

use std::path::Path;

use lrs::command::Command;
use lrs::core::event::EventKind;
use lrs::core::model::Standing;
use lrs::discover::{Attach, Presumed};

use lrs_testbed::groups::cpu_mount;

use crate::bench::{Container, Loop, PATIENCE, groups_of};

/// Removes a group that its last process is just leaving.
pub fn remove(dir: &Path) {
    let begun = std::time::Instant::now();
    while let Err(error) = std::fs::remove_dir(dir) {
        assert!(begun.elapsed() < PATIENCE, "{}: {error}", dir.display());
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_group_in_the_cpu_hierarchy_alone_is_shaped_there_alone() {
    let daemon = Loop::start("alone", "slots.active = 1\nslots.passive = 1");
    let (mount, v1) = cpu_mount().unwrap();
    let cgroup = format!("/lrs-test-{}-yarn", std::process::id());
    let parent = mount.join(&cgroup[1..]);
    let dir = parent.join("container_1_0001_01_000002");
    std::fs::create_dir_all(&dir).unwrap();
    if !v1 {
        std::fs::write(parent.join("cgroup.subtree_control"), "+cpu").unwrap();
    }
    let (weight, quota) =
        if v1 { ("cpu.shares", "cpu.cfs_quota_us") } else { ("cpu.weight", "cpu.max") };
    let owners = if v1 { "2048" } else { "200" };
    std::fs::write(dir.join(weight), owners).unwrap();
    std::fs::write(dir.join(quota), if v1 { "150000" } else { "150000 100000" }).unwrap();
    let mut container = Container::start("echo ready; while :; do :; done");
    let pid = container.process().pid.to_string();
    std::fs::write(dir.join("cgroup.procs"), &pid).unwrap();
    let before = groups_of(&pid);
    // On v1 the root of the other hierarchies, which has the weight of all.
    let others = mount.parent().map(|all| all.join("blkio/blkio.bfq.weight"));
    let read = |file: &Path| std::fs::read_to_string(file).ok();
    let others_before = others.as_deref().and_then(read);

    let mut found = container.found();
    found.attach = Attach::InPlace { cgroup: format!("{cgroup}/container_1_0001_01_000002") };
    let id = daemon.discover(&found).unwrap();
    let task = daemon.task(id);
    assert_eq!(task.attachment(), lrs::proto::Attachment::InPlace);
    assert_eq!(task.cpu_quota, Some(1.5));
    assert_eq!(groups_of(&pid), before, "nothing moves");
    let active: u64 = read(&dir.join(weight)).unwrap().trim().parse().unwrap();
    assert!(active >= owners.parse().unwrap());
    let admitted = daemon.story(id).first().cloned().unwrap();
    assert_eq!(admitted.inputs["cpu_quota"], 1.5);
    assert!(admitted.inputs["note"].as_str().unwrap().contains("cannot use spare CPU"));

    // The group counts no CPU time of its own on v1; its processes do.
    daemon.wait(id, |task| task?.cpu_seconds.filter(|seconds| *seconds > 0.1));
    // The node manager resizes the container: the tier is put back beside that, and counted.
    // One active task to four passive ones at 100:1: 800 shares, raised to the neutral 1024.
    let (resized, wanted) = if v1 { ("1000", "1024") } else { ("50", "400") };
    std::fs::write(dir.join(weight), resized).unwrap();
    daemon.wait(id, |task| (task?.repaired == 1).then_some(()));
    assert_eq!(read(&dir.join(weight)).unwrap().trim(), wanted);
    // And it may lift the quota, which is its own affair.
    std::fs::write(dir.join(quota), if v1 { "-1" } else { "max 100000" }).unwrap();
    daemon.wait(id, |task| task?.cpu_quota.is_none().then_some(()));
    assert_eq!(others.as_deref().and_then(read), others_before);

    // Given back is what the node manager wrote last.
    daemon.ask(|caller, reply| Command::Release { caller, id, reply }).unwrap();
    assert_eq!(read(&dir.join(weight)).unwrap().trim(), resized);
    let mut next = Container::start("echo ready; while :; do :; done");
    std::fs::write(dir.join("cgroup.procs"), next.process().pid.to_string()).unwrap();
    container.kill();
    let mut found_next = next.found();
    found_next.attach = found.attach;
    let id = daemon.discover(&found_next).unwrap();
    daemon.wait(id, |task| task?.cpu_seconds.filter(|seconds| *seconds > 0.1));

    next.kill();
    // The node manager removes the group as soon as the kernel lets it.
    remove(&dir);
    let ended = daemon.until_ended(id).last().cloned().unwrap();
    assert_eq!(ended.kind, EventKind::Completed);
    assert!(ended.inputs["cpu_seconds"].as_f64().unwrap() > 0.1, "{ended:?}");
    remove(&parent);
}

/// LinuxContainerExecutor gives an opportunistic container the least weight there is, and its
/// scheduler says later what it is.
#[test]
#[ignore = "needs root and cgroups"]
fn the_least_weight_marks_an_opportunistic_task_until_its_scheduler_speaks() {
    let daemon = Loop::start("least", "slots.active = 1\nslots.passive = 1");
    let (mount, v1) = cpu_mount().unwrap();
    let cgroup = format!("/lrs-test-{}-nodemanager/container", std::process::id());
    let dir = mount.join(&cgroup[1..]);
    std::fs::create_dir_all(&dir).unwrap();
    let parent = dir.parent().unwrap();
    if !v1 {
        std::fs::write(parent.join("cgroup.subtree_control"), "+cpu").unwrap();
    }
    let (weight, least) = if v1 { ("cpu.shares", "2") } else { ("cpu.weight", "1") };
    std::fs::write(dir.join(weight), least).unwrap();
    let mut container = Container::start("echo ready; sleep 1000");
    std::fs::write(dir.join("cgroup.procs"), container.process().pid.to_string()).unwrap();

    let mut found = container.found();
    found.attach = Attach::InPlace { cgroup };
    found.presumed = Presumed::LeastIsOpportunistic;
    let id = daemon.discover(&found).unwrap();
    assert!(daemon.task(id).opportunistic);
    // By now the weight is LRS's, and says nothing.
    assert_eq!(daemon.discover(&found).unwrap(), id);
    assert!(daemon.task(id).opportunistic);
    found.standing = Some(Standing::Slot);
    assert_eq!(daemon.discover(&found).unwrap(), id);
    assert!(!daemon.task(id).opportunistic);

    container.kill();
    assert_eq!(daemon.until_ended(id).last().unwrap().kind, EventKind::Completed);
    remove(&dir);
    remove(parent);
}

/// Slurm and Kubernetes divide the group of a job or container further.
#[test]
#[ignore = "needs root and cgroups"]
fn a_group_above_that_of_the_process_is_taken_by_name() {
    let daemon = Loop::start("above", "slots.active = 1\nslots.passive = 1");
    let (mount, v1) = cpu_mount().unwrap();
    let cgroup = format!("/lrs-test-{}-slurm/job_7", std::process::id());
    let job = mount.join(&cgroup[1..]);
    let step = job.join("step_0");
    std::fs::create_dir_all(&step).unwrap();
    let parent = job.parent().unwrap();
    if !v1 {
        std::fs::write(parent.join("cgroup.subtree_control"), "+cpu").unwrap();
    }
    let weight = if v1 { "cpu.shares" } else { "cpu.weight" };
    let mut container = Container::start("echo ready; sleep 1000");
    let pid = container.process().pid.to_string();
    std::fs::write(step.join("cgroup.procs"), &pid).unwrap();
    let before = groups_of(&pid);
    // As little as YARN gives an opportunistic container: no tier of LRS's gives it more.
    std::fs::write(job.join(weight), if v1 { "2" } else { "1" }).unwrap();

    let mut found = container.found();
    found.attach = Attach::InPlace { cgroup: format!("{cgroup}0") };
    let error = daemon.discover(&found).unwrap_err();
    assert!(error.message.contains("where it was found"), "{error}");

    found.attach = Attach::InPlace { cgroup: cgroup.clone() };
    let id = daemon.discover(&found).unwrap();
    assert_eq!(daemon.task(id).cgroup, Some(cgroup));
    assert_eq!(groups_of(&pid), before, "nothing moves");
    // Another process of the group is in the same task.
    let mut other = Container::start("echo ready; sleep 1000");
    let second = other.process().pid.to_string();
    std::fs::write(job.join("cgroup.procs"), &second)
        .or_else(|_| std::fs::write(step.join("cgroup.procs"), &second))
        .unwrap();
    let mut again = other.found();
    again.attach = found.attach.clone();
    let error = daemon.discover(&again).unwrap_err();
    assert_eq!(error.kind, lrs::command::ErrorKind::AlreadyExists(id));

    container.kill();
    assert!(daemon.story(id).iter().all(|event| event.kind != EventKind::Completed));
    other.kill();
    assert_eq!(daemon.until_ended(id).last().unwrap().kind, EventKind::Completed);
    remove(&step);
    remove(&job);
    remove(parent);
}
