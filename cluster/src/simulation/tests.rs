//! Small clusters of every policy: nothing is lost, no slot is used twice, the same seed is the same.

mod traces;

use std::time::Duration;

use crate::placement::catalogue::{Entry, Needs, POLICIES};
use crate::placement::cluster::{NodeId, State};
use crate::placement::fifo::Fifo;
use crate::placement::turn::{Policy, Turn};
use lrs_core::model::Tier;

use crate::simulation::figures::{Figures, NAMES};
use crate::simulation::report::{csv, json, tables};
use crate::simulation::run::{Refused, Run, run};
use crate::simulation::runs::{Runs, Values};
use crate::simulation::scenario::Scenario;
use crate::simulation::suite::{Suite, Wrong, outcome, play, seeded, work};

fn no_clock() -> Duration {
    Duration::ZERO
}

/// Maps and reduces, groups, slow tasks, nodes that go down, on each kind of node.
const SMALL: &str = r#"
title = "small"
policies = ["fifo", "data-local", "lrs", "layering", "wco", "delay", "delay-simple", "delay-offers", "lsap",
            "lsap-uniform", "lsap-fair", "dla"]
replicas = 2
placement = "racks"
[nodes]
count = 6
racks = 2
active = 2
passive = 1
cpus = 2
speed_spread = 0.2
capacity = { cpus = 4, memory_bytes = 4e9, disk_bytes = 1e12 }
[network]
within_rack_bytes_per_sec = 1e8
between_racks_bytes_per_sec = 2e7
[arrivals]
mean_seconds = 5
repeat = 2
[stragglers]
share = 0.1
[[groups]]
name = "a"
weight = 1
[[groups]]
name = "b"
weight = 2
min_slots = 2
[[job]]
name = "small"
jobs = 3
maps = 2
map = { seconds = 6, spread = 0.3, computing = 0.9, bytes = 100000000, demand = { cpus = 1 } }
[[job]]
name = "large"
maps = 20
reduces = 3
priority = 1
map = { seconds = 9, spread = 0.3, computing = 0.3, bytes = 100000000, demand = { cpus = 1 } }
reduce = { seconds = 12 }
[[case]]
name = "static"
[case.failures]
after_seconds = 60
down_seconds = 20
[case.preempt]
minimum_seconds = 10
fair_seconds = 10
[[case]]
name = "shared"
nodes = { kind = "shared" }
[[case]]
name = "lrs"
nodes = { kind = "lrs" }
"#;

fn small() -> Suite {
    Suite::parse(SMALL).unwrap()
}

#[test]
fn no_task_is_lost_and_no_slot_is_used_twice() {
    let suite = small();
    assert_eq!(suite.cases.len(), 3 * POLICIES.len());
    for (name, scenario) in &suite.cases {
        let mut figures = Figures::default();
        let mut run = Run::new(scenario, 1, no_clock, &mut figures).unwrap();
        let mut steps = 0;
        while !run.is_over() {
            assert!(run.step().unwrap_or_else(|error| panic!("{name}: {error}")), "{name}");
            run.check().unwrap_or_else(|what| panic!("{name}: {what}"));
            steps += 1;
            assert!(steps < 100_000, "{name} does not end");
        }
        assert_eq!(run.cluster.queue().count(), 0, "{name}");
        assert_eq!(run.cluster.jobs().count(), 0, "{name}: all are forgotten");
        assert_eq!(figures.tasks(), work(scenario), "{name}");
        assert_eq!(figures.get("jobs", None), Some(8.0), "{name}");
    }
}

