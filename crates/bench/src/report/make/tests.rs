use super::super::ratio::{Against, Effect, Over};
use super::super::synthetic::{self, run, task};
use super::*;
use crate::record::Point;

/// A round of word-count: makespans by setting.
fn round(number: u32, makespans: &[(&str, f64)]) -> Vec<Run> {
    makespans
        .iter()
        .map(|(setting, seconds)| run("word-count", setting, number, *seconds))
        .collect()
}

fn of(runs: &[Run]) -> LoadReport {
    Report::new(&synthetic::machine(), runs).loads.remove(0)
}

#[test]
fn ratios_are_taken_round_by_round() {
    let mut runs = Vec::new();
    for number in 0..7 {
        // Each round is slower than the one before, as on a node that warms up.
        let drift = 1.0 + f64::from(number);
        runs.extend(round(
            number,
            &[
                ("static 1", 20.0 * drift),
                ("static 1.5", 10.0 * drift),
                ("static 2", 12.0 * drift),
                ("static 1.5, cgroups", 16.0 * drift),
                ("lrs", 8.0 * drift),
                ("lrs again", 8.0 * drift),
            ],
        ));
    }
    let load = of(&runs);
    let found: Vec<(Against, f64, Effect)> =
        load.comparisons.iter().map(|one| (one.against, one.ratio.median, one.verdict)).collect();
    assert_eq!(
        found,
        [
            (Against::BestStatic, 0.8, Effect::Faster),
            (Against::MeanStatic, 8.0 / 14.0, Effect::Faster),
            (Against::BestStaticCgroup, 0.5, Effect::Faster),
        ]
    );
    assert_eq!(load.comparisons[0].with, ["static 1.5"]);
    assert_eq!(load.comparisons[0].words, "LRS takes 20 % less time (20 to 20 %)");
    assert_eq!(load.noise.as_ref().unwrap().median, 1.0);
    assert_eq!(load.shown_round, Some(3));
    let makespan = load.reference().unwrap().figures.makespan.as_ref().unwrap();
    assert_eq!((makespan.median, makespan.quartiles, makespan.count), (32.0, [20.0, 44.0], 7));
    assert!(load.warnings.iter().any(|one| one.contains("fewer than 10 complete pairs (7)")));
}

#[test]
fn a_setting_against_itself_is_no_difference() {
    let runs: Vec<Run> =
        (0..10).flat_map(|number| round(number, &[("static 1", 9.0), ("lrs", 9.0)])).collect();
    let one = &of(&runs).comparisons[0];
    assert_eq!((one.ratio.median, one.verdict), (1.0, Effect::NoDifference));
    assert_eq!(one.words, "no difference that can be distinguished from noise");
}

#[test]
fn a_difference_within_the_noise_floor_is_none() {
    let with_noise = |again: f64| {
        let runs: Vec<Run> = (0..10)
            .flat_map(|number| {
                round(number, &[("static 1", 10.0), ("lrs", 10.3), ("lrs again", 10.3 * again)])
            })
            .collect();
        let load = of(&runs);
        (load.comparisons[0].verdict, load.warnings.iter().any(|one| one.contains("too noisy")))
    };
    assert_eq!(with_noise(1.0), (Effect::Slower, false));
    assert_eq!(with_noise(1.05), (Effect::NoDifference, true));
    assert_eq!(with_noise(0.95), (Effect::NoDifference, true));
}

#[test]
fn a_noise_floor_reaches_to_the_end_of_its_interval() {
    // The median of LRS over itself is 1, which says nothing of how far single runs are off.
    let runs: Vec<Run> = (0..10)
        .flat_map(|number| {
            let again = if number % 2 == 0 { 1.1 } else { 1.0 / 1.1 };
            round(number, &[("static 1", 10.0), ("lrs", 10.3), ("lrs again", 10.3 * again)])
        })
        .collect();
    let load = of(&runs);
    assert_eq!(load.comparisons[0].verdict, Effect::NoDifference);
    assert!(load.warnings.iter().any(|one| one.contains("too noisy")), "{:?}", load.warnings);
    let few = of(&runs
        .into_iter()
        .filter(|run| run.setting != "lrs again" || run.round < 4)
        .collect::<Vec<_>>());
    assert_eq!(few.comparisons[0].verdict, Effect::Slower);
    assert!(few.warnings.iter().any(|one| one.contains("too few complete pairs (4")));
}

