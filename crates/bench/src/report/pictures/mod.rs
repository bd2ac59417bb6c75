//! Pictures as inline SVG. Colours are classes of the page's style sheet, so that light, dark
//! and print each have their own; every mark has a tooltip (`title`), and no picture says by
//! colour alone what it says.

mod course;
mod forest;
mod makespans;

use std::fmt::{Display, Write as _};

use super::compare::Verdict;
use lrs_term::printable;

pub(super) use course::course;
pub(super) use forest::{Row, forest};
pub(super) use makespans::makespans;

/// One picture. Sizes are in its own units; the page scales it to the room there is.
struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Where a text ends up relative to its point.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle.
#[derive(Clone, Copy)]
struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Svg {
    /// `title` is read out by screen readers.
    fn new(width: f64, height: f64, title: &str) -> Svg {
        let mut svg = Svg { body: String::new(), width, height };
        let _ = write!(svg.body, "<title>{}</title>", escape(title));
        svg
    }

    fn finish(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {} {}\">{}</svg>\n",
            short(self.width),
            short(self.height),
            self.body
        )
    }

    fn rect(&mut self, class: &str, rect: Rect, title: &str) {
        let Rect { x, y, width, height } = rect;
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{}</rect>",
            short(x),
            short(y),
            short(width.max(0.0)),
            short(height.max(0.0)),
            tooltip(title)
        );
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.body,
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            short(from.0),
            short(from.1),
            short(to.0),
            short(to.1)
        );
    }

    fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, title: &str) {
        let _ = write!(
            self.body,
            "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{}\">{}</circle>",
            short(at.0),
            short(at.1),
            short(radius),
            tooltip(title)
        );
    }

    fn path(&mut self, class: &str, data: &str) {
        if !data.is_empty() {
            let _ = write!(self.body, "<path class=\"{class}\" d=\"{data}\"/>");
        }
    }

    fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            short(at.0),
            short(at.1),
            escape(text)
        );
    }
}

fn tooltip(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) }
}

/// A value range on a stretch of the picture.
#[derive(Clone, Copy)]
struct Scale {
    values: [f64; 2],
    places: [f64; 2],
}

impl Scale {
    fn at(self, value: f64) -> f64 {
        let [low, high] = self.values;
        let [from, to] = self.places;
        let part = if high > low { (value - low) / (high - low) } else { 0.0 };
        from + (to - from) * part.clamp(0.0, 1.0)
    }

    /// Round values within the range, about `wanted` of them, as numbers and as text.
    fn ticks(self, wanted: f64) -> Vec<(f64, String)> {
        let [low, high] = self.values;
        let rough = (high - low) / wanted;
        if !rough.is_finite() || rough <= 0.0 {
            return vec![(low, tick(low, 0.001))];
        }
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
        let step = steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough);
        let first = (low / step - 1e-9).ceil();
        let ticks = (0..20).map(|nth| (first + f64::from(nth)) * step);
        let within = ticks.take_while(|at| *at <= high + step * 1e-9);
        within.map(|at| (at, tick(at, step))).collect()
    }
}

/// A tick as short as it can be told from its neighbours, which are `step` away.
fn tick(value: f64, step: f64) -> String {
    // Saturates; the error of the logarithm must not cost a decimal.
    let decimals = (-(step.log10() + 1e-9).floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    if decimals == 0 {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The class of a verdict in the style sheet.
pub(super) fn style(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::NoDifference => "level",
        Verdict::TooFewPairs => "unsure",
    }
}

/// A coordinate with a decimal at most: pages stay small.
fn short(value: f64) -> impl Display {
    (value * 10.0).round() / 10.0
}

/// `text` cut to so many characters: SVG has no line breaks.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// `text` for HTML and XML, in attributes too. What XML cannot hold is replaced, and what would
/// reorder a line is spelt out.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 8);
    for c in printable(&text.replace(['\n', '\t'], " ")).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let both = |low, high| Scale { values: [low, high], places: [0.0, 1.0] }.ticks(5.0);
        let ticks = |low, high| both(low, high).into_iter().map(|(at, _)| at).collect::<Vec<_>>();
        let names =
            |low, high| both(low, high).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(ticks(0.0, 10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0, 73.0), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(ticks(1.0, 1.0), [1.0]);
        assert_eq!(ticks(0.0, f64::INFINITY), [0.0]);
        assert_eq!(names(0.87, 1.29), ["0.9", "1", "1.1", "1.2"]);
        assert_eq!(names(0.0, 500.0), ["0", "100", "200", "300", "400", "500"]);
        assert_eq!(names(0.0, 0.001), ["0", "0.0002", "0.0004", "0.0006", "0.0008", "0.001"]);
    }

    #[test]
    fn nothing_leaves_its_place() {
        assert_eq!(escape("<a b='\"'>&\u{ffff}\n"), "&lt;a b=&#39;&quot;&#39;&gt;&amp;\u{fffd} ");
        assert_eq!(escape("a\u{1}\u{202e}b"), "a\\u{1}\\u{202e}b");
        let scale = Scale { values: [0.0, 1.0], places: [10.0, 20.0] };
        assert_eq!((scale.at(-5.0), scale.at(0.5), scale.at(9.0)), (10.0, 15.0, 20.0));
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}
