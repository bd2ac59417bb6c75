//! Ratios below each other: median, 95 % interval, every pair as a dot, a line at 1.

use super::super::compare::{Ratio, Verdict};
use super::super::words;
use super::{Anchor, Rect, Scale, Svg, cut, style};

const WIDTH: f64 = 420.0;
const ROW: f64 = 36.0;
const AXIS: f64 = 34.0;
/// Narrower than this the axis would blow up mere noise.
const LEAST_RANGE: [f64; 2] = [0.9, 1.1];

/// One ratio.
pub(in super::super) struct Row {
    pub(in super::super) label: String,
    pub(in super::super) ratio: Ratio,
    /// Of LRS, whichever side of the ratio it is on: its gains look alike in all pictures.
    pub(in super::super) verdict: Verdict,
}

/// None without rows. `noise` is drawn as a band; `faster` and `slower` say what lies left
/// and right of 1.
pub(in super::super) fn forest(
    title: &str,
    rows: &[Row],
    noise: Option<&Ratio>,
    [faster, slower]: [&str; 2],
) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let ends = rows.iter().flat_map(|row| {
        let ends = row.ratio.interval.map(|interval| [interval.low, interval.high]);
        row.ratio.pairs.iter().map(|pair| pair.ratio).chain(ends.into_iter().flatten())
    });
    let [low, high] = ends.fold(LEAST_RANGE, |[low, high], at| [low.min(at), high.max(at)]);
    let pad = (high - low) * 0.04;
    let scale = Scale { values: [low - pad, high + pad], places: [4.0, WIDTH - 4.0] };
    let foot = ROW * rows.len() as f64;
    let mut svg = Svg::new(WIDTH, foot + AXIS, title);
    if let Some(interval) = noise.and_then(|noise| noise.interval) {
        let [x, end] = [interval.low, interval.high].map(|value| scale.at(value));
        let band = Rect { x, y: 0.0, width: (end - x).max(1.0), height: foot };
        let told = words::interval(Some(interval));
        svg.rect("noise", band, &format!("noise floor: LRS over itself, {told}"));
    }
    for (value, name) in scale.ticks(5.0) {
        let x = scale.at(value);
        svg.line("grid", (x, 0.0), (x, foot));
        svg.text("axis", (x, foot + 13.0), Anchor::Middle, &name);
    }
    let one = scale.at(1.0);
    svg.line("one", (one, 0.0), (one, foot));
    svg.text("axis", (4.0, foot + 29.0), Anchor::Start, &format!("← {faster}"));
    svg.text("axis", (WIDTH - 4.0, foot + 29.0), Anchor::End, &format!("{slower} →"));
    for (nth, row) in (0..).zip(rows) {
        draw(&mut svg, scale, row, f64::from(nth) * ROW);
    }
    Some(svg.finish())
}

fn draw(svg: &mut Svg, scale: Scale, row: &Row, top: f64) {
    let class = style(row.verdict);
    svg.text("label", (4.0, top + 12.0), Anchor::Start, &cut(&row.label, 34));
    let value = words::ratio_with_interval(&row.ratio);
    let value = format!("{} {value}", words::mark(row.verdict));
    svg.text(&format!("label {class}"), (WIDTH - 4.0, top + 12.0), Anchor::End, &value);
    let middle = top + 24.0;
    for (nth, pair) in row.ratio.pairs.iter().enumerate() {
        let y = middle + [0.0, -4.0, 4.0][nth % 3];
        let title = format!("round {}: {:.3}", pair.round, pair.ratio);
        svg.dot("dot faint", (scale.at(pair.ratio), y), 1.8, &title);
    }
    if let Some(interval) = row.ratio.interval {
        let [low, high] = [interval.low, interval.high].map(|value| scale.at(value));
        svg.line(&format!("whisker {class}"), (low, middle), (high, middle));
        for x in [low, high] {
            svg.line(&format!("whisker {class}"), (x, middle - 4.0), (x, middle + 4.0));
        }
    }
    let x = scale.at(row.ratio.median);
    let point = Rect { x: x - 4.0, y: middle - 4.0, width: 8.0, height: 8.0 };
    svg.rect(&format!("point {class}"), point, &format!("{}: {value}", row.label));
}
