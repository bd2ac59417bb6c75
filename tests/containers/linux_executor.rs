//! LinuxContainerExecutor: every container has a group of its own, which LRS edits and never
//! moves anything out of.

use std::fs;

use serde_json::Value;

use crate::groups::{GUARANTEED, Given, Groups, OPPORTUNISTIC, groups_of};
use crate::harness::Daemon;
use crate::node::{AM, MAP, Node, id, is_alive, pid_of, task};
use crate::private::privately;

const ONE: &str = "[slots]\nactive = 1\npassive = 4\nexpand = false";

/// The groups a container was started in: its own with the cpu controller, the NodeManager's in
/// every other hierarchy.
fn check_not_moved(node: &Node, groups: &Groups, number: u32, pid: i32) {
    let own = format!("{}/{}", groups.hierarchy, id(number));
    let expected: Vec<String> = groups_of(node.manager_pid())
        .into_iter()
        .map(|line| {
            let (which, _) = line.rsplit_once(':').expect("a path");
            let controllers = which.split_once(':').map_or("", |(_, controllers)| controllers);
            let v1 = controllers.split(',').any(|name| name == "cpu");
            let v2 = !groups.v1 && controllers.is_empty();
            if v1 || v2 { format!("{which}:{own}") } else { line }
        })
        .collect();
    assert_eq!(groups_of(pid), expected, "container {number} was moved");
}

fn tier(task: &Value) -> &str {
    task["tier"].as_str().expect("a tier")
}

/// What a restart must not change.
fn story(daemon: &Daemon) -> Vec<[Value; 5]> {
    let kept = ["id", "name", "pid", "tier", "cgroup"];
    daemon.tasks().iter().map(|task| kept.map(|key| task[key].clone())).collect()
}

#[test]
#[ignore = "needs root and cgroups"]
fn another_executor_counts_once_its_node_manager_has_started() {
    privately("linux_executor::another_executor_counts_once_its_node_manager_has_started", || {
        let groups = Groups::new("anew");
        let mut node = Node::start();
        let daemon = Daemon::start("anew", &node.settings(ONE, None));
        node.start_default(2, 0, "sleep 600");
        let before = task(&daemon, 2);
        assert_eq!(before["attachment"], "own", "{before}");

        node.settings(ONE, Some(&groups));
        node.restart();
        node.start_linux(&groups, 3, MAP, GUARANTEED);
        let after = task(&daemon, 3);
        assert_eq!(after["attachment"], "in_place", "{after}");
        assert_eq!(task(&daemon, 2)["id"], before["id"], "it is the task it was");

        // A file that cannot be read is reported, and containers are found by its former content.
        let file = node.dir.path().join("conf/yarn-site.xml");
        let good = fs::read(&file).expect("yarn-site.xml");
        fs::write(&file, "<configuration>").expect("yarn-site.xml");
        node.restart();
        let error = |daemon: &Daemon| {
            daemon.json(&["yarn", "status"])["last_error"].as_str().map(str::to_owned)
        };
        let shown = daemon.eventually("an error", error);
        assert!(shown.contains("contained before") && shown.contains("yarn-site.xml"), "{shown}");
        node.start_linux(&groups, 4, MAP, GUARANTEED);
        assert_eq!(task(&daemon, 4)["attachment"], "in_place");
        fs::write(&file, good).expect("yarn-site.xml");
        daemon.eventually("no error", |daemon| error(daemon).is_none().then_some(()));
        for (number, groups) in [(2, None), (3, Some(&groups)), (4, Some(&groups))] {
            node.end(number, pid_of(&task(&daemon, number)), groups);
        }
        daemon.nothing_left();
    });
}