#[test]
fn the_best_is_chosen_among_those_with_the_most_rounds_beside_lrs() {
    let mut runs: Vec<Run> = (0..8)
        .flat_map(|number| {
            // Fast in the rounds it has: the others had those too, and were as fast.
            let drift = if number < 3 { 1.0 } else { 2.0 };
            round(
                number,
                &[("static 1", 10.0 * drift), ("static 2", 11.0 * drift), ("lrs", 9.0 * drift)],
            )
        })
        .collect();
    for run in runs.iter_mut().filter(|run| run.setting == "static 2" && run.round >= 3) {
        run.makespan_seconds = None;
    }
    let load = of(&runs);
    assert_eq!(load.comparisons[0].with, ["static 1"]);
    assert_eq!(load.comparisons[0].ratio.pairs.len(), 8);
    let text = load.warnings.join("\n");
    assert!(
        text.contains("with 8 rounds complete beside LRS, so not among static 2 (3)"),
        "{text}"
    );
    assert!(text.contains("no comparison with the best static in cgroups"), "{text}");
}

#[test]
fn a_load_without_a_comparison_and_notes_are_reported() {
    let mut runs = synthetic::runs(6);
    for run in runs.iter_mut().filter(|run| run.load == "pi" && run.setting.contains("cgroups")) {
        run.makespan_seconds = None;
    }
    for run in runs.iter_mut().filter(|run| run.load == "sort" && run.setting == "lrs") {
        run.notes.push("the disk was not idle before".to_owned());
    }
    let report = Report::new(&synthetic::machine(), &runs);
    let text = "no comparison with the best static in cgroups, so in none of its means: pi";
    assert_eq!(report.warnings, [text]);
    let noted: Vec<&String> =
        report.loads[1].warnings.iter().filter(|one| one.contains("not idle")).collect();
    assert_eq!(noted.len(), 1);
    assert!(noted[0].contains("(sort: lrs round 0, lrs round 1, "), "{noted:?}");
}

#[test]
fn few_pairs_decide_nothing() {
    let runs: Vec<Run> =
        (0..5).flat_map(|number| round(number, &[("static 1", 20.0), ("lrs", 10.0)])).collect();
    let one = &of(&runs).comparisons[0];
    assert_eq!((one.ratio.interval, one.verdict), (None, Effect::TooFewPairs));
    assert_eq!(one.words, "too few pairs for a verdict");
}

#[test]
fn failed_runs_are_listed_and_count_in_nothing() {
    let mut runs: Vec<Run> =
        (0..3).flat_map(|number| round(number, &[("static 1", 20.0), ("lrs", 10.0)])).collect();
    // A check that did not hold, although every task ended.
    runs[0].faults = vec!["the check failed".to_owned()];
    runs[3].makespan_seconds = None;
    let load = of(&runs);
    assert_eq!(load.comparisons[0].ratio.pairs.len(), 1);
    assert_eq!(load.settings[0].figures.complete, 2);
    let failed: Vec<_> =
        load.failed.iter().map(|one| (&*one.setting, one.round, one.faults.len())).collect();
    assert_eq!(failed, [("static 1", 0, 1), ("lrs", 1, 1)]);
    let report = Report::new(&synthetic::machine(), &runs);
    assert_eq!((report.runs, report.complete), (6, 4));
    assert!(report.warnings[0].contains("sort, pi"), "{:?}", report.warnings);
}

