//! How one run went: CPU, slots and tasks over one time axis, one picture a setting, all of a
//! load with the same axis so that they compare at a glance.

use std::fmt::Write as _;

use super::super::words;
use super::{Anchor, Rect, Scale, Svg, cut, short};
use crate::record::{Outcome, Point, Run, Task};

const WIDTH: f64 = 360.0;
const LEFT: f64 = 34.0;
const RIGHT: f64 = 8.0;
const HEAD: f64 = 32.0;
const CPU: f64 = 64.0;
const SLOTS: f64 = 56.0;
const GAP: f64 = 20.0;
const AXIS: f64 = 32.0;
/// The panel of the tasks grows with them between a readable row and a whole screen.
const TASKS: [f64; 2] = [40.0, 190.0];
const TASK_ROW: f64 = 7.0;
/// Wider than this even a long list of tasks has rows one can see.
const LEAST_ROW: f64 = 1.2;

/// The picture of `run`; time runs to `end` seconds and slots to `slots`.
pub(in super::super) fn course(run: &Run, end: f64, slots: u32) -> String {
    let count = run.tasks.len() as f64;
    let tasks = (count * TASK_ROW).clamp(TASKS[0], TASKS[1].max(count * LEAST_ROW));
    let tops = [HEAD, HEAD + CPU + GAP, HEAD + CPU + SLOTS + 2.0 * GAP];
    let foot = tops[2] + tasks;
    let title = format!("{}, {}, round {}: CPU, slots and tasks", run.load, run.setting, run.round);
    let mut svg = Svg::new(WIDTH, foot + AXIS, &title);
    let time = Scale { values: [0.0, end.max(f64::MIN_POSITIVE)], places: [LEFT, WIDTH - RIGHT] };
    svg.text("label", (0.0, 12.0), Anchor::Start, &cut(&run.setting, 38));
    let lasted = words::seconds(Some(run.lasted_seconds));
    svg.text("label", (WIDTH - RIGHT, 12.0), Anchor::End, &lasted);
    for (value, name) in time.ticks(5.0) {
        let x = time.at(value);
        svg.line("grid", (x, HEAD), (x, foot));
        svg.text("axis", (x, foot + 13.0), Anchor::Middle, &name);
    }
    svg.text("axis", (WIDTH / 2.0, foot + 28.0), Anchor::Middle, "seconds since the first arrival");
    cpu(&mut svg, &run.timeline, time, tops[0]);
    occupancy(&mut svg, run, time, tops[1], slots);
    let rows = Scale { values: [0.0, count], places: [tops[2], foot] };
    svg.text("axis", (LEFT, tops[2] - 3.0), Anchor::Start, "tasks, by start");
    svg.text("axis", (LEFT - 4.0, foot), Anchor::End, &format!("{count}"));
    let mut ordered: Vec<&Task> = run.tasks.iter().collect();
    let start = |task: &Task| task.started.unwrap_or(f64::INFINITY);
    ordered.sort_by(|one, other| start(one).total_cmp(&start(other)));
    for (row, task) in (0..).zip(ordered) {
        bar(&mut svg, task, time, [rows.at(f64::from(row)), rows.at(f64::from(row) + 1.0)], run);
    }
    let x = time.at(run.lasted_seconds);
    svg.line("end", (x, HEAD), (x, foot));
    svg.finish()
}

fn cpu(svg: &mut Svg, timeline: &[Point], time: Scale, top: f64) {
    let share = Scale { values: [0.0, 1.0], places: [top + CPU, top] };
    frame(svg, "CPU", top, CPU, "100%");
    let effective = |point: &Point| point.effective.map(|effective| (0.0, effective));
    let iowait = |point: &Point| {
        let effective = point.effective?;
        Some((effective, effective + point.iowait?))
    };
    svg.path("area effective", &area(timeline, time, share, effective));
    svg.path("area iowait", &area(timeline, time, share, iowait));
}

/// A band between two values that hold since the point before.
fn area(
    timeline: &[Point],
    time: Scale,
    scale: Scale,
    band: impl Fn(&Point) -> Option<(f64, f64)>,
) -> String {
    let mut path = String::new();
    let mut back: Vec<(f64, f64, f64)> = Vec::new();
    let close = |path: &mut String, back: &mut Vec<(f64, f64, f64)>| {
        for (from, to, low) in back.drain(..).rev() {
            let _ = write!(path, "L{} {}H{}", short(to), short(low), short(from));
        }
        if !path.is_empty() && !path.ends_with('Z') {
            path.push('Z');
        }
    };
    let mut from = 0.0;
    for point in timeline {
        let (x, to) = (time.at(from), time.at(point.at));
        from = point.at;
        let Some((low, high)) = band(point) else {
            close(&mut path, &mut back);
            continue;
        };
        let (low, high) = (scale.at(low), scale.at(high));
        let pen = if back.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{pen}{} {}H{}", short(x), short(high), short(to));
        back.push((x, to, low));
    }
    close(&mut path, &mut back);
    path
}