#[test]
fn a_task_that_no_node_can_hold_is_refused() {
    let faults = |kind: &str, memory: &str| {
        let text = format!(
            "title = ''\npolicy = 'fifo'\n[nodes]\nkind = '{kind}'\ncapacity = {{ memory_bytes = 4e9 }}\n\
             [[job]]\nname = 'j'\nmaps = 1\nmap = {{ demand = {{ memory_bytes = {memory} }} }}\n"
        );
        let faults = Suite::parse(&text).unwrap().cases[0].1.check();
        faults.iter().map(|fault| fault.at.clone()).collect::<Vec<_>>()
    };
    for kind in ["static", "shared", "lrs"] {
        assert_eq!(faults(kind, "5e9"), ["job[0].map.demand.memory_bytes"]);
        assert_eq!(faults(kind, "4e9"), [""; 0]);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for (name, scenario) in small().cases {
        let figures = |seed| {
            let scenario = Scenario { seed, ..scenario.clone() };
            Values::of(&run(&scenario, no_clock, &|_| {}).unwrap())
        };
        assert_eq!(figures(1), figures(1), "{name}");
        assert_ne!(figures(1), figures(2), "{name}");
    }
}

#[test]
fn every_figure_has_its_name_and_every_case_its_row() {
    let suite = small();
    let runs = |scenario: &Scenario| {
        let one = |number| play(&seeded(scenario, number), no_clock, &|_| {});
        let values = (0..2).map(|number| one(number).map(|figures| Values::of(&figures)));
        Ok(Runs(values.collect::<Result<_, Refused>>()?))
    };
    let outcome: Vec<_> = suite.cases.iter().map(|(_, scenario)| runs(scenario)).collect();
    let first = outcome[0].as_ref().unwrap();
    let names = NAMES.iter().map(|(name, _)| *name);
    let without: Vec<&str> = names.filter(|name| first.get(name, None).is_none()).collect();
    assert!(without.is_empty(), "{without:?}");
    let rows = tables(&suite, &outcome);
    for (name, _) in &suite.cases {
        assert!(rows.contains(&format!("| {name} |")), "{rows}");
    }
    assert_eq!(csv(&suite, &outcome).lines().count(), suite.cases.len() + 1);
    assert_eq!(json(&suite, &outcome)["cases"].as_array().map(Vec::len), Some(suite.cases.len()));
}

#[test]
fn two_runs_of_a_case_have_no_round_in_common() {
    let scenario = Scenario { seed: 7, rounds: 5, ..Scenario::default() };
    let seeds = (0..4).flat_map(|number| {
        let of = seeded(&scenario, number);
        of.seed..of.seed + of.rounds
    });
    assert_eq!(seeds.collect::<Vec<_>>(), (7..27).collect::<Vec<_>>());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let wrong = |text: &str| Suite::parse(text).unwrap_err().to_string();
    assert_eq!(wrong("title = 3"), "the file: title: integer `3`; text in quotes is wanted");
    assert!(wrong("title = ''\nnods = 1").contains("nods: there is no such key"));
    assert!(wrong("title = ''\nseeds = 0").contains("seeds: 0"));
    let case = "title = ''\n[[case]]\nname = 'x'\nreplicas = 'many'";
    assert!(wrong(case).starts_with("case \"x\": replicas: string \"many\";"), "{}", wrong(case));
    let published = "title = ''\n[[published]]\nwhat = 'w'\ncase = 'x'\nfigure = 'busy'\nvalue = 1";
    let (what, case) = ("w".to_owned(), "x".to_owned());
    assert_eq!(Suite::parse(published), Err(Wrong::NoCase { what, case }));

    let figure = "title = ''\nfigures = ['busy', 'bsy:j']";
    assert_eq!(wrong(figure), "figures: there is no figure \"bsy\"");
    let figure = "title = ''\n[[published]]\nwhat = 'w'\ncase = ''\nfigure = 'bsy'\nvalue = 1";
    assert_eq!(wrong(figure), "published figure \"w\": there is no figure \"bsy\"");
    let twice = "title = ''\n[[case]]\nname = 'x'\n[[case]]\nname = 'x'";
    assert_eq!(wrong(twice), "case \"x\": is there twice");

    let refused = |text: &str| {
        let suite = Suite::parse(&format!("title = ''\n{text}")).unwrap();
        run(&suite.cases[0].1, no_clock, &|_| {}).unwrap_err().to_string()
    };
    for (text, start) in [
        ("", "job: there is none"),
        ("replicas = 11\n[[job]]\nname = 'j'\nmaps = 1", "replicas: 11"),
        ("heartbeat_seconds = nan\n[[job]]\nname = 'j'\nmaps = 1", "heartbeat_seconds: NaN"),
        ("[[job]]\nname = 'j'", "job[0]: it has no jobs"),
        ("[[job]]\nname = 'j'\nmaps = 4294967295", "job: 4294967295 tasks in all"),
        ("[[job]]\nname = 'j'\njobs = 4294967295\nmaps = 1", "job: 4294967295 jobs in all"),
        (
            "[[job]]\nname = 'j'\nmaps = 4294967295\nreduces = 4294967295\njobs = 4294967295",
            "job: 4294967295 jobs",
        ),
        ("[[job]]\nname = 'j'\nmaps = 1\ngroup = 'g'", "job[0].group: Some(\"g\")"),
        ("policy = 'best'\n[[job]]\nname = 'j'\nmaps = 1", "policy: no policy \"best\""),
        ("policy = 'lsap'\n[[job]]\nname = 'j'\nmaps = 1", "network: missing"),
        ("nodes = { active = 0 }\n[[job]]\nname = 'j'\nmaps = 1", "after 3"),
        (
            "[network]\nwithin_rack_bytes_per_sec = 0\nbetween_racks_bytes_per_sec = 1\n[[job]]\nname = 'j'\nmaps = 1",
            "network.within",
        ),
    ] {
        let found = refused(text);
        assert!(found.starts_with(start), "{found}");
    }
}

#[test]
fn a_task_without_input_takes_what_it_says_and_a_job_as_long_as_its_waves() {
    let suite = Suite::parse(
        "title = ''\npolicy = 'fifo'\nheartbeat_seconds = 0.01\nreplicas = 1\n[nodes]\ncount = 1\nactive = 2\n\
         [[job]]\nname = 'j'\nmaps = 4\nmap = { seconds = 5 }",
    );
    let figures = run(&suite.unwrap().cases[0].1, no_clock, &|_| {}).unwrap();
    let makespan = figures.get("makespan", None).unwrap();
    assert!((makespan - 10.0).abs() < 0.1, "{makespan}");
}

#[test]
fn a_slow_node_is_as_slow_whatever_its_kind() {
    let speeds = |kind: &str| {
        let text = format!(
            "title = ''\npolicy = 'fifo'\nheartbeat_seconds = 0.01\n[nodes]\ncount = 3\nkind = '{kind}'\n\
             active = 1\ncpus = 1\nspeed_spread = 0.5\n[[job]]\nname = 'j'\nmaps = 3\nmap = {{ seconds = 10 }}"
        );
        let scenario = Suite::parse(&text).unwrap().cases.remove(0).1;
        run(&scenario, no_clock, &|_| {}).unwrap().get("makespan", None).unwrap()
    };
    let [one, two, three] = ["static", "shared", "lrs"].map(speeds);
    assert!((one - 10.0).abs() > 1.0, "{one}");
    assert!((one - two).abs() < 0.1 && (one - three).abs() < 0.3, "{one} {two} {three}");
}

#[test]
fn moving_input_takes_its_time() {
    let text = |replicas: u32| {
        format!(
            "title = ''\npolicy = 'fifo'\nreplicas = {replicas}\nheartbeat_seconds = 0.01\n\
             [nodes]\ncount = 2\nactive = 8\n[network]\nwithin_rack_bytes_per_sec = 1e6\n\
             between_racks_bytes_per_sec = 1e6\n[[job]]\nname = 'j'\nmaps = 16\n\
             map = {{ seconds = 5, bytes = 20000000 }}"
        )
    };
    let makespan = |replicas| {
        let suite = Suite::parse(&text(replicas)).unwrap();
        run(&suite.cases[0].1, no_clock, &|_| {}).unwrap().get("makespan", None).unwrap()
    };
    assert!((makespan(2) - 5.0).abs() < 0.2, "{}", makespan(2));
    assert!((makespan(1) - 25.0).abs() < 0.2, "{}", makespan(1));
}

#[test]
fn transfers_share_the_links_of_their_nodes_where_a_suite_says_so() {
    let figures = |kind: &str, shared: bool| {
        let text = format!(
            "title = ''\npolicy = 'fifo'\nreplicas = 1\nheartbeat_seconds = 0.01\nshared_links = {shared}\n\
             [nodes]\nkind = '{kind}'\ncount = 2\ncpus = 8\nactive = 8\n[network]\nwithin_rack_bytes_per_sec = 1e6\n\
             between_racks_bytes_per_sec = 1e6\n[[job]]\nname = 'j'\nmaps = 16\n\
             map = {{ seconds = 5, bytes = 20000000 }}"
        );
        let scenario = Suite::parse(&text).unwrap().cases.remove(0).1;
        let figures = run(&scenario, no_clock, &|_| {}).unwrap();
        ["makespan", "transfer_mean", "node_local"].map(|name| figures.get(name, None).unwrap())
    };
    for kind in ["static", "shared", "lrs"] {
        let [alone, _, local] = figures(kind, false);
        let [makespan, mean, same] = figures(kind, true);
        assert!((alone - 25.0).abs() < 0.5, "{kind}: {alone}");
        assert_eq!(local, same, "{kind}: the same starts");
        // Those that are not local all go from the node with more inputs to the other.
        let moved = (16.0 * (1.0 - local)).round();
        let times = (makespan - 5.0) / 20.0;
        assert!(moved > 1.0 && (times - moved).abs() < 0.1, "{kind}: {times} for {moved}");
        assert!((mean / (20.0 * moved * moved / 16.0) - 1.0).abs() < 0.01, "{kind}: {mean}");
    }
}

#[test]
fn a_node_that_is_short_of_memory_ends_tasks_and_none_is_lost() {
    let figures = |kind: &str, memory: &str| {
        let text = format!(
            "title = ''\npolicy = 'fifo'\nreplicas = 1\n[nodes]\ncount = 2\nkind = '{kind}'\nactive = 6\n\
             passive = 2\ncapacity = {{ memory_bytes = 16e9 }}\n[[job]]\nname = 'j'\nmaps = 30\n\
             map = {{ seconds = 20, computing = 0.5, demand = {{ memory_bytes = {memory} }} }}"
        );
        let scenario = Suite::parse(&text).unwrap().cases.remove(0).1;
        let figures = run(&scenario, no_clock, &|_| {}).unwrap();
        assert_eq!(figures.get("tasks", None), Some(30.0));
        ["starved", "wasted"].map(|figure| figures.get(figure, None).unwrap())
    };
    for kind in ["shared", "lrs"] {
        assert_eq!(figures(kind, "2e9"), [0.0, 0.0], "{kind}");
        let [starved, wasted] = figures(kind, "5e9");
        assert!(starved > 0.0 && wasted > 0.0, "{kind}: {starved} {wasted}");
    }
}

#[test]
fn the_last_started_are_preempted_for_they_lose_the_least() {
    let wasted = |oldest: bool| {
        let text = format!(
            "title = ''\npolicy = 'delay'\nreplicas = 1\n[nodes]\ncount = 5\nactive = 4\n\
             [preempt]\nminimum_seconds = 10\nfair_seconds = 10\noldest_first = {oldest}\n\
             [arrivals]\nmean_seconds = 60\nin_order = true\n\
             [[groups]]\nname = 'a'\nweight = 1\n[[groups]]\nname = 'b'\nweight = 1\nmin_slots = 8\n\
             [[job]]\nname = 'long'\nmaps = 100\ngroup = 'a'\nmap = {{ seconds = 300, spread = 0.3 }}\n\
             [[job]]\nname = 'short'\njobs = 9\nmaps = 8\ngroup = 'b'\nmap = {{ seconds = 9 }}"
        );
        let scenario = Suite::parse(&text).unwrap().cases.remove(0).1;
        let figures = run(&scenario, no_clock, &|_| {}).unwrap();
        assert!(figures.get("preempted", None).unwrap() > 0.0);
        figures.get("wasted", None).unwrap()
    };
    assert!(wasted(false) < wasted(true) / 2.0, "{} {}", wasted(false), wasted(true));
}

impl Run<'_> {
    /// What has to hold after each event.
    fn check(&self) -> Result<(), String> {
        let cluster = &self.cluster;
        let (mut slots, mut free, mut running) = (0, 0, 0);
        for node in cluster.nodes() {
            let of = &cluster[node];
            slots += u64::from(of.slots());
            free += u64::from(of.free(Tier::Active)) + u64::from(of.free(Tier::Passive));
            let here: Vec<_> = of.running().collect();
            running += here.len();
            for task in &here {
                if !matches!(cluster[*task].state(), State::Running(at, _) if at == node) {
                    return Err(format!("{task:?} is on {node:?} and does not run there"));
                }
                if here.iter().filter(|other| *other == task).count() != 1 {
                    return Err(format!("{task:?} is on {node:?} twice"));
                }
            }
        }
        if (slots, free) != (cluster.slots(), cluster.free_slots()) {
            return Err(format!("{slots} slots, {free} free, and the sums are others"));
        }
        let jobs: usize = cluster.jobs().map(|job| cluster[job].running()).sum();
        if jobs != running {
            return Err(format!("{running} tasks run, and {jobs} of the jobs"));
        }
        Ok(())
    }
}

