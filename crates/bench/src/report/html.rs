//! The report as one page: nothing is fetched, no script runs, so it can be kept and mailed.
//! Well-formed XML too, which the tests hold it to: no name can break out of its place.

use std::fmt::Write as _;

use super::compare::{Against, Comparison, Ratio};
use super::figures::Figures;
use super::model::{LoadReport, Report, SettingReport};
use super::pictures::{self, Row, escape, style};
use super::words;
use crate::record::Run;

const STYLE: &str = include_str!("page.css");

/// The page. `runs` are those the report was made of; the timelines show one round of them.
pub(super) fn page(report: &Report, runs: &[Run]) -> String {
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n",
    );
    let suite = escape(&report.machine.suite);
    let _ = write!(
        page,
        "<title>lrsctl bench: {suite}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{suite}</h1>\n<p>{}</p>\n",
        escape(&report.machine.about)
    );
    let failed = report.runs - report.complete;
    let class = if failed == 0 { "soft" } else { "bad" };
    let _ = writeln!(
        page,
        "<p class=\"{class}\">{} of {} runs complete, {failed} failed; {} rounds asked for</p>",
        report.complete, report.runs, report.machine.rounds
    );
    list(&mut page, "warnings", "Warning", &report.warnings);
    overview(&mut page, report);
    for load in &report.loads {
        of_load(&mut page, load, runs);
    }
    page.push_str("<h2>The node</h2>\n<div class=\"wide\"><table>\n");
    for (what, value) in words::machine(&report.machine) {
        let _ = writeln!(
            page,
            "<tr><th class=\"text\">{what}</th><td class=\"text long\">{}</td></tr>",
            escape(&value)
        );
    }
    for setting in &report.machine.settings {
        let _ = writeln!(
            page,
            "<tr><th class=\"text\">setting {}</th><td class=\"text long\">{}</td></tr>",
            escape(&setting.name),
            escape(&setting.about)
        );
    }
    page.push_str("</table></div>\n<h2>What the figures mean</h2>\n");
    list(&mut page, "methods", "", &words::methods(&report.machine));
    page.push_str("</body>\n</html>\n");
    page
}

fn overview(page: &mut String, report: &Report) {
    let against_best = report.loads.iter().filter_map(|load| {
        let one = load.comparisons.iter().find(|one| one.against == Against::BestStatic)?;
        let label = format!("{} / {}", load.load.name, one.with.join(", "));
        Some(Row { label, ratio: one.ratio.clone(), verdict: one.verdict })
    });
    let means = report.means.iter().filter(|mean| mean.against == Against::BestStatic);
    let means = means.map(|mean| {
        let ratio = Ratio { median: mean.ratio, interval: mean.interval, pairs: Vec::new() };
        let label = format!("mean, {}", words::over(mean.over));
        Row { label, verdict: mean.verdict, ratio }
    });
    let rows: Vec<Row> = against_best.chain(means).collect();
    page.push_str("<div class=\"pair\">\n");
    let caption = "LRS over the best static setting of each load: makespan ratio, median and \
                   95 % interval, a dot a round";
    let forest = pictures::forest(caption, &rows, None, ["LRS takes less time", "LRS takes more"]);
    figure(page, caption, forest);
    page.push_str("<div>\n");
    for load in &report.loads {
        let _ = writeln!(page, "<h3>{}</h3>", escape(&load.load.name));
        comparisons(page, &load.comparisons);
    }
    page.push_str("</div>\n</div>\n");
    if report.means.is_empty() {
        return;
    }
    page.push_str("<h3>Geometric means</h3>\n<div class=\"wide\"><table>\n");
    heads(page, &["LRS over", "loads"], &["ratio", "95 % interval", "LRS over itself"]);
    for mean in &report.means {
        let _ = writeln!(
            page,
            "<tr><td class=\"text\">{}</td><td class=\"text long\">{}: {}</td><td \
             class=\"{}\">{}</td><td>{}</td><td>{}</td></tr>",
            words::against(mean.against),
            words::over(mean.over),
            escape(&mean.loads.join(", ")),
            style(mean.verdict),
            words::mean(mean),
            words::interval(mean.interval),
            words::interval(mean.noise)
        );
    }
    page.push_str("</table></div>\n");
}

fn comparisons(page: &mut String, comparisons: &[Comparison]) {
    page.push_str("<ul>\n");
    for one in comparisons {
        let _ = writeln!(
            page,
            "<li>against the {} ({}): {}, <span class=\"{}\">{}</span></li>",
            words::against(one.against),
            escape(&one.with.join(", ")),
            words::ratio_with_pairs(&one.ratio),
            style(one.verdict),
            escape(&one.words)
        );
    }
    if comparisons.is_empty() {
        page.push_str("<li class=\"bad\">nothing to compare: no round has both LRS and a static setting</li>\n");
    }
    page.push_str("</ul>\n");
}