fn occupancy(svg: &mut Svg, run: &Run, time: Scale, top: f64, slots: u32) {
    let count = Scale { values: [0.0, f64::from(slots.max(1))], places: [top + SLOTS, top + 2.0] };
    frame(svg, "slots", top, SLOTS, &slots.to_string());
    let mut step = |class: &str, value: fn(&Point) -> Option<u32>| {
        svg.path(class, &steps(run, time, count, value));
    };
    step("step active capacity", |point| point.active_capacity);
    step("step passive capacity", |point| point.passive_capacity);
    step("step active", |point| point.active_used);
    step("step passive", |point| point.passive_used);
    if !run.timeline.iter().any(|point| point.active_used.is_some()) {
        step("step plain", |point| Some(point.running));
        if let Some(slots) = run.static_slots {
            let y = count.at(f64::from(slots));
            svg.line("step plain capacity", (LEFT, y), (time.at(run.lasted_seconds), y));
        }
    }
}

/// A line of values that hold until the next point, the last until the end.
fn steps(run: &Run, time: Scale, scale: Scale, value: fn(&Point) -> Option<u32>) -> String {
    let mut path = String::new();
    let mut drawing = false;
    for point in &run.timeline {
        let x = time.at(point.at);
        let Some(count) = value(point) else {
            drawing = false;
            continue;
        };
        let y = scale.at(f64::from(count));
        let _ = if drawing {
            write!(path, "H{}V{}", short(x), short(y))
        } else {
            // The first reading stands for the time before it as well.
            let from = if path.is_empty() { time.at(0.0) } else { x };
            write!(path, "M{} {}H{}", short(from), short(y), short(x))
        };
        drawing = true;
    }
    if drawing {
        let _ = write!(path, "H{}", short(time.at(run.lasted_seconds)));
    }
    path
}

fn frame(svg: &mut Svg, name: &str, top: f64, height: f64, most: &str) {
    svg.text("axis", (LEFT, top - 3.0), Anchor::Start, name);
    svg.text("axis", (LEFT - 4.0, top + 8.0), Anchor::End, most);
    svg.text("axis", (LEFT - 4.0, top + height), Anchor::End, "0");
    svg.line("grid", (LEFT, top), (WIDTH - RIGHT, top));
    svg.line("base", (LEFT, top + height), (WIDTH - RIGHT, top + height));
}

/// One task: a thin line while it waits, a bar while it runs.
fn bar(svg: &mut Svg, task: &Task, time: Scale, [top, bottom]: [f64; 2], run: &Run) {
    let row = bottom - top;
    let middle = top + row / 2.0;
    let until = task.started.unwrap_or(run.lasted_seconds);
    svg.line("waits", (time.at(task.arrived), middle), (time.at(until), middle));
    let Some(started) = task.started else { return };
    let ended = task.ended.unwrap_or(run.lasted_seconds);
    let promoted = task.promoted.filter(|at| started < *at && *at < ended);
    let mut span = |class: &str, from: f64, to: f64| {
        let (x, end) = (time.at(from), time.at(to));
        let rect = Rect { x, y: top + row * 0.1, width: (end - x).max(0.6), height: row * 0.8 };
        svg.rect(class, rect, &told(task, started, ended));
    };
    match (task.began_active, task.demoted, promoted) {
        _ if task.outcome != Outcome::Ok => span("span failed", started, ended),
        (None, ..) => span("span plain", started, ended),
        // When it was demoted is not kept, so neither tier can be claimed for any part.
        (_, Some(true), _) => span("span both", started, ended),
        (Some(true), ..) => span("span active", started, ended),
        (Some(false), _, None) => span("span passive", started, ended),
        (Some(false), _, Some(at)) => {
            span("span passive", started, at);
            span("span active", at, ended);
        }
    }
}

fn told(task: &Task, started: f64, ended: f64) -> String {
    let tier = match (task.began_active, task.demoted) {
        (None, _) => "",
        (_, Some(true)) => ", demoted meanwhile",
        (Some(true), _) => ", active",
        (Some(false), _) => ", began passive",
    };
    let promoted = words::known(task.promoted, |at| format!(", promoted at {at:.1} s"));
    let promoted = if task.promoted.is_some() { promoted } else { String::new() };
    let outcome = match task.outcome {
        Outcome::Ok => String::new(),
        Outcome::Exit(status) => format!(", exit status {status}"),
        Outcome::Signal(signal) => format!(", ended by signal {signal}"),
        Outcome::TimeLimit => ", killed at the time limit".to_owned(),
        Outcome::LrsdFailed => ", killed when lrsd failed".to_owned(),
        Outcome::NotSpawned(_) => ", could not be started".to_owned(),
        Outcome::NotStarted => ", not started".to_owned(),
    };
    format!("{}: {started:.1} to {ended:.1} s{tier}{promoted}{outcome}", task.name)
}
