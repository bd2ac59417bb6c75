//! DefaultContainerExecutor: containers run where and as who the NodeManager does, so what is one
//! has to be distinguished from what only claims it.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use crate::groups::{GUARANTEED, Groups, groups_of};
use crate::harness::{Daemon, procs, signal};
use crate::node::{MAP, Node, id, ignored_reason, pid_of, program, task};
use crate::private::privately;

const TWO: &str = "[slots]\nactive = 2\npassive = 8\nexpand = false";

/// Processes with a container's id in their environment.
fn with_id(number: u32) -> BTreeSet<i32> {
    let wanted = format!("CONTAINER_ID={}", id(number));
    let pids = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        // Gone between the listing and here is not one of them.
        let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        text.split(|&byte| byte == 0).any(|entry| entry == wanted.as_bytes())
    })
    .collect()
}

/// A foreign session, with a container's id in its environment.
fn stranger(daemon: &mut Daemon, number: u32) -> i32 {
    let child = Command::new("setsid")
        .args(["sleep", "600"])
        .env("CONTAINER_ID", id(number))
        .stdin(Stdio::null())
        .spawn()
        .expect("setsid of util-linux");
    daemon.keep(child)
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_session_is_moved_whole_and_nothing_else_is() {
    privately("default_executor::a_session_is_moved_whole_and_nothing_else_is", || {
        let foreign = Groups::new("foreign");
        let mut node = Node::start();
        let mut daemon = Daemon::start("whole", &node.settings(TWO, None));
        // A child with a session of its own belongs to it as well.
        node.start_default(2, 0, "setsid sleep 600 & sleep 600 & wait");
        let moved = task(&daemon, 2);
        assert_eq!(
            (moved["attachment"].as_str(), moved["kind"].as_str()),
            (Some("own"), Some("map"))
        );
        daemon.eventually("all three in the group", |daemon| {
            let members: BTreeSet<i32> = procs(&daemon.cpu_dir(&moved)).into_iter().collect();
            (members.len() == 3 && members == with_id(2)).then_some(())
        });

        // A process of a foreign group, which a container has written a pid file for.
        foreign.make("job", GUARANTEED);
        let victim = stranger(&mut daemon, 3);
        fs::write(foreign.dir("job").join("cgroup.procs"), victim.to_string()).expect("a move");
        // One that has the id of the container that runs, and one with an id of its own.
        let impostors = [stranger(&mut daemon, 2), stranger(&mut daemon, 99)];
        let all = [victim, impostors[0], impostors[1]];
        let before = all.map(groups_of);
        node.prepare(3, MAP, 0);
        fs::write(node.pid_file(0, 3), format!("{victim}\n")).expect("a pid file");
        let reason = ignored_reason(&daemon, 3);
        assert!(reason.contains("it was put there"), "{reason}");

        // Found after all of them, and after the next listing of everything.
        node.start_default(4, 1, "sleep 600");
        task(&daemon, 4);
        let names: Vec<_> = daemon.tasks().iter().map(|task| task["name"].clone()).collect();
        assert_eq!(names, [id(2), id(4)]);
        assert_eq!(all.map(groups_of), before, "a process was moved for what it says it is");
        for pid in all {
            signal(pid, rustix::process::Signal::KILL);
        }
        for number in [2, 4] {
            for pid in with_id(number) {
                signal(pid, rustix::process::Signal::KILL);
            }
        }
        daemon.nothing_left();
    });
}

#[test]
#[ignore = "needs root and cgroups"]
fn one_disk_does_for_the_other() {
    privately("default_executor::one_disk_does_for_the_other", || {
        let mut node = Node::start();
        node.fail(1);
        let daemon = Daemon::start("disks", &node.settings(TWO, None));
        node.start_default(2, 0, "sleep 600");
        let mut pids = vec![pid_of(&task(&daemon, 2))];
        // Its pid file is where it cannot be read: it is found among the processes.
        let launch = node.work(3, "launch", &program(&id(3), "sleep 600"));
        node.run(&format!("setsid /bin/bash {} &", launch.display()));
        pids.push(pid_of(&task(&daemon, 3)));
        node.repair(1);
        node.start_default(4, 1, "sleep 600");
        pids.push(pid_of(&task(&daemon, 4)));
        // And the other way round.
        node.fail(0);
        node.start_default(5, 1, "sleep 600");
        pids.push(pid_of(&task(&daemon, 5)));
        assert_eq!(daemon.tasks().len(), 4, "each once, and none lost with its disk");
        for pid in pids {
            signal(pid, rustix::process::Signal::KILL);
        }
        daemon.nothing_left();
    });
}
