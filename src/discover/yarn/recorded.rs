//! A node with LinuxContainerExecutor as it was: Hadoop 3.4.2, cgroup v1 with `cpu` mounted apart,
//! two local directories. Its helper `container-executor` is not published, so that no test
//! can start it; the files below `recorded/` are what /proc and `nmPrivate` held while it ran,
//! users and paths renamed. `.script` is the NodeManager's copy of launch_container.sh, `.leader`
//! and `.java` are the arguments of a container's main process and of its child.

use std::time::Duration;

use super::classify::{self, Kind};
use super::ids::ContainerId;
use super::managers::Managers;
use super::proc::Process;
use super::verify::{Claim, Decision, Evidence, Rules, judge};
use crate::cgroup::Places;
use crate::discover::Attach;
use crate::units::{BootTime, Pid, ProcessRef};
use lrs_hadoop_conf::site::CgroupLayout;

mod frameworks;

struct Recorded {
    container: &'static str,
    kind: &'static str,
    script: &'static str,
    leader: &'static str,
    java: &'static str,
}

const AM: Recorded = Recorded {
    container: "container_1795301748806_0001_01_000001",
    kind: "am",
    script: include_str!("recorded/am.script"),
    leader: include_str!("recorded/am.leader"),
    java: include_str!("recorded/am.java"),
};
const MAP: Recorded = Recorded {
    container: "container_1795301748806_0001_01_000002",
    kind: "map",
    script: include_str!("recorded/map.script"),
    leader: include_str!("recorded/map.leader"),
    java: include_str!("recorded/map.java"),
};
const REDUCE: Recorded = Recorded {
    container: "container_1795301748806_0001_01_000005",
    kind: "reduce",
    script: include_str!("recorded/reduce.script"),
    leader: include_str!("recorded/reduce.leader"),
    java: include_str!("recorded/reduce.java"),
};

/// The main process of [`MAP`], and that of a container of the run without cgroups.
const IN_ITS_GROUP: &str = include_str!("recorded/container.cgroup");
const WITHOUT_GROUPS: &str = include_str!("recorded/no-cgroups.cgroup");
/// container-executor, which is what the pid in a new pid file is at first.
const EXECUTOR: &str = include_str!("recorded/container-executor.argv");

/// /proc/self/mountinfo of that node, and of one with cgroup v2.
const V1: &str = "30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  31 29 0:27 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
                  32 29 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  33 29 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
const V2: &str = "30 29 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

const MANAGER_UID: u32 = 2101;
const RUN_AS_UID: u32 = 2102;

fn id(recorded: &Recorded) -> ContainerId {
    recorded.container.parse().unwrap()
}

/// One argument a line.
fn arguments(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn word(kind: Option<Kind>) -> &'static str {
    kind.map_or("none", Kind::word)
}

#[test]
fn the_node_managers_scripts_tell_master_map_and_reduce_apart() {
    for recorded in [AM, MAP, REDUCE] {
        let launch = classify::launch(recorded.script, &id(&recorded));
        assert_eq!(word(launch.kind), recorded.kind, "{}", recorded.container);
        // By name, although it was configured as an address: what the ResourceManager calls it.
        assert_eq!(launch.node_id.as_deref(), Some("localhost:28041"));
    }
}

#[test]
fn command_lines_tell_the_same_as_the_scripts() {
    let none = |_: &str| None;
    for recorded in [AM, MAP, REDUCE] {
        for text in [recorded.leader, recorded.java] {
            let launch = classify::running(&arguments(text), none, &id(&recorded));
            assert_eq!(word(launch.kind), recorded.kind, "{text}");
        }
    }
    assert_eq!(classify::running(&arguments(EXECUTOR), none, &id(&MAP)).kind, None);
}

