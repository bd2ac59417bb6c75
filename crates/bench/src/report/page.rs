//! The report as one page and as Markdown, by the templates beside this crate's sources.
//!
//! On the page nothing is fetched and no script runs, so it can be kept and mailed. It is
//! well-formed XML too, which the tests hold it to: no name can break out of its place.

use askama::Template;
use lrs_term::Failure;

use super::model::{LoadReport, Report};
use super::pictures::{self, Row};
use super::ratio::{Against, Ratio};
use super::{demo, view, words};
use crate::record::Run;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    /// What the demo found, which its page begins with; `None`: it is no demo.
    opening: Option<String>,
    overview: Option<String>,
    loads: Vec<Load<'a>>,
}

#[derive(Template)]
#[template(path = "report.md", escape = "none")]
struct Markdown<'a> {
    report: &'a Report,
}

/// A load and its pictures.
struct Load<'a> {
    report: &'a LoadReport,
    makespans: Option<String>,
    slowdowns: Option<String>,
    ratios: Option<String>,
    courses: Vec<String>,
}

fn rendered(template: &impl Template) -> Result<String, Failure> {
    let made = template.render();
    // askama leaves the last newline of a template out.
    made.map(|text| text + "\n")
        .map_err(|error| Failure::failed(format!("cannot make the report: {error}")))
}

/// The page. `runs` are those the report was made of; the timelines show one round of them.
pub(super) fn html(report: &Report, runs: &[Run]) -> Result<String, Failure> {
    let loads = report.loads.iter().map(|load| Load {
        report: load,
        makespans: pictures::makespans(load),
        slowdowns: pictures::slowdowns(load),
        ratios: ratios(load),
        courses: courses(load, runs),
    });
    let opening = (report.machine.suite == demo::SUITE).then(|| demo::result(report));
    rendered(&Page { report, opening, overview: overview(report), loads: loads.collect() })
}

/// The pictures of ratios and slowdowns by themselves, with the names of their files.
pub(super) fn pictures(report: &Report) -> Vec<(String, String)> {
    let of_load = |load: &LoadReport| {
        let named = |kind: &str| format!("{}-{kind}.svg", load.load.name);
        [("ratios", ratios(load)), ("slowdowns", pictures::slowdowns(load))]
            .map(|(kind, picture)| Some((named(kind), picture?)))
    };
    let of_loads = report.loads.iter().flat_map(of_load).flatten();
    overview(report).map(|all| ("ratios.svg".to_owned(), all)).into_iter().chain(of_loads).collect()
}

/// The same as tables in Markdown, without pictures.
pub(super) fn markdown(report: &Report) -> Result<String, Failure> {
    rendered(&Markdown { report })
}

fn overview(report: &Report) -> Option<String> {
    let of_loads = report.loads.iter().filter_map(|load| {
        let one = load.comparisons.iter().find(|one| one.against == Against::BestStatic)?;
        let label = format!("{} / {}", load.load.name, one.with.join(", "));
        Some(Row { label, ratio: one.ratio.clone(), verdict: one.verdict })
    });
    let means = report.means.iter().filter(|mean| mean.against == Against::BestStatic);
    let means = means.map(|mean| Row {
        label: format!("mean, {}", words::over(mean.over)),
        ratio: Ratio { median: mean.ratio, interval: mean.interval, pairs: Vec::new() },
        verdict: mean.verdict,
    });
    let rows: Vec<Row> = of_loads.chain(means).collect();
    pictures::forest(&rows, None, "makespan of LRS over the other: left of 1 LRS takes less time")
}

fn ratios(load: &LoadReport) -> Option<String> {
    let rows: Vec<Row> = load
        .settings
        .iter()
        .filter_map(|one| {
            let (ratio, verdict) = (one.ratio.clone()?, one.verdict?);
            Some(Row { label: one.name.clone(), ratio, verdict })
        })
        .collect();
    let axis = "makespan of LRS over that of the setting: left of 1 LRS takes less time";
    pictures::forest(&rows, load.noise.as_ref(), axis)
}

fn courses(load: &LoadReport, runs: &[Run]) -> Vec<String> {
    let Some(round) = load.shown_round else { return Vec::new() };
    let of_round = |run: &&Run| run.load == load.load.name && run.round == round;
    let run_of = |name: &str| runs.iter().filter(of_round).find(|run| run.setting == name);
    let shown: Vec<&Run> = load.settings.iter().filter_map(|one| run_of(&one.name)).collect();
    let end = shown.iter().map(|run| run.lasted_seconds).fold(0.0, f64::max);
    let points = shown.iter().flat_map(|run| &run.timeline);
    let most = points.flat_map(|point| {
        [Some(point.running), point.active_capacity, point.passive_capacity].into_iter().flatten()
    });
    let slots = most.chain(shown.iter().filter_map(|run| run.static_slots)).max().unwrap_or(1);
    shown.into_iter().map(|run| pictures::course(run, end, slots)).collect()
}
