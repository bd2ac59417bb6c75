//! What one reading costs: sleeping tasks, each in groups of its own.
//!
//! A measurement, run by hand with a release build:
//! `cargo test --release --test sample_cost -- --ignored --nocapture`. It fails only when a
//! reading costs more than ten times what it should; under emulation (`LRS_TEST_SLOW`, set by
//! `tests/vm/run`), where an instruction costs tens of them, more than two hundred times.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)] // test helpers

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use lrs::cgroup::GroupDirs;
use lrs::clock::boot_time;
use lrs::core::model::TaskId;
use lrs::kernfs::files::raise_descriptor_limit;
use lrs::sample::{Sampler, Settings, TaskSource};

struct Node {
    roots: Vec<PathBuf>,
    tasks: Vec<(String, Child)>,
}

impl Node {
    fn new(tasks: usize) -> Node {
        let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let mounts: &[&str] = if v2 { &[""] } else { &["cpu", "cpuacct", "blkio", "unified"] };
        let name = format!("lrs-test-cost-{}", std::process::id());
        let roots = mounts.iter().map(|m| Path::new("/sys/fs/cgroup").join(m).join(&name));
        let mut node = Node { roots: roots.collect(), tasks: Vec::new() };
        for root in &node.roots {
            fs::create_dir(root).expect("this test needs root and cgroups");
        }
        for number in 0..tasks {
            let group = number.to_string();
            let child = Command::new("sleep").arg("1000").spawn().unwrap();
            for root in &node.roots {
                fs::create_dir(root.join(&group)).unwrap();
                fs::write(root.join(&group).join("cgroup.procs"), child.id().to_string()).unwrap();
            }
            node.tasks.push((group, child));
        }
        node
    }

    fn dirs(&self, number: usize) -> GroupDirs {
        let group = &self.tasks[number].0;
        let at = |index: usize| Some(self.roots[index.min(self.roots.len() - 1)].join(group));
        GroupDirs { cpu: at(0), cpuacct: at(1), io: at(2), memory: None, unified: at(3) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for (_, child) in &mut self.tasks {
            let _ = child.kill();
            let _ = child.wait();
        }
        for root in &self.roots {
            for (group, _) in &self.tasks {
                for _ in 0..100 {
                    if fs::remove_dir(root.join(group)).is_ok() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            if let Err(error) = fs::remove_dir(root) {
                eprintln!("left behind: {}: {error}", root.display());
            }
        }
    }
}

fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
#[ignore = "needs root and cgroups"]
fn cost_of_a_reading() {
    const CYCLES: u32 = 40;
    let allowance = if std::env::var_os("LRS_TEST_SLOW").is_some() { 20 } else { 1 };
    let limit = raise_descriptor_limit().unwrap();
    // Emulated, starting a thousand processes takes minutes and shows nothing more.
    let sizes = if allowance == 1 { &[0, 100, 1000][..] } else { &[0, 100] };
    for &tasks in sizes {
        let node = Node::new(tasks);
        let ids: Vec<TaskId> =
            (0..tasks).map(|number| TaskId { epoch: 0, number: number as u64 }).collect();
        for (kept, budget) in [("kept open", limit.sampler_budget()), ("opened anew", 0)] {
            let mut sampler = Sampler::new(Settings::of_this_machine(budget)).unwrap();
            for (number, id) in ids.iter().enumerate() {
                sampler.watch(*id, TaskSource::Group(node.dirs(number)));
            }
            let before = thread_cpu();
            sampler.sample(boot_time(), &[]);
            let first = thread_cpu() - before;
            for (looked, look) in [("", &[][..]), (", every task looked at", &ids[..])] {
                let before = thread_cpu();
                for _ in 0..CYCLES {
                    let sample = sampler.sample(boot_time(), look);
                    assert_eq!(sample.tasks.len(), tasks);
                }
                let each = (thread_cpu() - before) / CYCLES;
                println!(
                    "{tasks} tasks, files {kept}{looked}: {each:?} a reading, {:.1} us a task; first {first:?}",
                    each.as_secs_f64() * 1e6 / tasks.max(1) as f64
                );
                let budget = Duration::from_millis(5) + Duration::from_micros(400) * tasks as u32;
                assert!(each < budget * allowance, "{each:?}, budget {budget:?} x {allowance}");
            }
        }
    }
}