#[test]
fn a_policy_that_can_start_nothing_is_reported_as_stuck() {
    let suite = Suite::parse("title = ''\nnodes = { active = 0 }\n[[job]]\nname = 'j'\nmaps = 1");
    let refused = run(&suite.unwrap().cases[0].1, no_clock, &|_| {}).unwrap_err();
    assert!(matches!(refused, Refused::Stuck(_, 1)), "{refused}");
}

#[test]
fn the_suites_that_are_shipped_can_be_run() {
    macro_rules! suites {
        ($($file:literal)*) => {[$(($file, include_str!(concat!("../../suites/", $file)))),*]};
    }
    for (file, text) in suites! {
        "million.toml" "cross.toml" "solver.toml" "preempt.toml" "failures.toml" "memory.toml" "hints.toml" "log.toml" "links.toml" "tables/delay.toml" "tables/lsap.toml"
        "tables/wco.toml" "tables/layering.toml" "tables/lrs.toml" "tables/dla.toml"
    } {
        let suite = Suite::parse(text).unwrap_or_else(|wrong| panic!("{file}: {wrong}"));
        for (name, scenario) in &suite.cases {
            // log.toml takes the jobs of a log.
            let instead =
                scenario.analysis.is_some() || scenario.solver.is_some() || file == "log.toml";
            let faults = if instead { Vec::new() } else { scenario.check() };
            assert!(faults.is_empty(), "{file}, {name}: {faults:?}");
        }
    }
}

