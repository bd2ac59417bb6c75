use std::fs;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;

fn kept(machine: &Machine, lines: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(MACHINE), serde_json::to_vec(machine).unwrap()).unwrap();
    fs::write(dir.path().join(RUNS), lines).unwrap();
    dir
}

fn lines(runs: &[Run]) -> String {
    runs.iter().map(|run| serde_json::to_string(run).unwrap() + "\n").collect()
}

fn refusal(dir: &Path) -> String {
    load(dir).expect_err("refused").to_string()
}

#[test]
fn what_was_kept_is_read_again() {
    let (machine, runs) = (synthetic::machine(), synthetic::runs(1));
    let dir = kept(&machine, &lines(&runs));
    let (found, read) = load(dir.path()).unwrap();
    assert_eq!((found, read.len()), (machine, runs.len()));
}

#[test]
fn a_line_cut_off_at_the_end_is_dropped() {
    let runs = synthetic::runs(1);
    let text = lines(&runs);
    for cut in [text.len() - 2, text.len() - 500] {
        let dir = kept(&synthetic::machine(), &text[..cut]);
        assert_eq!(load(dir.path()).unwrap().1.len(), runs.len() - 1);
    }
    let mut last = runs[0].clone();
    (last.round, last.faults) = (9, vec!["ü".to_owned()]);
    let all = text.clone() + &lines(&[last]);
    let dir = kept(&synthetic::machine(), &text);
    let cut = all.find('ü').unwrap() + 1;
    fs::write(dir.path().join(RUNS), &all.as_bytes()[..cut]).unwrap();
    assert_eq!(load(dir.path()).unwrap().1.len(), runs.len());
    // Only the newline is missing: the run is whole.
    let dir = kept(&synthetic::machine(), text.trim_end());
    assert_eq!(load(dir.path()).unwrap().1.len(), runs.len());
}

#[test]
fn every_bad_line_is_named() {
    let runs = synthetic::runs(1);
    let mut stranger = runs[0].clone();
    stranger.setting = "static 9".to_owned();
    let text = format!(
        "{}{{\"load\":\n{}not json\n{}",
        lines(&runs[..2]),
        lines(&[stranger]),
        lines(&runs[..1])
    );
    let alone = runs.iter().find(|run| run.setting == "alone").unwrap();
    let twice = lines(&[alone.clone(), alone.clone()]);
    assert!(refusal(kept(&synthetic::machine(), &twice).path()).contains("on line 1 already"));
    let message = refusal(kept(&synthetic::machine(), &text).path());
    for fault in ["line 3: ", "line 4: setting \"static 9\"", "line 5: ", "on line 1 already"] {
        assert!(message.contains(fault), "{fault}: {message}");
    }
}

#[test]
fn a_directory_without_runs_says_what_is_missing() {
    let dir = kept(&synthetic::machine(), "");
    assert!(refusal(dir.path()).contains("has no run"));
    fs::remove_file(dir.path().join(RUNS)).unwrap();
    assert!(refusal(dir.path()).contains(RUNS));
    fs::write(dir.path().join(MACHINE), "{}").unwrap();
    assert!(refusal(dir.path()).contains("missing field"));
    fs::remove_file(dir.path().join(MACHINE)).unwrap();
    assert!(refusal(dir.path()).contains(MACHINE));
}

