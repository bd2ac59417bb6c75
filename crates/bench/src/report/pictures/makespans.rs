//! Makespan of each setting: the median as a bar, quartiles as an error mark, each run a dot.

use super::super::model::{LoadReport, SettingReport};
use super::super::words;
use super::{Anchor, Rect, Scale, Svg, cut};
use crate::record::SettingKind;

const WIDTH: f64 = 420.0;
const ROW: f64 = 36.0;
const AXIS: f64 = 34.0;
/// The label stands above its bar, so that names may be long and bars too.
const BAR_BELOW_TOP: f64 = 17.0;
const BAR: f64 = 13.0;

/// None if no run is complete.
pub(in super::super) fn makespans(load: &LoadReport) -> Option<String> {
    let all = load.settings.iter().flat_map(|one| &one.figures.makespans);
    let most = all.map(|makespan| makespan.seconds).reduce(f64::max)?;
    let scale = Scale { values: [0.0, most * 1.03], places: [2.0, WIDTH - 8.0] };
    let foot = ROW * load.settings.len() as f64;
    let title = format!("{}: makespan of each setting in seconds", load.load.name);
    let mut svg = Svg::new(WIDTH, foot + AXIS, &title);
    for (value, name) in scale.ticks(5.0) {
        let x = scale.at(value);
        svg.line("grid", (x, 0.0), (x, foot));
        svg.text("axis", (x, foot + 13.0), Anchor::Middle, &name);
    }
    svg.text("axis", (WIDTH / 2.0, foot + 29.0), Anchor::Middle, "makespan, seconds");
    for (nth, one) in (0..).zip(&load.settings) {
        row(&mut svg, scale, one, f64::from(nth) * ROW);
    }
    Some(svg.finish())
}

fn row(svg: &mut Svg, scale: Scale, one: &SettingReport, top: f64) {
    let figures = &one.figures;
    svg.text("label", (2.0, top + 12.0), Anchor::Start, &cut(&one.name, 40));
    let Some(makespan) = &figures.makespan else {
        svg.text("label bad", (WIDTH - 8.0, top + 12.0), Anchor::End, "no complete run");
        return;
    };
    let failed = one.runs - figures.complete;
    let value = words::seconds(Some(makespan.median));
    let value = if failed == 0 { value } else { format!("{failed} failed; {value}") };
    let class = if failed == 0 { "label" } else { "label bad" };
    svg.text(class, (WIDTH - 8.0, top + 12.0), Anchor::End, &value);
    let (from, middle) = (scale.at(0.0), top + BAR_BELOW_TOP + BAR / 2.0);
    let bar = Rect {
        x: from,
        y: top + BAR_BELOW_TOP,
        width: scale.at(makespan.median) - from,
        height: BAR,
    };
    svg.rect(class_of(one.kind), bar, &format!("{}: median {value}", one.name));
    for (nth, run) in figures.makespans.iter().enumerate() {
        // Above and below the error mark, so that neither hides the other.
        let y = middle + [-4.0, 4.0][nth % 2];
        let title = format!("round {}: {}", run.round, words::seconds(Some(run.seconds)));
        svg.dot("dot", (scale.at(run.seconds), y), 1.8, &title);
    }
    let [low, high] = makespan.quartiles.map(|value| scale.at(value));
    svg.line("mark", (low, middle), (high, middle));
    for x in [low, high] {
        svg.line("mark", (x, middle - 5.0), (x, middle + 5.0));
    }
}

fn class_of(kind: SettingKind) -> &'static str {
    match kind {
        SettingKind::Static => "bar static",
        SettingKind::StaticCgroup => "bar cgroup",
        SettingKind::Lrs => "bar lrs",
        SettingKind::LrsAgain => "bar again",
        SettingKind::LrsVariant => "bar variant",
        SettingKind::Alone => "bar",
    }
}
