use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;

use super::*;
use crate::cgroup::GroupDirs;
use crate::clock::boot_time;
use crate::core::sample::ParentSample;
use crate::sample::QuotaDirs;
use crate::units::{Bytes, Pid, ProcessRef};

fn id(number: u64) -> TaskId {
    TaskId { epoch: 1, number }
}

fn sampler() -> Sampler {
    Sampler::new(Settings::of_this_machine(100)).unwrap()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn process_ref(pid: u32) -> ProcessRef {
    let text = fs::read(format!("/proc/{pid}/stat")).unwrap();
    ProcessRef {
        pid: Pid::new(pid as i32).unwrap(),
        start_ticks: crate::kernfs::process::Stat::parse(&text).unwrap().start_ticks,
    }
}

/// A group made of plain files, with this test's process in it.
fn group(dir: &Path, usage: &str) -> GroupDirs {
    fs::write(dir.join("cpuacct.usage"), usage).unwrap();
    fs::write(
        dir.join("blkio.throttle.io_service_bytes"),
        "254:0 Read 4096\n254:0 Write 0\nTotal 4096\n",
    )
    .unwrap();
    for (name, total) in [("cpu.pressure", 5), ("io.pressure", 7)] {
        let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        fs::write(dir.join(name), text).unwrap();
    }
    fs::write(dir.join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
    GroupDirs {
        cpu: Some(dir.into()),
        cpuacct: Some(dir.into()),
        io: Some(dir.into()),
        memory: None,
        unified: Some(dir.into()),
    }
}

#[test]
fn this_machine_can_be_read() {
    let mut sampler = sampler();
    let sample = sampler.sample(boot_time(), &[]);
    assert!(!sample.node.cpus.unwrap().is_empty());
    assert!(sample.node.memory.unwrap().total > Bytes(0));
    let cpu = sample.node.cpu.unwrap();
    assert!(cpu.user + cpu.system + cpu.idle > Duration::ZERO);
    assert!(sample.tasks.is_empty());
}

#[test]
fn without_procfs_there_is_no_sampler() {
    let mut settings = Settings::of_this_machine(0);
    settings.proc = "/nonexistent".into();
    let error = Sampler::new(settings).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/stat"), "{error}");
}

#[test]
fn a_group_is_read_and_its_threads_only_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let mut sampler = sampler();
    sampler.watch(id(1), TaskSource::Group(group(dir.path(), "1000\n")));
    let (_, first) = sampler.sample(boot_time(), &[]).tasks[0];
    assert_eq!(first.cpu, Some(Duration::from_nanos(1000)));
    assert_eq!(first.pressure.unwrap().io_some, Duration::from_micros(7));
    assert!(first.resident.unwrap() > Bytes(0));
    assert_eq!((first.asleep, first.look()), (None, None));

    fs::write(dir.path().join("cpuacct.usage"), "2000\n").unwrap();
    // This very thread runs while it looks.
    let (_, second) = sampler.sample(boot_time(), &[id(1)]).tasks[0];
    assert_eq!(second.cpu, Some(Duration::from_nanos(2000)));
    assert_eq!(second.look(), Some(ThreadLook::Runnable));
    assert_eq!(sampler.look(&[id(1), id(9)]), [(id(1), ThreadLook::Runnable)]);
}

#[test]
fn memory_is_read_with_every_cycle_while_it_grows() {
    let dir = tempfile::tempdir().unwrap();
    let mut sampler = sampler();
    let dirs = GroupDirs { memory: Some(dir.path().into()), ..group(dir.path(), "1000\n") };
    sampler.watch(id(5), TaskSource::Group(dirs));
    let mut read = |mib: u64, cpu: u64| {
        let text = format!("anon {}\nshmem 0\n", mib << 20);
        fs::write(dir.path().join("memory.stat"), text).unwrap();
        fs::write(dir.path().join("cpuacct.usage"), format!("{cpu}\n")).unwrap();
        sampler.sample(boot_time(), &[]).tasks[0].1.resident.map(|bytes| bytes.0 >> 20)
    };
    let grows = [read(10, 1), read(100, 2), read(200, 3), read(300, 4)];
    assert_eq!(grows, [Some(10), Some(100), Some(200), Some(300)]);
    // It grew by less than an eighth: five cycles go by, which spreads the readings of many tasks.
    assert_eq!(read(310, 5), Some(310));
    let later: Vec<_> = (6..12).map(|cpu| read(500, cpu)).collect();
    assert_eq!(later, [None, None, None, None, None, Some(500)]);
}

#[test]
fn the_group_above_tasks_in_place_counts_what_no_reading_saw() {
    let dir = tempfile::tempdir().unwrap();
    let (root, owner) = (dir.path().join("lrs"), dir.path().join("owner"));
    let mut settings = Settings::of_this_machine(100);
    settings.quota_dirs = vec![QuotaDirs { quota: root.clone(), usage: root.clone() }];
    let mut sampler = Sampler::new(settings).unwrap();
    let source = |dir: &Path| {
        let cpuacct = Some(dir.to_path_buf());
        TaskSource::Group(GroupDirs { cpuacct, ..GroupDirs::default() })
    };
    for group in [root.join("a"), owner.join("b"), owner.join("stranger")] {
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cpuacct.usage"), "1000\n").unwrap();
    }
    fs::write(owner.join("cpuacct.usage"), "5000\n").unwrap();
    fs::write(owner.join("cgroup.procs"), "").unwrap();
    sampler.watch(id(1), source(&root.join("a")));
    sampler.watch(id(2), source(&owner.join("b")));
    // One that is gone before it is read.
    sampler.watch(id(3), source(&owner.join("short")));
    sampler.forget(id(3));
    let named = |numbers: &[(u64, &str)]| {
        let named = numbers.iter().map(|(number, name)| (id(*number), Arc::from(OsStr::new(name))));
        named.collect::<Vec<_>>()
    };
    let parents = sampler.sample(boot_time(), &[]).node.parents;
    let expected = ParentSample {
        group: Arc::from(owner.as_path()),
        cpu: Duration::from_nanos(5000),
        tasks: named(&[(2, "b"), (3, "short")]),
        others: Some(vec![Arc::from(OsStr::new("stranger"))]),
    };
    assert_eq!(parents, std::slice::from_ref(&expected));

    fs::write(owner.join("cgroup.procs"), "1\n").unwrap();
    let parents = sampler.sample(boot_time(), &[]).node.parents;
    assert_eq!(parents, [ParentSample { tasks: named(&[(2, "b")]), others: None, ..expected }]);

    sampler.forget(id(2));
    let reads = |sampler: &mut Sampler| !sampler.sample(boot_time(), &[]).node.parents.is_empty();
    assert!((0..20).all(|_| reads(&mut sampler)), "the next task may come");
    assert!((0..3).any(|_| !reads(&mut sampler)));
}

#[test]
fn kept_files_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut sampler = sampler();
    sampler.sample(boot_time(), &[]);
    let (node_files, _) = sampler.kept_files();
    sampler.watch(id(1), TaskSource::Group(group(dir.path(), "1\n")));
    sampler.sample(boot_time(), &[]);
    assert_eq!(sampler.kept_files().0, node_files + 4);
    sampler.forget(id(1));
    sampler.forget(id(2));
    assert_eq!(sampler.kept_files().0, node_files);
    assert_eq!(sampler.watched(), 0);
}

