//! Containers of frameworks as they were: Spark 3.5.6, Tez 0.10.5 and Hadoop 3.5.0, DistributedShell
//! and Hadoop 3.4.2, by `tests/yarn/run frameworks`. Of each NodeManager's script the lines that
//! link and list files are left out, users and paths renamed.

use super::word;
use crate::discover::yarn::classify;
use crate::discover::yarn::ids::ContainerId;

struct Recorded {
    kind: &'static str,
    script: &'static str,
}

macro_rules! recorded {
    ($kind:literal, $name:literal) => {
        Recorded { kind: $kind, script: include_str!(concat!("frameworks/", $name, ".script")) }
    };
}

const ALL: &[Recorded] = &[
    recorded!("am", "shell-am"),
    recorded!("none", "shell-command"),
    recorded!("am", "spark-driver"),
    recorded!("executor", "spark-executor"),
    recorded!("am", "spark-launcher"),
    recorded!("am", "tez-am"),
    recorded!("executor", "tez-child"),
];

/// As the script exports it.
fn exported<'a>(script: &'a str, name: &str) -> Option<&'a str> {
    let line = script.lines().find_map(|line| line.strip_prefix(&format!("export {name}=\"")))?;
    line.strip_suffix('"')
}

fn container(script: &str) -> ContainerId {
    exported(script, "CONTAINER_ID").unwrap().parse().unwrap()
}

#[test]
fn masters_executors_and_commands_are_distinguished() {
    for Recorded { kind, script } in ALL {
        let container = container(script);
        let launch = classify::launch(script, &container);
        assert_eq!(word(launch.kind), *kind, "{script}");
        let node = format!("localhost:{}", exported(script, "NM_PORT").unwrap());
        assert_eq!(launch.node_id, Some(node));
    }
}

#[test]
fn the_class_of_a_master_is_enough() {
    const VARIABLE: &str = "APPLICATION_WEB_PROXY_BASE";
    for Recorded { kind, script } in ALL {
        // The ResourceManager sets it for masters alone.
        assert_eq!(script.contains(VARIABLE), *kind == "am", "{script}");
        let without = script.replace(VARIABLE, "OTHER");
        let launch = classify::launch(&without, &container(script));
        assert_eq!(word(launch.kind), *kind, "{script}");
    }
}

#[test]
fn a_number_near_the_first_is_a_masters_by_its_class_and_the_variable() {
    for Recorded { kind, script } in ALL {
        let container = ContainerId { sequence: 3, ..container(script) };
        assert_eq!(word(classify::launch(script, &container).kind), *kind, "{script}");
    }
}