/// The cluster of a check from outside: 100 slots full of long tasks, small jobs with one replica.
#[test]
fn delay_waits_for_seconds_and_not_for_offers() {
    let p95 = |policy: &str, seconds: u32| {
        let text = format!(
            "title = ''\npolicy = '{policy}'\nset = {{ waits = [10, 10], offers = [100, 100] }}\n\
             replicas = 1\n[nodes]\ncount = 100\nactive = 1\n[arrivals]\nmean_seconds = 30\nin_order = true\n\
             [[job]]\nname = 'filler'\nmaps = 1500\nmap = {{ seconds = {seconds}, spread = 0.5 }}\n\
             [[job]]\nname = 'small'\njobs = 60\nmaps = 1\nmap = {{ seconds = 1, bytes = 1000000 }}"
        );
        let scenario = Suite::parse(&text).unwrap().cases.remove(0).1;
        let figures = run(&scenario, no_clock, &|_| {}).unwrap();
        figures.get("job_p95", Some("small")).unwrap()
    };
    for seconds in [30, 100, 300] {
        // both waits, its second, and a free slot: of 100, one each 0.3 to 3 s, a report each 3 s
        let (waits, offers) = (p95("delay", seconds), p95("delay-offers", seconds));
        assert!(waits < 21.0 + 6.0 + 0.05 * f64::from(seconds), "{seconds}: {waits}");
        assert!(seconds < 300 || offers > 100.0, "{offers}");
    }
}