#[test]
fn times_of_tasks_have_known_answers() {
    let mut one = run("word-count", "lrs", 0, 30.0);
    one.tasks = vec![
        task("map", 0.0, 6.0, Some(true)),
        task("map", 2.0, 10.0, Some(true)),
        task("map", 0.0, 30.0, Some(false)),
        task("reduce", 10.0, 20.0, Some(true)),
    ];
    one.tasks[1].demoted = Some(true);
    one.node.context_switches = Some(3_000);
    one.timeline = [(10.0, 2), (20.0, 4)]
        .map(|(at, running)| Point { at, running, ..Point::default() })
        .to_vec();
    let mut alone = run("word-count", "alone", 0, 1.0);
    alone.makespan_seconds = None;
    alone.tasks = vec![task("map", 0.0, 5.0, None), task("reduce", 5.0, 9.0, None)];
    let load = of(&[one, alone]);
    let figures = &load.reference().unwrap().figures;
    assert_eq!(figures.run_time_mean, Some((6.0 + 8.0 + 30.0 + 10.0) / 4.0));
    assert_eq!(figures.run_time_p95, Some(30.0));
    assert_eq!(figures.response_mean, Some((6.0 + 10.0 + 30.0 + 20.0) / 4.0));
    assert_eq!(figures.context_switches_per_second, Some(100.0));
    // The first point holds for the time before it, the last until the end.
    assert_eq!(figures.slots_in_use, Some((20.0 * 2.0 + 10.0 * 4.0) / 30.0));
    // Only the tasks that were active from begin to end: 6 s of 5 s, 10 s of 4 s.
    let groups: Vec<_> = figures
        .slowdown_of_groups
        .iter()
        .map(|one| (&*one.group, one.slowdown.median, one.slowdown.count))
        .collect();
    assert_eq!(groups, [("map", 1.2, 1), ("reduce", 2.5, 1)]);
    assert_eq!(figures.slowdown.as_ref().unwrap().median, 1.85);
    // Both that began first, the passive one too: 6 s and 30 s of 5 s.
    assert_eq!(figures.first_tasks, Some((6.0 / 5.0 + 30.0 / 5.0) / 2.0));
    assert!(load.failed.is_empty(), "single tasks need no makespan");
    assert_eq!(figures.effective, None, "unknown stays unknown");
}

#[test]
fn means_over_loads_leave_out_what_is_not_asked_for() {
    let report = Report::new(&synthetic::machine(), &synthetic::runs(6));
    let mean = |over| {
        let found = report
            .means
            .iter()
            .find(|mean| mean.over == over && mean.against == Against::BestStatic);
        found.unwrap()
    };
    assert_eq!(mean(Over::All).loads, ["word-count", "sort", "pi"]);
    assert_eq!(mean(Over::ModerateAndIo).loads, ["word-count", "sort"]);
    let interval = mean(Over::All).interval.unwrap();
    assert!(interval.contains(mean(Over::All).ratio));
    assert!(mean(Over::All).noise.is_some());
    let alone: Vec<Run> =
        synthetic::runs(6).into_iter().filter(|run| run.setting != "lrs again").collect();
    let report_without = Report::new(&synthetic::machine(), &alone);
    assert!(report_without.means.iter().all(|mean| mean.verdict == Effect::TooFewPairs));
    let load = &report_without.loads[0];
    assert!(load.warnings.iter().any(|one| one.contains("no round has LRS complete twice")));
    assert!(load.comparisons[0].words.ends_with("; the noise floor is not known"));
    let verdicts: Vec<Effect> =
        report.loads.iter().map(|load| load.comparisons[0].verdict).collect();
    assert_eq!(verdicts[..2], [Effect::Faster, Effect::Slower]);
}

#[test]
fn a_busy_node_is_reported() {
    let mut runs = synthetic::runs(6);
    for run in runs.iter_mut().filter(|run| run.load == "pi" && run.setting == "lrs") {
        run.node.others = Some(0.3);
        run.node.steal = Some(0.05);
    }
    let report = Report::new(&synthetic::machine(), &runs);
    let text = report.loads[2].warnings.join("\n");
    assert!(
        text.contains("up to 30.0 % of the CPU time (median of \"lrs\") was not the"),
        "{text}"
    );
    assert!(text.contains("up to 5.0 % of the CPU time"), "{text}");
    assert!(!report.loads[0].warnings.join("\n").contains("hypervisor"));
    // The server of a modelled disk is no disturbance until it takes more than it may.
    let mut machine = synthetic::machine();
    for run in &mut runs {
        run.node.others = Some(0.1);
    }
    let disturbed = |machine: &Machine| {
        Report::new(machine, &runs).loads[0].warnings.join("\n").contains("not the tasks' own")
    };
    assert!(disturbed(&machine));
    machine.disk.insert_str(0, "modelled: ");
    assert!(!disturbed(&machine));
}

#[test]
fn without_lrs_there_are_figures_and_no_ratios() {
    let mut machine = synthetic::machine();
    machine.settings.retain(|setting| setting.kind == SettingKind::Static);
    let report = Report::new(&machine, &round(0, &[("static 1", 20.0)]));
    assert!(report.warnings[0].contains("no setting of LRS"));
    assert!(report.means.is_empty() && report.loads[0].comparisons.is_empty());
    assert_eq!(report.loads[0].settings[0].figures.complete, 1);
}
