//! The pictures, drawn by plotters as SVG inside the page.
//!
//! No picture says by colour alone what it says: marks, dashes and words stand beside. The four
//! colours are Okabe and Ito's, which the colour-blind and a printer can tell apart; their names
//! are those of the legend in `report.html`.

use std::error::Error;

use lrs_api::proto::NodeFigures;
use lrs_term::printable;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::Summary;
use super::model::{LoadReport, SettingReport};
use super::ratio::{Effect, Ratio};
use super::words;
use crate::record::{Outcome, Point, Run, SettingKind, Task};

/// LRS, and what is active.
const BLUE: RGBColor = RGBColor(0, 114, 178);
/// What is passive.
const ORANGE: RGBColor = RGBColor(230, 159, 0);
/// CPU used; LRS takes less time.
const GREEN: RGBColor = RGBColor(0, 128, 96);
/// Waiting for the disk; LRS takes more time, and what failed.
const RED: RGBColor = RGBColor(200, 80, 0);
/// Static settings, tasks without tiers.
const GREY: RGBColor = RGBColor(135, 147, 160);
const FAINT: RGBColor = RGBColor(222, 227, 232);
const INK: RGBColor = RGBColor(27, 33, 39);

const FONT: &str = "system-ui, DejaVu Sans, sans-serif";

/// A row of bars or ratios: its label above, the mark below.
const ROW: u32 = 38;
/// Room for the axis and its name.
const AXIS: u32 = 46;
const WIDTH: u32 = 520;

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn Error>>;

/// An SVG, or a word about why there is none: that must not cost the report.
fn picture(width: u32, height: u32, draw: impl FnOnce(&Canvas<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    let canvas = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
    let drawn = draw(&canvas).and_then(|()| Ok(canvas.present()?));
    drop(canvas);
    match drawn {
        Ok(()) => svg,
        Err(_) => "<p>This picture could not be drawn.</p>".to_owned(),
    }
}

fn text(size: u32, colour: RGBColor, x: HPos, y: VPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour).pos(Pos::new(x, y))
}