#[test]
fn attempts_are_those_of_the_recorded_job() {
    let attempt = |recorded: &Recorded| match classify::launch(recorded.script, &id(recorded)).kind
    {
        Some(Kind::Map(attempt) | Kind::Reduce(attempt)) => attempt.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(attempt(&MAP), "attempt_1795301748806_0001_m_000000_0");
    assert_eq!(attempt(&REDUCE), "attempt_1795301748806_0001_r_000000_0");
}

/// What is decided of the main process of [`MAP`] with this cgroup file.
struct Look<'a> {
    mounts: &'a str,
    cgroup: &'a str,
    uid: u32,
    has_id: bool,
    layout: bool,
}

/// Once it runs its own program.
const STARTED: Look<'static> =
    Look { mounts: V1, cgroup: IN_ITS_GROUP, uid: RUN_AS_UID, has_id: true, layout: true };

fn verdict(look: &Look<'_>) -> Decision {
    let layout = CgroupLayout {
        hierarchy: "/hadoop-yarn".to_owned(),
        mount_path: None,
        v2: look.mounts == V2,
        v2_mount_path: None,
        strict: false,
    };
    let mut managers = Managers::default();
    // The NodeManager was where the containers of the run without cgroups were.
    managers.pretend(MANAGER_UID, Places::recorded(look.mounts, WITHOUT_GROUPS));
    let process = ProcessRef { pid: Pid::new(32265).unwrap(), start_ticks: 90_000 };
    let known = Some(BootTime(Duration::from_secs(1000)));
    let claim = Claim { container: id(&MAP), known, manager_uid: MANAGER_UID };
    let evidence = Evidence {
        // container-executor calls setsid() before it writes the pid file.
        seen: Process { process, parent: Pid::new(32262), leads: true },
        uid: look.uid,
        container: look.has_id.then(|| MAP.container.to_owned()),
        places: Places::recorded(look.mounts, look.cgroup),
    };
    let rules = Rules {
        same_user: false,
        layout: look.layout.then_some(layout),
        own_root: Some("/lrs".to_owned()),
    };
    judge(&claim, &evidence, &rules, &managers)
}

#[test]
fn a_container_is_edited_in_the_group_it_was_given() {
    let cgroup = format!("/hadoop-yarn/{}", MAP.container);
    let in_place = Decision::Take(Attach::InPlace { cgroup: cgroup.clone() });
    assert_eq!(verdict(&STARTED), in_place);
    // No recording: what the same container would have had on v2.
    let unified = format!("0::{cgroup}\n");
    assert_eq!(verdict(&Look { mounts: V2, cgroup: &unified, ..STARTED }), in_place);
}

#[test]
fn nothing_is_decided_before_it_runs_its_own_program() {
    // The moments seen between the rename of the pid file and the last exec, 20 ms apart: still
    // with the NodeManager, as three users one after the other, then in its group.
    let moments = [
        (WITHOUT_GROUPS, MANAGER_UID),
        (WITHOUT_GROUPS, 0),
        (IN_ITS_GROUP, RUN_AS_UID),
        // The shell of launch_container.sh, before it exports anything to the program.
        (IN_ITS_GROUP, RUN_AS_UID),
    ];
    for (cgroup, uid) in moments {
        let found = verdict(&Look { cgroup, uid, has_id: false, ..STARTED });
        assert!(matches!(found, Decision::Wait(_)), "{found:?}");
    }
    // Even one that tells its id early is not moved out of where the NodeManager is.
    let found = verdict(&Look { cgroup: WITHOUT_GROUPS, ..STARTED });
    assert!(matches!(&found, Decision::Wait(why) if why.contains("cpu.enabled")), "{found:?}");
}

#[test]
fn without_groups_of_their_own_containers_are_moved_whoever_they_run_as() {
    let start = Look { cgroup: WITHOUT_GROUPS, layout: false, ..STARTED };
    let taken = verdict(&start);
    assert!(matches!(taken, Decision::Take(Attach::Session { .. })), "{taken:?}");
    let early = verdict(&Look { has_id: false, uid: 0, ..start });
    assert!(matches!(early, Decision::Wait(_)), "{early:?}");
}