#[test]
fn a_vanished_group_is_left_out_and_garbage_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut sampler = sampler();
    sampler.watch(id(1), TaskSource::Group(group(dir.path(), "soon\n")));
    let sample = sampler.sample(boot_time(), &[]);
    assert_eq!(sample.tasks[0].1.cpu, None);
    let problem = sample.node.problems.iter().find(|p| p.contains("cpuacct.usage")).unwrap();
    assert!(problem.starts_with(&format!("task {}: ", id(1))), "{problem}");

    let gone = dir.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let dirs = group(&gone, "1\n");
    let mut fresh = super::tests::sampler();
    fresh.watch(id(2), TaskSource::Group(dirs));
    fs::remove_dir_all(&gone).unwrap();
    let sample = fresh.sample(boot_time(), &[id(2)]);
    assert!(sample.tasks.is_empty());
    assert!(!sample.node.problems.iter().any(|p| p.contains("gone")));
}

#[test]
fn many_problems_are_counted_not_listed() {
    let dir = tempfile::tempdir().unwrap();
    let mut sampler = sampler();
    for number in 0..40 {
        sampler.watch(id(number), TaskSource::Group(group(dir.path(), "x\n")));
    }
    let problems = sampler.sample(boot_time(), &[]).node.problems;
    assert_eq!(problems.len(), MOST_PROBLEMS + 1);
    assert!(problems[MOST_PROBLEMS].starts_with("and "), "{problems:?}");
}

#[test]
fn a_process_tree_is_measured_with_its_children_and_known_by_start_time() {
    // The shell stays the parent of the sleeper.
    let child = Command::new("sh")
        .args(["-c", "sleep 1000; true"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let child = Killed(child);
    let main = process_ref(child.0.id());
    let children = format!("/proc/{0}/task/{0}/children", main.pid);
    // There is no event for "the shell has forked".
    let mut sleeper = String::new();
    while sleeper.is_empty() {
        sleeper = fs::read_to_string(&children).unwrap().trim().to_string();
    }
    let mut sampler = sampler();
    sampler.watch(id(1), TaskSource::Processes(main));
    let stranger = ProcessRef { start_ticks: main.start_ticks + 1, ..main };
    sampler.watch(id(2), TaskSource::Processes(stranger));
    let sample = sampler.sample(boot_time(), &[id(1), id(2)]);
    assert_eq!(sample.tasks.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1)]);
    let (_, reading) = sample.tasks[0];
    assert!(reading.cpu.is_some() && reading.resident.unwrap() > Bytes(0));
    assert!(reading.asleep.is_some());
    assert_eq!(reading.pressure, None);
    let Some(TaskReader::Tree(tree)) = sampler.tasks.get(&id(1)) else { panic!("no tree") };
    let mut pids = tree.pids();
    pids.sort_unstable();
    let mut expected = vec![main.pid.raw(), sleeper.parse().unwrap()];
    expected.sort_unstable();
    assert_eq!(pids, expected);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(sleeper.parse().unwrap()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
}