/// `text` in at most `most` characters.
fn cut(text: &str, most: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= most {
        return text.into_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// A chart of rows below each other, the first at -1 to 0, with an axis of values below.
fn rows<'a, 'b>(
    canvas: &'a Canvas<'b>,
    count: usize,
    values: std::ops::Range<f64>,
    axis: &str,
) -> Result<Chart<'a, 'b>, Box<dyn Error>> {
    let mut chart = ChartBuilder::on(canvas)
        .margin_left(8)
        .margin_right(8)
        .x_label_area_size(AXIS)
        .build_cartesian_2d(values, -(count as f64)..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(6)
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(GREY)
        .label_style(text(12, INK, HPos::Center, VPos::Top))
        .axis_desc_style((FONT, 13).into_font().color(&INK))
        .x_desc(axis)
        .draw()?;
    Ok(chart)
}

/// The label of a row at its left, its value at its right.
fn label(
    chart: &mut Chart<'_, '_>,
    values: &std::ops::Range<f64>,
    row: usize,
    (name, value): (&str, &str),
    colour: RGBColor,
) -> Drawn {
    let top = -(row as f64) - 0.08;
    let at = |x: f64, words: String, style| std::iter::once(Text::new(words, (x, top), style));
    chart.draw_series(at(values.start, cut(name, 36), text(13, INK, HPos::Left, VPos::Top)))?;
    let style = text(13, colour, HPos::Right, VPos::Top);
    chart.draw_series(at(values.end, value.to_owned(), style))?;
    Ok(())
}

fn dot(at: (f64, f64)) -> Circle<(f64, f64), i32> {
    Circle::new(at, 2, INK.stroke_width(1))
}

/// Makespan of each setting. `None` if no run is complete.
pub(super) fn makespans(load: &LoadReport) -> Option<String> {
    let bar = |one: &SettingReport| {
        let figures = &one.figures;
        let dots = figures.makespans.iter().map(|makespan| makespan.seconds).collect();
        let shown = words::seconds(figures.makespan.as_ref().map(|makespan| makespan.median));
        Some((figures.makespan.clone()?, shown, dots))
    };
    bar_chart(load, "makespan, seconds", bar)
}

/// What an active task pays for those beside it. `None` if no task was run alone.
pub(super) fn slowdowns(load: &LoadReport) -> Option<String> {
    let bar = |one: &SettingReport| {
        let slowdown = one.figures.slowdown.clone()?;
        let shown = words::times(Some(&slowdown));
        Some((slowdown, shown, Vec::new()))
    };
    bar_chart(load, "run time of an active task (static slots: of any) over that alone", bar)
}

/// What a bar shows: its figures, the median in words, and dots.
type Bar = (Summary, String, Vec<f64>);

/// A bar for each setting: the median, quartiles as an error mark, each run a dot.
fn bar_chart(
    load: &LoadReport,
    axis: &str,
    of: impl Fn(&SettingReport) -> Option<Bar>,
) -> Option<String> {
    let bars: Vec<Option<Bar>> = load.settings.iter().map(of).collect();
    let ends = bars.iter().flatten().flat_map(|(summary, _, dots)| {
        dots.iter().copied().chain([summary.median, summary.quartiles[1]])
    });
    let values = 0.0..ends.reduce(f64::max)? * 1.03;
    Some(picture(WIDTH, ROW * bars.len() as u32 + AXIS, |canvas| {
        let mut chart = rows(canvas, bars.len(), values.clone(), axis)?;
        for (row, (one, shown)) in load.settings.iter().zip(&bars).enumerate() {
            bar(&mut chart, &values, row, one, shown.as_ref())?;
        }
        Ok(())
    }))
}

fn bar(
    chart: &mut Chart<'_, '_>,
    values: &std::ops::Range<f64>,
    row: usize,
    one: &SettingReport,
    shown: Option<&Bar>,
) -> Drawn {
    let Some((summary, value, dots)) = shown else {
        return label(chart, values, row, (&one.name, "no complete run"), RED);
    };
    let failed = one.runs - one.figures.complete;
    let (value, colour) =
        if failed == 0 { (value.clone(), INK) } else { (format!("{failed} failed; {value}"), RED) };
    label(chart, values, row, (&one.name, &value), colour)?;
    let bar = match one.kind {
        SettingKind::Lrs => BLUE.mix(1.0),
        SettingKind::LrsAgain | SettingKind::LrsVariant => BLUE.mix(0.5),
        SettingKind::StaticCgroup => GREY.mix(0.5),
        SettingKind::Static | SettingKind::Alone => GREY.mix(0.9),
    };
    let (top, middle, foot) = (-(row as f64) - 0.5, -(row as f64) - 0.69, -(row as f64) - 0.88);
    chart.draw_series([Rectangle::new([(0.0, top), (summary.median, foot)], bar.filled())])?;
    chart.draw_series(dots.iter().map(|at| dot((*at, middle))))?;
    let [low, high] = summary.quartiles;
    let mark = |points: [(f64, f64); 2]| PathElement::new(points, INK.stroke_width(2));
    chart.draw_series([
        mark([(low, middle), (high, middle)]),
        mark([(low, top), (low, foot)]),
        mark([(high, top), (high, foot)]),
    ])?;
    Ok(())
}

/// One ratio.
pub(super) struct Row {
    pub(super) label: String,
    pub(super) ratio: Ratio,
    /// Of LRS.
    pub(super) verdict: Effect,
}

/// Ratios below each other: median, 95 % interval, every pair as a dot, a line at 1. `None` without
/// rows; `noise` is drawn as a band; `axis` says what lies left and right of 1.
pub(super) fn forest(ratios: &[Row], noise: Option<&Ratio>, axis: &str) -> Option<String> {
    if ratios.is_empty() {
        return None;
    }
    let ends = ratios.iter().flat_map(|row| {
        let ends = row.ratio.interval.map(|interval| [interval.low, interval.high]);
        row.ratio.pairs.iter().map(|pair| pair.ratio).chain(ends.into_iter().flatten())
    });
    // Narrower than this the axis would blow up mere noise.
    let [low, high] = ends.fold([0.9_f64, 1.1_f64], |[low, high], at| [low.min(at), high.max(at)]);
    let pad = (high - low) * 0.04;
    let values = low - pad..high + pad;
    Some(picture(WIDTH, ROW * ratios.len() as u32 + AXIS, |canvas| {
        let mut chart = rows(canvas, ratios.len(), values.clone(), axis)?;
        let foot = -(ratios.len() as f64);
        if let Some(interval) = noise.and_then(|noise| noise.interval) {
            let band = [(interval.low, 0.0), (interval.high, foot)];
            chart.draw_series([Rectangle::new(band, GREY.mix(0.25).filled())])?;
        }
        // Not through the labels.
        let beside = (0..ratios.len()).map(|nth| -(nth as f64));
        let line = |top: f64| [(1.0, top - 0.46), (1.0, top - 0.94)];
        chart.draw_series(beside.map(|top| PathElement::new(line(top), INK.stroke_width(1))))?;
        for (nth, row) in ratios.iter().enumerate() {
            ratio(&mut chart, &values, nth, row)?;
        }
        Ok(())
    }))
}

fn ratio(chart: &mut Chart<'_, '_>, values: &std::ops::Range<f64>, nth: usize, row: &Row) -> Drawn {
    let colour = match row.verdict {
        Effect::Faster => GREEN,
        Effect::Slower => RED,
        Effect::NoDifference | Effect::TooFewPairs => GREY,
    };
    let value = words::ratio_with_interval(&row.ratio);
    let value = format!("{} {value}", words::mark(row.verdict));
    let ink = if colour == GREY { INK } else { colour };
    label(chart, values, nth, (&row.label, &value), ink)?;
    let middle = -(nth as f64) - 0.69;
    let apart = |nth: usize| [0.0, 0.11, -0.11].get(nth % 3).copied().unwrap_or(0.0);
    let pairs = row.ratio.pairs.iter().enumerate();
    chart.draw_series(pairs.map(|(nth, pair)| dot((pair.ratio, middle + apart(nth)))))?;
    if let Some(interval) = row.ratio.interval {
        let mark = |points: [(f64, f64); 2]| PathElement::new(points, colour.stroke_width(2));
        chart.draw_series([
            mark([(interval.low, middle), (interval.high, middle)]),
            mark([(interval.low, middle - 0.12), (interval.low, middle + 0.12)]),
            mark([(interval.high, middle - 0.12), (interval.high, middle + 0.12)]),
        ])?;
    }
    let median = (row.ratio.median, middle);
    chart.draw_series([
        EmptyElement::at(median) + Rectangle::new([(-4, -4), (4, 4)], colour.filled())
    ])?;
    Ok(())
}

/// How one run went: CPU, slots and tasks over one time axis; time runs to `end` seconds and
/// slots to `slots`, so that all of a load compare at a glance.
pub(super) fn course(run: &Run, end: f64, slots: u32) -> String {
    const HEAD: i32 = 24;
    const CPU: i32 = 84;
    const SLOTS: i32 = 78;
    // The panel of the tasks grows with them between a readable row and a whole screen.
    let tasks = (run.tasks.len() as u32 * 7).clamp(56, 240);
    let height = (HEAD + CPU + SLOTS) as u32 + tasks + AXIS;
    picture(400, height, |canvas| {
        let (head, rest) = canvas.split_vertically(HEAD);
        let lasted = words::seconds(Some(run.lasted_seconds));
        head.draw(&Text::new(
            cut(&run.setting, 36),
            (44, 4),
            text(14, INK, HPos::Left, VPos::Top),
        ))?;
        head.draw(&Text::new(lasted, (390, 4), text(14, INK, HPos::Right, VPos::Top)))?;
        let (cpu, rest) = rest.split_vertically(CPU);
        let (middle, foot) = rest.split_vertically(SLOTS);
        let end = end.max(f64::MIN_POSITIVE);
        let time = 0.0..end;
        draw_cpu(&mut panel(&cpu, &time, 1.0, "CPU, %", Foot::None)?, run)?;
        let most = f64::from(slots.max(1));
        draw_slots(&mut panel(&middle, &time, most, "slots", Foot::None)?, run)?;
        let count = run.tasks.len().max(1) as f64;
        draw_tasks(&mut panel(&foot, &time, count, "tasks, by start", Foot::Tasks)?, run)
    })
}

/// What is below a panel.
enum Foot<'a> {
    None,
    /// Seconds; the panel is that of the tasks.
    Tasks,
    /// Times, as it writes them.
    Times(&'a dyn Fn(f64) -> String),
}

/// One of the panels, of which the last has the axis of time.
fn panel<'a, 'b>(
    canvas: &'a Canvas<'b>,
    time: &std::ops::Range<f64>,
    most: f64,
    name: &str,
    foot: Foot<'_>,
) -> Result<Chart<'a, 'b>, Box<dyn Error>> {
    let last = !matches!(foot, Foot::None);
    canvas.draw(&Text::new(name.to_owned(), (44, 2), text(12, INK, HPos::Left, VPos::Top)))?;
    let mut chart = ChartBuilder::on(canvas)
        .margin_top(18)
        .margin_right(12)
        .y_label_area_size(44)
        .x_label_area_size(if last { AXIS } else { 2 })
        .build_cartesian_2d(time.clone(), 0.0..most)?;
    // The tasks begin at the top, so their numbers would stand upside down.
    let shown = |value: &f64| match foot {
        Foot::Tasks => String::new(),
        _ if most == 1.0 => format!("{:.0}", value * 100.0),
        _ => format!("{value:.0}"),
    };
    let times = |at: &f64| match foot {
        Foot::Times(times) => times(*at),
        Foot::None | Foot::Tasks => String::new(),
    };
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(GREY)
        .y_labels(3)
        .y_label_formatter(&shown)
        .x_labels(if last { 6 } else { 0 })
        .label_style((FONT, 12).into_font().color(&INK))
        .axis_desc_style((FONT, 13).into_font().color(&INK));
    match foot {
        Foot::None => {}
        Foot::Tasks => drop(mesh.x_desc("seconds since the first arrival")),
        Foot::Times(_) => drop(mesh.x_label_formatter(&times)),
    }
    mesh.draw()?;
    drop(mesh);
    Ok(chart)
}

/// The spans between the points of a timeline: a value holds since the point before.
fn spans(run: &Run) -> impl Iterator<Item = (f64, f64, &Point)> {
    let from = std::iter::once(0.0).chain(run.timeline.iter().map(|point| point.at));
    from.zip(&run.timeline).map(|(from, point)| (from, point.at, point))
}

/// From when to when, and a value.
type Span = (f64, f64, f64);

/// Bands of shares, stacked: each begins where `below` ends.
fn bands(
    chart: &mut Chart<'_, '_>,
    shares: impl Iterator<Item = (Span, f64)>,
    colour: RGBColor,
) -> Drawn {
    chart.draw_series(shares.map(|((from, to, share), below)| {
        Rectangle::new([(from, below), (to, (below + share).min(1.0))], colour.filled())
    }))?;
    Ok(())
}

/// A line that holds each value for its time; a dashed one is thin.
fn steps(
    chart: &mut Chart<'_, '_>,
    values: impl Iterator<Item = Span>,
    colour: RGBColor,
    dashed: bool,
) -> Drawn {
    let points: Vec<(f64, f64)> =
        values.flat_map(|(from, to, value)| [(from, value), (to, value)]).collect();
    if dashed {
        chart.draw_series(DashedLineSeries::new(points, 4, 3, colour.stroke_width(1)))?;
    } else {
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(())
}

fn draw_cpu(chart: &mut Chart<'_, '_>, run: &Run) -> Drawn {
    let used = |(from, to, point): (f64, f64, &Point)| Some(((from, to, point.effective?), 0.0));
    bands(chart, spans(run).filter_map(used), GREEN)?;
    let waits = spans(run)
        .filter_map(|(from, to, point)| Some(((from, to, point.iowait?), point.effective?)));
    bands(chart, waits, RED)
}

fn draw_slots(chart: &mut Chart<'_, '_>, run: &Run) -> Drawn {
    let mut steps = |value: fn(&Point) -> Option<u32>, colour: RGBColor, dashed: bool| {
        let known =
            spans(run).filter_map(|(from, to, point)| Some((from, to, value(point)?.into())));
        steps(chart, known, colour, dashed)
    };
    steps(|point| point.active_capacity, BLUE, true)?;
    steps(|point| point.passive_capacity, ORANGE, true)?;
    steps(|point| point.active_used, BLUE, false)?;
    steps(|point| point.passive_used, ORANGE, false)?;
    if !run.timeline.iter().any(|point| point.active_used.is_some()) {
        steps(|point| Some(point.running), GREY, false)?;
        if let Some(slots) = run.static_slots.map(f64::from) {
            let line = [(0.0, slots), (run.lasted_seconds, slots)];
            chart.draw_series(DashedLineSeries::new(line, 4, 3, GREY.stroke_width(1)))?;
        }
    }
    Ok(())
}

/// A row for each task, the first at the top: a thin line while it waits, a bar while it runs.
fn draw_tasks(chart: &mut Chart<'_, '_>, run: &Run) -> Drawn {
    let mut ordered: Vec<&Task> = run.tasks.iter().collect();
    let start = |task: &Task| task.started.unwrap_or(f64::INFINITY);
    ordered.sort_by(|one, other| start(one).total_cmp(&start(other)));
    let lasted = run.lasted_seconds;
    for (row, task) in ordered.iter().rev().enumerate() {
        let row = row as f64;
        let until = task.started.unwrap_or(lasted);
        let waits = [(task.arrived, row + 0.5), (until, row + 0.5)];
        chart.draw_series([PathElement::new(waits, FAINT.stroke_width(1))])?;
        let bars = bars(task, lasted).into_iter().map(|(from, to, colour)| {
            Rectangle::new([(from, row + 0.1), (to, row + 0.9)], colour.filled())
        });
        chart.draw_series(bars)?;
        if task.outcome != Outcome::Ok {
            let from = task.started.unwrap_or(task.arrived);
            let frame = [(from, row + 0.1), (task.ended.unwrap_or(lasted), row + 0.9)];
            chart.draw_series([Rectangle::new(frame, RED.stroke_width(1))])?;
        }
    }
    Ok(())
}

/// From, to and colour. When a task was demoted is not kept, so neither tier can be claimed for
/// any part of it.
fn bars(task: &Task, lasted: f64) -> Vec<(f64, f64, RGBColor)> {
    let Some(started) = task.started.filter(|_| task.outcome == Outcome::Ok) else {
        return Vec::new();
    };
    let ended = task.ended.unwrap_or(lasted);
    let promoted = task.promoted.filter(|at| started < *at && *at < ended);
    match (task.began_active, task.demoted, promoted) {
        (None, ..) | (_, Some(true), _) => vec![(started, ended, GREY)],
        (Some(true), ..) => vec![(started, ended, BLUE)],
        (Some(false), _, None) => vec![(started, ended, ORANGE)],
        (Some(false), _, Some(at)) => vec![(started, at, ORANGE), (at, ended, BLUE)],
    }
}

/// What a node did from when to when, in the unit of the axis.
pub type Figures<'r> = (f64, f64, &'r NodeFigures);

/// A count among them.
type Count = fn(&NodeFigures) -> f32;

/// The CPU and the slots of a node over `time`, which `label` writes: `lrsctl plot`. Rows are in order; between two
/// that do not touch lrsd did not run.
pub fn node(
    rows: &[Figures<'_>],
    time: &std::ops::Range<f64>,
    title: &str,
    label: &dyn Fn(f64) -> String,
) -> String {
    const HEAD: i32 = 24;
    const CPU: i32 = 190;
    const SLOTS: u32 = 170;
    picture(900, (HEAD + CPU) as u32 + SLOTS + AXIS, |canvas| {
        let (head, rest) = canvas.split_vertically(HEAD);
        head.draw(&Text::new(cut(title, 110), (44, 4), text(14, INK, HPos::Left, VPos::Top)))?;
        let (cpu, slots) = rest.split_vertically(CPU);
        let name = "CPU, %, from below: tasks (green), others (grey), waiting for disks (red)";
        let mut chart = panel(&cpu, time, 1.0, name, Foot::None)?;
        let share = |of: fn(&NodeFigures) -> Option<f32>, below: fn(&NodeFigures) -> f32| {
            rows.iter().filter_map(move |(from, to, row)| {
                Some(((*from, *to, f64::from(of(row)?)), f64::from(below(row))))
            })
        };
        let tasks = |row: &NodeFigures| row.cpu_tasks.unwrap_or_default();
        let all = |row: &NodeFigures| {
            row.cpu_tasks.unwrap_or_default() + row.cpu_others.unwrap_or_default()
        };
        bands(&mut chart, share(|row| row.cpu_tasks, |_| 0.0), GREEN)?;
        bands(&mut chart, share(|row| row.cpu_others, tasks), GREY)?;
        bands(&mut chart, share(|row| row.cpu_iowait, all), RED)?;
        let figures: [(Count, RGBColor, bool); 4] = [
            (|row| row.active_slots, BLUE, true),
            (|row| row.passive_slots, ORANGE, true),
            (|row| row.active_used, BLUE, false),
            (|row| row.passive_used, ORANGE, false),
        ];
        let counts = rows.iter().flat_map(|row| figures.map(|(figure, ..)| figure(row.2)));
        let most = f64::from(counts.fold(1.0, f32::max)) * 1.05;
        let name =
            "slots: active (blue), passive (yellow); dashed what there is, whole what is used";
        let mut chart = panel(&slots, time, most, name, Foot::Times(label))?;
        for (figure, colour, dashed) in figures {
            // Times that do not touch by less than a hundredth of what is shown do.
            let near = (time.end - time.start) / 100.0;
            for course in rows.chunk_by(|one, next| next.0 - one.1 < near) {
                let values = course.iter().map(|(from, to, row)| (*from, *to, figure(row).into()));
                steps(&mut chart, values, colour, dashed)?;
            }
        }
        Ok(())
    })
}