fn of_load(page: &mut String, load: &LoadReport, runs: &[Run]) {
    let (name, class) = (escape(&load.load.name), words::class(load.load.class));
    let _ = write!(
        page,
        "<h2>{name}</h2>\n<p>{} <span class=\"soft\">({class}, {} tasks)</span></p>\n",
        escape(&load.load.about),
        load.load.tasks
    );
    comparisons(page, &load.comparisons);
    if let Some(noise) = &load.noise {
        let _ = writeln!(
            page,
            "<p class=\"soft\">Noise floor, LRS over itself: {}</p>",
            words::ratio_with_pairs(noise)
        );
    }
    list(page, "warnings", "Warning", &load.warnings);
    let failed = load
        .failed
        .iter()
        .map(|one| format!("{}, round {}: {}", one.setting, one.round, one.faults.join("; ")));
    list(page, "failed", "Failed", &failed.collect::<Vec<_>>());
    page.push_str("<div class=\"pair\">\n");
    figure(
        page,
        "Makespan: median, quartiles, and every complete run as a dot",
        pictures::makespans(load),
    );
    let rows: Vec<Row> = load
        .settings
        .iter()
        .filter_map(|one| {
            let (ratio, verdict) = (one.ratio.clone()?, one.verdict?.of_the_other());
            Some(Row { label: one.name.clone(), ratio, verdict })
        })
        .collect();
    let title = format!("{}: makespan of each setting over that of LRS", load.load.name);
    figure(
        page,
        "Makespan over that of LRS in the same round: median, 95 % interval, a dot a round; the \
         band is the noise floor. + and green: LRS takes less time; ! and orange: more",
        pictures::forest(
            &title,
            &rows,
            load.noise.as_ref(),
            ["faster than LRS", "slower than LRS"],
        ),
    );
    page.push_str("</div>\n");
    settings(page, load);
    slowdowns(page, load);
    courses(page, load, runs);
}