#[test]
#[ignore = "needs root and cgroups"]
fn containers_are_shaped_in_their_own_groups() {
    privately("linux_executor::containers_are_shaped_in_their_own_groups", || {
        let groups = Groups::new("shaped");
        let mut node = Node::start();
        let mut daemon = Daemon::start("shaped", &node.settings(ONE, Some(&groups)));
        let strict = |quota, given| Given { quota: Some(quota), ..given };
        // One after the other: who comes first is active.
        let mut pids = Vec::new();
        for (number, recorded, given) in [
            (1, AM, strict(333_333, GUARANTEED)),
            (2, MAP, strict(333_333, GUARANTEED)),
            (3, MAP, GUARANTEED),
            (4, MAP, strict(666_666, OPPORTUNISTIC)),
        ] {
            node.start_linux(&groups, number, recorded, given);
            let task = task(&daemon, number);
            assert_eq!(task["attachment"], "in_place", "{task}");
            assert_eq!(task["cgroup"], format!("{}/{}", groups.hierarchy, id(number)), "{task}");
            let quota = given.quota.map(|quota| quota as f64 / 1e6);
            assert_eq!(task["cpu_quota"].as_f64(), quota, "strict usage is shown: {task}");
            pids.push((number, pid_of(&task)));
        }
        let [master, first, second, spare] = [1, 2, 3, 4].map(|number| task(&daemon, number));
        assert_eq!([&master, &first].map(|task| task["kind"].clone()), ["am", "map"]);
        assert_eq!(master["slotless"], true);
        assert_eq!([&master, &first, &second, &spare].map(tier), {
            ["active", "active", "passive", "passive"]
        });
        let neutral = groups.value(GUARANTEED);
        let [master, first, second, spare] = [1, 2, 3, 4].map(|number| groups.weight(&id(number)));
        assert_eq!(master, first, "a master weighs what an active task does");
        assert!(first >= neutral && second * 50 <= first, "{first} beside {second}");
        assert!(spare <= groups.value(OPPORTUNISTIC), "{spare}: more than YARN gave it");
        for (number, pid) in &pids {
            check_not_moved(&node, &groups, *number, *pid);
        }

        // The NodeManager changes the execution type, and with it the weight.
        groups.write_weight(&id(3), GUARANTEED);
        daemon.eventually("a repair", |daemon| (task(daemon, 3)["repaired"] == 1).then_some(()));
        assert_eq!(groups.weight(&id(3)), second, "put back");

        // It forgets a container that runs on, as after a restart that failed for it.
        fs::remove_file(node.pid_file(1, 3)).expect("a pid file");
        node.start_linux(&groups, 5, MAP, GUARANTEED);
        pids.push((5, pid_of(&task(&daemon, 5))));
        assert_eq!(tier(&task(&daemon, 3)), "passive", "it runs, so it is a task");

        // The one that waits longest follows an active one that ends.
        node.end(2, pids[1].1, Some(&groups));
        daemon.eventually("a successor", |daemon| {
            (tier(&task(daemon, 3)) == "active" && daemon.tasks().len() == 4).then_some(())
        });
        assert_eq!(groups.weight(&id(3)), first);

        let before = story(&daemon);
        daemon.stop();
        assert!(pids.iter().all(|(number, pid)| *number == 2 || is_alive(*pid)));
        daemon.launch();
        daemon.eventually("the same tasks", |daemon| (story(daemon) == before).then_some(()));
        node.start_linux(&groups, 6, MAP, GUARANTEED);
        pids.push((6, pid_of(&task(&daemon, 6))));
        assert_eq!(story(&daemon)[..4], before, "none was found twice");
        for (number, pid) in pids.into_iter().filter(|(number, _)| *number != 2) {
            check_not_moved(&node, &groups, number, pid);
            node.end(number, pid, Some(&groups));
        }
        daemon.nothing_left();
    });
}

/// A task that leaves a process behind keeps its group, which is the NodeManager's to remove.
#[test]
#[ignore = "needs root and cgroups"]
fn what_lrs_found_is_what_it_gives_back() {
    privately("linux_executor::what_lrs_found_is_what_it_gives_back", || {
        let groups = Groups::new("back");
        let mut node = Node::start();
        let daemon = Daemon::start("back", &node.settings(ONE, Some(&groups)));
        let mut found = Vec::new();
        for (number, given) in [(2, GUARANTEED), (3, GUARANTEED), (4, OPPORTUNISTIC)] {
            node.start_linux(&groups, number, MAP, given);
            found.push((number, given, task(&daemon, number)));
        }
        for (number, given, task) in &found {
            daemon.ok(&["release", task["id"].as_str().expect("an id")]);
            daemon.eventually("the weight that was found", |_| {
                (groups.weight(&id(*number)) == groups.value(*given)).then_some(())
            });
            check_not_moved(&node, &groups, *number, pid_of(task));
        }
        for (number, _, task) in &found {
            node.end(*number, pid_of(task), Some(&groups));
        }
        daemon.nothing_left();
    });
}
