//! A tiny bench in every kind of setting, on the kernel's cgroups.

use lrs_bench::record::{Outcome, Run, SettingKind};

use super::SuiteDir;

const SUITE: &str = r#"
name = "tiny"
about = "shows that the bench works"
rounds = 1
time_limit = "1m"
programs = ["ls"]
space = "1MiB"
[quick]
scale = 0.5
[lrsd]
"daemon.sample_period" = "100ms"
"slots.active" = 2
"slots.passive" = 2
[[data]]
name = "text"
kind = "text"
size = "64KiB"
parts = 2
[[data]]
name = "sorted"
command = ["sort", "-o", "{out}", "{data}/text-{part}"]
parts = 2
[[load]]
name = "mapreduce"
class = "moderate"
check = ["sh", "-c", "test $(cat {run}/reduce-1) = 6"]
[[load.tasks]]
name = "map"
count = 6
command = ["sh", "-c", "i=0; while [ $i -lt {scale:20000} ]; do i=$((i+1)); done; wc {data}/sorted-{part} > {out}"]
arrival = "every 1ms"
[[load.tasks]]
name = "reduce"
command = ["sh", "-c", "cat {run}/map-* | wc -l > {out}"]
after = ["map"]
priority = 1
[[setting]]
name = "processes"
slots = 2
[[setting]]
name = "cgroups"
slots = 2
how = "cgroup"
[[setting]]
name = "lrs"
lrs = {}
[[setting]]
name = "lrs again"
lrs = {}
[[setting]]
name = "no expansion"
lrs = { "slots.expand" = false }
[[setting]]
name = "alone"
how = "alone"
"#;

#[test]
#[ignore = "needs root and cgroups"]
fn a_tiny_bench_runs_in_every_setting() {
    let place = SuiteDir::new(SUITE);
    let ended = place.bench(&["--quick"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let runs = place.runs();
    assert_eq!(runs.len(), 6);
    for run in &runs {
        assert_eq!(run.faults, [""; 0], "{}", run.setting);
        assert!(run.makespan_seconds.is_some_and(|makespan| makespan <= run.lasted_seconds));
        for task in &run.tasks {
            assert_eq!(task.outcome, Outcome::Ok, "{run:?}");
            let (started, ended) = (task.started.unwrap(), task.ended.unwrap());
            assert!(task.arrived <= started && started <= ended, "{run:?}");
        }
    }
    let of = |setting: &str| runs.iter().find(|run| run.setting == setting).unwrap();

    let alone = of("alone");
    assert_eq!(
        alone.tasks.iter().map(|task| &*task.name).collect::<Vec<_>>(),
        ["map-1", "map-2", "map-3"]
    );
    for setting in ["processes", "cgroups", "lrs", "lrs again", "no expansion"] {
        let tasks = &of(setting).tasks;
        assert_eq!(tasks.len(), 7);
        let last = tasks[..6].iter().map(|task| task.ended.unwrap()).fold(0.0, f64::max);
        assert!(tasks[6].arrived >= last, "reduce is after map");
    }
    assert!(of("processes").decisions.is_none());
    assert!(most_at_once(of("processes")) <= 2);
    for setting in ["cgroups", "lrs", "lrs again", "no expansion"] {
        let run = of(setting);
        assert!(run.decisions.is_some());
        for point in &run.timeline {
            assert!(point.active_used <= Some(2), "{setting} {point:?}");
            assert_eq!(point.active_capacity, Some(2));
        }
    }
    let grouped = of("cgroups");
    assert!(grouped.tasks.iter().all(|task| task.began_active == Some(true)));
    assert_eq!((grouped.static_slots, grouped.decisions.unwrap().promoted), (Some(2), 0));
    let shaped = of("lrs");
    assert!(shaped.tasks.iter().any(|task| task.began_active == Some(false)));
    assert!(shaped.tasks.iter().any(|task| task.promoted.is_some()));

    let machine = std::fs::read(place.output().join("machine.json")).unwrap();
    let machine: lrs_bench::record::Machine = serde_json::from_slice(&machine).unwrap();
    let kinds: Vec<SettingKind> = machine.settings.iter().map(|setting| setting.kind).collect();
    use SettingKind::*;
    assert_eq!(kinds, [Static, StaticCgroup, Lrs, LrsAgain, LrsVariant, Alone]);
    assert_eq!((machine.loads[0].tasks, machine.rounds), (7, 1));
    assert_eq!(place.left(), [""; 0]);
    let groups = std::process::Command::new("find")
        .args(["/sys/fs/cgroup", "-name", "lrs-bench-*"])
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&groups.stdout).contains("lrs-bench"), "{groups:?}");
}

/// The most tasks that ran at one time.
fn most_at_once(run: &Run) -> usize {
    let spans: Vec<(f64, f64)> =
        run.tasks.iter().map(|task| (task.started.unwrap(), task.ended.unwrap())).collect();
    let at =
        |moment: f64| spans.iter().filter(|(from, to)| *from <= moment && moment < *to).count();
    spans.iter().map(|&(from, _)| at(from)).max().unwrap()
}