#[test]
fn what_a_policy_could_not_take_into_account_is_in_the_table_and_the_json() {
    let mut suite = small();
    suite.keep("static/lsap-uniform");
    let of = |warnings: &[&str]| {
        let mut figures = Figures::default();
        figures.warn(warnings.iter().map(|one| (*one).to_owned()));
        Values::of(&figures)
    };
    let runs = Runs(vec![of(&[]), of(&["5 of 9 tasks", "more"]), of(&["6 of 9 tasks"])]);
    let (with, without) = (vec![Ok(runs)], vec![Ok(Runs(vec![of(&[])]))]);
    let sentence = "in 2 decisions of 3 runs; the first: 5 of 9 tasks";
    let line = format!("- warning, static/lsap-uniform: {sentence}\n");
    assert!(tables(&suite, &with).ends_with(&line), "{}", tables(&suite, &with));
    assert_eq!(json(&suite, &with)["cases"][0]["warning"], sentence);
    assert!(!tables(&suite, &without).contains("warning"));
    assert!(json(&suite, &without)["cases"][0]["warning"].is_null());
}

#[test]
fn a_fault_of_shape_is_a_sentence_with_its_key() {
    let of = |text: &str| match Suite::parse(text) {
        Err(Wrong::Shape { at, what }) => format!("{at}: {what}"),
        other => panic!("{text}: {other:?}"),
    };
    let case = |text: &str| of(&format!("title = ''\n[[case]]\nname = 'k'\n{text}"));
    let whole = "a whole number from 0 on is wanted";
    for (text, expected) in [
        ("nodes = { count = 'a' }", format!("nodes.count: string \"a\"; {whole}")),
        ("nodes = { count = -1 }", format!("nodes.count: integer `-1`; {whole}")),
        ("nodes = 3", "nodes: integer `3`; a table is wanted".to_owned()),
        ("nodes = { kind = 'fast' }", "nodes.kind: \"fast\" is none of static, shared, lrs".into()),
        ("job = [{ jobs = 1 }]", "job.name: missing; write it".into()),
        ("policy = 3", "policy: integer `3`; text in quotes is wanted".into()),
        (
            "failures = { often = 3 }",
            "failures.often: there is no such key; there are after_seconds or down_seconds".into(),
        ),
    ] {
        assert_eq!(case(text), format!("case \"k\": {expected}"));
    }
    assert_eq!(of("figures = []"), "the file: title: missing; write it");
    assert!(
        of("title = ").starts_with("the file: TOML parse error at line 1"),
        "{}",
        of("title = ")
    );
}