#[test]
fn markdown_has_every_setting_and_failure() {
    let text = page::markdown(&Report::new(&synthetic::machine(), &synthetic::runs(6))).unwrap();
    for expected in [
        "| static 1.5 |",
        "| lrs without expansion |",
        "Failed: static 2, round 1",
        "\\<script\\>",
        "plain processes: static 1, static 1.5, static 2; in cgroups",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let tables = text.split("\n\n").map(|block| block.lines().filter(|line| line.starts_with('|')));
    for table in tables {
        let widths: std::collections::BTreeSet<usize> =
            table.map(|line| line.replace("\\|", "").matches('|').count()).collect();
        assert!(widths.len() <= 1, "{widths:?}");
    }
}

#[test]
fn a_report_is_written_and_fits_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let (machine, runs) = (synthetic::machine(), synthetic::runs(6));
    let (mut out, printed) = Output::captured(false);
    write(dir.path(), "bench", &machine, &runs, &mut out).unwrap();
    let text = printed.text();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in ["word-count", "% less time", "% more time", "failed: static 2, round 1", "5/6"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let json = fs::read_to_string(dir.path().join("report.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["loads"].as_array().unwrap().len(), 3);
    assert!(fs::read_to_string(dir.path().join("report.html")).unwrap().ends_with("</html>\n"));
}

#[test]
fn kept_runs_that_may_only_be_read_are_printed() {
    let dir = kept(&synthetic::machine(), &lines(&synthetic::runs(1)));
    // In the way of the file, for root too.
    fs::create_dir(dir.path().join("report.json")).unwrap();
    let (mut out, printed) = Output::captured(false);
    again(dir.path(), false, &mut out).unwrap();
    assert!(printed.text().contains("word-count"));
    let (mut out, printed) = Output::captured(true);
    let message = again(dir.path(), true, &mut out).expect_err("two forms").to_string();
    assert!(message.contains("--markdown and --json"), "{message}");
    assert_eq!(printed.text(), "");
}

fn made(name: &str) -> String {
    let mut machine = synthetic::machine();
    let mut runs = synthetic::runs(6);
    machine.loads[0].name = name.to_owned();
    machine.settings[0].name = format!("static {name}");
    for run in &mut runs {
        if run.load == "word-count" {
            run.load = name.to_owned();
        }
        if run.setting == "static 1" {
            run.setting = format!("static {name}");
        }
        for task in &mut run.tasks {
            task.name.insert_str(0, name);
            task.group.insert_str(0, name);
        }
    }
    page::html(&Report::new(&machine, &runs), &runs).unwrap()
}

#[test]
fn no_text_breaks_the_page() {
    let page = made("<b onload='x'>\"&]]>\u{1b}");
    assert!(!page.contains("<b ") && !page.contains("<script"), "unescaped");
    let mut reader = Reader::from_str(&page);
    let mut elements = 0;
    loop {
        match reader.read_event().expect("well-formed") {
            Event::Eof => break,
            Event::Start(_) | Event::Empty(_) => elements += 1,
            _ => {}
        }
    }
    assert!(elements > 1_000, "{elements}");
}

#[test]
fn the_page_fetches_nothing() {
    let page = made("plain").replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn losses_and_failures_show_like_gains() {
    let page = made("plain");
    for expected in
        ["class=\"faster\"", "class=\"slower\"", "Failed: static 2, round 1: map-3 ended"]
    {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"), "no figure is made up");
}

#[test]
fn a_picture_of_a_node_has_a_gap_where_lrsd_did_not_run() {
    let row = |hour: u16| lrs_api::proto::NodeFigures {
        active_slots: 2.0,
        active_used: 2.0,
        passive_slots: f32::from(hour),
        passive_used: 1.5,
        cpu_tasks: Some(0.6),
        cpu_others: (hour != 3).then_some(0.2),
        ..Default::default()
    };
    let kept: Vec<_> = (1..=9).filter(|hour| *hour != 5).map(|hour| (hour, row(hour))).collect();
    let rows: Vec<pictures::Figures<'_>> =
        kept.iter().map(|(hour, row)| (f64::from(*hour) - 1.0, f64::from(*hour), row)).collect();
    let label = |at: f64| format!("{at:.0} hours");
    let picture = pictures::node(&rows, &(0.0..9.0), "node <1>", &label);
    let mut reader = Reader::from_str(&picture);
    let (mut lines, mut green, mut grey) = (0, 0, 0);
    loop {
        let event = reader.read_event().expect("well-formed");
        let Event::Empty(element) = &event else {
            if event == Event::Eof {
                break;
            }
            continue;
        };
        let has = |name: &str, value: &str| {
            let found = element.try_get_attribute(name).unwrap();
            found.is_some_and(|found| &*found.value == value)
        };
        let is_blue = has("stroke", "#0072B2") && has("stroke-width", "2");
        lines += usize::from(element.name().as_ref() == "polyline" && is_blue);
        green += usize::from(has("fill", "#008060"));
        grey += usize::from(has("fill", "#8793A0"));
    }
    assert_eq!((lines, green, grey), (2, 8, 7));
    assert!(picture.contains("node &lt;1&gt;") && picture.contains("4 hours"), "{picture}");
}

#[test]
fn the_demo_says_how_many_rounds_are_complete_in_every_setting() {
    let mut machine = synthetic::machine();
    machine.rounds = 2;
    let mut runs = synthetic::runs(2);
    let of = |runs: &[Run], load: usize| {
        demo::rounds(&machine, &Report::new(&machine, runs).loads[load].settings)
    };
    // A run of the first load failed.
    assert_eq!((&*of(&runs, 0), &*of(&runs, 1)), ("1 of 2 rounds complete", "2 rounds"));
    runs.retain(|run| run.round == 1 || run.setting != "lrs");
    assert_eq!(of(&runs, 0), "0 of 2 rounds complete", "one failed, the other was not run");
    runs.retain(|run| run.setting != "lrs again");
    assert_eq!(of(&runs, 1), "0 of 2 rounds complete", "a setting that never ran");
}

#[test]
fn the_demo_calls_less_than_a_tenth_no_difference() {
    let (machine, runs) = (synthetic::machine(), synthetic::runs(2));
    let verdict = |of_lrs| {
        let mut runs = runs.clone();
        for run in &mut runs {
            run.makespan_seconds = Some(if run.setting == "lrs" { of_lrs } else { 60.0 });
        }
        demo::sentences(&Report::new(&machine, &runs).loads[0].settings).join(" ")
    };
    assert!(verdict(55.0).contains("after about the same time"));
    assert!(verdict(50.0).contains("after 17% less time"));
    assert!(verdict(67.0).contains("after 12% more time") && verdict(67.0).contains("LRS lost"));
}

#[test]
fn the_page_of_the_demo_begins_with_what_it_found() {
    let (mut machine, runs) = (synthetic::machine(), synthetic::runs(2));
    machine.rounds = 2;
    let bench = page::html(&Report::new(&machine, &runs), &runs).unwrap();
    machine.suite = demo::SUITE.to_owned();
    let demo = page::html(&Report::new(&machine, &runs), &runs).unwrap();
    let at = |page: &str, text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    let few = "rounds: 2; no verdict";
    assert!(at(&demo, "Under LRS the first tasks took") < at(&demo, "class=\"legend\""));
    assert!(at(&demo, "class=\"legend\"") < at(&demo, few), "the picture is before it");
    assert!(
        !demo.contains(&format!("Warning: {few}")) && bench.contains(&format!("Warning: {few}"))
    );
    assert!(!bench.contains("Under LRS") && at(&bench, few) < at(&bench, "class=\"legend\""));
    assert_eq!(demo.matches("class=\"legend\"").count(), bench.matches("class=\"legend\"").count());
}