/// Two tables, so that neither is wider than a screen: times, and what tasks and node did.
fn settings(page: &mut String, load: &LoadReport) {
    const TIMES: [&str; 6] =
        ["runs", "makespan", "quartiles, s", "/ LRS", "95 % interval", "slowdown"];
    const REST: [&str; 13] = [
        "run time",
        "p95",
        "response",
        "p95",
        "CPU",
        "iowait",
        "others",
        "slots",
        "switches/s",
        "read",
        "written",
        "promoted",
        "expanded",
    ];
    for (names, skipped) in [(&TIMES[..], 0), (&REST[..], TIMES.len())] {
        page.push_str("<div class=\"wide\"><table>\n");
        heads(page, &["setting"], names);
        for one in &load.settings {
            let reference = load.reference().is_some_and(|reference| reference.name == one.name);
            let class = if reference { " class=\"reference\"" } else { "" };
            let _ = write!(page, "<tr{class}><td class=\"text\">{}</td>", escape(&one.name));
            for (cell, class) in cells(one, reference).into_iter().skip(skipped).take(names.len()) {
                let _ = write!(page, "<td{class}>{cell}</td>");
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table></div>\n");
    }
}

/// The cells of both tables, each with its class.
fn cells(one: &SettingReport, reference: bool) -> Vec<(String, String)> {
    let Figures { makespan, decisions, slowdown, .. } = &one.figures;
    let figures = &one.figures;
    let of_ratio = words::ratio(one.ratio.as_ref());
    let class = one
        .verdict
        .map_or_else(String::new, |one| format!(" class=\"{}\"", style(one.of_the_other())));
    let bad = if one.runs > figures.complete { " class=\"bad\"" } else { "" };
    let mut cells = vec![
        (format!("{}/{}", figures.complete, one.runs), bad.to_owned()),
        (words::seconds(makespan.as_ref().map(|makespan| makespan.median)), String::new()),
        (words::quartiles(makespan.as_ref()), String::new()),
        (if reference { "1".to_owned() } else { of_ratio }, class),
    ];
    let rest = [
        words::interval(one.ratio.as_ref().and_then(|ratio| ratio.interval)),
        words::times(slowdown.as_ref()),
        words::seconds(figures.run_time_mean),
        words::seconds(figures.run_time_p95),
        words::seconds(figures.response_mean),
        words::seconds(figures.response_p95),
        words::percent(figures.effective),
        words::percent(figures.iowait),
        words::percent(figures.others),
        words::number(figures.slots_in_use),
        words::rate(figures.context_switches_per_second),
        words::bytes(figures.read_bytes),
        words::bytes(figures.written_bytes),
        words::number(decisions.map(|decisions| decisions.promoted)),
        words::number(decisions.map(|decisions| decisions.expanded)),
    ];
    cells.extend(rest.map(|cell| (cell, String::new())));
    cells
}

/// Slowdown by group, where the single tasks were run.
fn slowdowns(page: &mut String, load: &LoadReport) {
    if load.alone.is_empty() {
        return;
    }
    page.push_str("<h3>Slowdown against running alone</h3>\n<div class=\"wide\"><table>\n");
    let names: Vec<String> = load
        .alone
        .iter()
        .map(|one| format!("{} (alone {})", one.group, words::seconds(Some(one.run_time.median))))
        .collect();
    heads(page, &["setting"], &names.iter().map(String::as_str).collect::<Vec<_>>());
    for one in &load.settings {
        let _ = write!(page, "<tr><td class=\"text\">{}</td>", escape(&one.name));
        for alone in &load.alone {
            let groups = &one.figures.slowdown_of_groups;
            let of_group = groups.iter().find(|found| found.group == alone.group);
            let cell = words::known(of_group, |found| {
                format!(
                    "{} ({}), {} tasks",
                    words::times(Some(&found.slowdown)),
                    words::quartiles(Some(&found.slowdown)),
                    found.slowdown.count
                )
            });
            let _ = write!(page, "<td>{cell}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn courses(page: &mut String, load: &LoadReport, runs: &[Run]) {
    let Some(round) = load.shown_round else { return };
    let of_round = |run: &&Run| run.load == load.load.name && run.round == round;
    let shown: Vec<&Run> = load
        .settings
        .iter()
        .filter_map(|one| runs.iter().filter(of_round).find(|run| run.setting == one.name))
        .collect();
    let end = shown.iter().map(|run| run.lasted_seconds).fold(0.0, f64::max);
    let points = shown.iter().flat_map(|run| &run.timeline);
    let most = points.flat_map(|point| {
        [Some(point.running), point.active_capacity, point.passive_capacity].into_iter().flatten()
    });
    let slots = most.chain(shown.iter().filter_map(|run| run.static_slots)).max().unwrap_or(1);
    let _ = writeln!(
        page,
        "<h3>How round {round} went</h3>\n<p class=\"soft\">The round whose makespan of LRS is \
         nearest to its median; all over the same time.</p>"
    );
    legend(page);
    page.push_str("<div class=\"many\">\n");
    for run in shown {
        let _ = writeln!(page, "<figure>{}</figure>", pictures::course(run, end, slots));
    }
    page.push_str("</div>\n");
}

fn legend(page: &mut String) {
    let patch = |class: &str| {
        format!("<rect class=\"{class}\" x=\"0\" y=\"1\" width=\"24\" height=\"10\"/>")
    };
    let line = |class: &str| format!("<path class=\"{class}\" d=\"M0 6H24\"/>");
    page.push_str("<div class=\"legend\">");
    for (mark, what) in [
        (patch("area effective"), "CPU used"),
        (patch("area iowait"), "iowait"),
        (line("step active"), "active slots in use"),
        (line("step passive"), "passive slots in use"),
        (line("step plain"), "tasks, no tiers"),
        (line("step plain capacity"), "dashed: slots there are"),
        (patch("span active"), "task while active"),
        (patch("span passive"), "task while passive"),
        (patch("span both"), "task that was demoted"),
        (patch("span plain"), "task, no tiers"),
        (patch("span failed"), "task that failed"),
        (line("waits"), "waits for a slot"),
    ] {
        let _ = write!(page, "<span><svg viewBox=\"0 0 24 12\">{mark}</svg>{what}</span>");
    }
    page.push_str("</div>\n");
}

fn heads(page: &mut String, texts: &[&str], figures: &[&str]) {
    page.push_str("<tr>");
    for name in texts {
        let _ = write!(page, "<th class=\"text\">{}</th>", escape(name));
    }
    for name in figures {
        let _ = write!(page, "<th>{}</th>", escape(name));
    }
    page.push_str("</tr>\n");
}

fn figure(page: &mut String, caption: &str, picture: Option<String>) {
    if let Some(picture) = picture {
        let _ = writeln!(page, "<figure><figcaption>{caption}</figcaption>\n{picture}</figure>");
    }
}

/// A list, each entry after `first`; nothing without entries.
fn list(page: &mut String, class: &str, first: &str, entries: &[String]) {
    if entries.is_empty() {
        return;
    }
    let _ = writeln!(page, "<ul class=\"{class}\">");
    for entry in entries {
        let colon = if first.is_empty() { "" } else { ": " };
        let _ = writeln!(page, "<li>{first}{colon}{}</li>", escape(entry));
    }
    page.push_str("</ul>\n");
}

#[cfg(test)]
mod tests;