/// One of a user's own: as `fifo`, and it warns.
#[derive(Debug)]
struct Own(Fifo);

impl Policy for Own {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        turn.warn("what an own policy cannot do".into());
        self.0.assign(nodes, turn);
    }
}

const OWN: Entry =
    Entry { name: "own", make: |_| Box::new(Own(Fifo)), needs: &[Needs::Network], ..POLICIES[2] };

#[test]
fn an_own_policy_is_simulated_like_a_shipped_one() {
    assert_eq!(POLICIES[2].name, "fifo");
    let text = SMALL.replace("[\"fifo\", ", "[\"fifo\", \"own\", ");
    let mut suite = Suite::with_own(&text, &[OWN]).unwrap();
    suite.keep("static/");
    suite.seeds = 1;
    suite.cases.truncate(2);
    let outcome = outcome(&suite, no_clock);
    let [fifo, own] = [0, 1].map(|case: usize| outcome[case].as_ref().unwrap());
    assert_eq!(fifo.json(), own.json(), "the same decisions, the same figures");
    assert_eq!(fifo.warning(), None);
    assert!(own.warning().unwrap().ends_with("of 1 runs; the first: what an own policy cannot do"));
    // A suite that does not have the policy is read, and its case is refused.
    let unknown = Suite::parse(&text).unwrap();
    let (_, scenario) = unknown.cases.iter().find(|(name, _)| name == "static/own").unwrap();
    assert!(
        play(scenario, no_clock, &|_| {}).unwrap_err().to_string().contains("no policy \"own\"")
    );
    let shipped = Suite::with_own(SMALL, &[Entry { name: "fifo", ..OWN }]).unwrap_err();
    assert!(shipped.to_string().contains("\"fifo\" is shipped"), "{shipped}");
}
