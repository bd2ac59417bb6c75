//! The slots of the nodes over time as a picture: a stretch for each start of a task, in the colour of its job.
//!
//! A row is a place of a node, as many as it had tasks at once. What was lost is hollow. Each stretch
//! has its job and times as a title, which browsers show. Written by hand, as [`crate::simulation::bars`].
//!
//! Limits: the first [`MOST`] starts and the first nodes with [`MOST_ROWS`] rows together; the picture says what it leaves out.
//! Six colours, so jobs share them.

use std::fmt::Write as _;
use std::time::Duration;

use crate::simulation::bars::{escaped, number};

/// Most starts that are drawn.
pub const MOST: usize = 20_000;

/// Most rows.
pub const MOST_ROWS: usize = 400;

/// Okabe and Ito's, light enough beside white and dark enough beside each other.
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];

const WIDTH: usize = 960;
const ROW: usize = 12;
const HEAD: usize = 36;
/// Between two nodes.
const GAP: usize = 4;
const LEFT: usize = 80;

/// A start of a task, until it ended or was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    pub(crate) node: usize,
    pub(crate) lane: usize,
    pub(crate) started: Duration,
    pub(crate) ended: Duration,
    pub(crate) job: u64,
    pub(crate) is_lost: bool,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Gantt {
    names: Vec<String>,
    stretches: Vec<Stretch>,
    all: u64,
}

impl Gantt {
    pub(crate) fn new(names: Vec<String>) -> Gantt {
        Gantt { names, stretches: Vec::new(), all: 0 }
    }

    pub(crate) fn add(&mut self, stretch: Stretch) {
        self.all += 1;
        if self.stretches.len() < MOST {
            self.stretches.push(stretch);
        }
    }

    /// The picture.
    pub(crate) fn svg(&self, title: &str) -> String {
        let mut lanes = vec![1_usize; self.names.len()];
        for stretch in &self.stretches {
            lanes[stretch.node] = lanes[stretch.node].max(stretch.lane + 1);
        }
        let (mut tops, mut y, mut rows) = (Vec::new(), HEAD, 0);
        for lanes in &lanes {
            rows += lanes;
            if rows > MOST_ROWS {
                break;
            }
            tops.push(y);
            y += lanes * ROW + GAP;
        }
        let last = self.stretches.iter().map(|one| one.ended).max().unwrap_or_default();
        let room = (WIDTH - LEFT - 12) as f64;
        let at = |time: Duration| match last.is_zero() {
            true => 0.0,
            false => time.as_secs_f64() / last.as_secs_f64() * room,
        };
        let mut drawn = String::new();
        for (name, top) in self.names.iter().zip(&tops) {
            // Writing to a String cannot fail.
            let _ = writeln!(
                drawn,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                LEFT - 6,
                top + ROW - 2,
                escaped(name)
            );
        }
        let mut count = 0_u64;
        for one in &self.stretches {
            let Some(top) = tops.get(one.node) else { continue };
            count += 1;
            let colour = COLOURS[(one.job % COLOURS.len() as u64) as usize];
            let fill = if one.is_lost { "none" } else { colour };
            let (from, to) = (one.started, one.ended);
            // As above.
            let _ = writeln!(
                drawn,
                "<rect x=\"{:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{}\" fill=\"{fill}\" \
                 stroke=\"{}\" stroke-width=\"0.5\"><title>job {}, {:.1} to {:.1} s{}</title></rect>",
                LEFT as f64 + at(from),
                top + one.lane * ROW,
                at(to.saturating_sub(from)),
                ROW - 1,
                if one.is_lost { colour } else { "#ffffff" },
                one.job,
                from.as_secs_f64(),
                to.as_secs_f64(),
                if one.is_lost { ", lost" } else { "" },
            );
        }
        let mut note = format!("0 to {} s", number(last.as_secs_f64()));
        if count < self.all {
            note += &format!("; {count} of {} starts are drawn", self.all);
        }
        let height = y + 24;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" font-family=\"system-ui, DejaVu Sans, sans-serif\" \
             font-size=\"11\" fill=\"#1b2127\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"8\" y=\"20\" font-size=\"14\">{}</text>\n{drawn}\
             <text x=\"{LEFT}\" y=\"{}\">{note}</text>\n</svg>\n",
            escaped(title),
            y + 12,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(node: usize, lane: usize, from: u64, to: u64) -> Stretch {
        let [started, ended] = [from, to].map(Duration::from_secs);
        Stretch { node, lane, started, ended, job: from, is_lost: to == 9 }
    }

    #[test]
    fn a_stretch_is_as_long_as_its_time_and_beside_those_of_its_node() {
        let mut gantt = Gantt::new(vec!["a".into(), "<b>".into()]);
        [stretch(0, 0, 0, 10), stretch(0, 1, 0, 5), stretch(1, 0, 5, 9)]
            .into_iter()
            .for_each(|one| gantt.add(one));
        let svg = gantt.svg("x & y");
        let of = |name: &str| -> Vec<f64> {
            let rects = svg.lines().filter(|line| line.starts_with("<rect x="));
            rects
                .map(|line| line.split(name).nth(1).unwrap().split('"').nth(1).unwrap())
                .map(|value| value.parse().unwrap())
                .collect()
        };
        let (x, y, width) = (of(" x="), of(" y="), of(" width="));
        assert_eq!((width[0], x[0], x[2]), (2.0 * width[1], x[1], x[0] + width[1]));
        assert_eq!((y[1], y[2]), (y[0] + ROW as f64, y[0] + 2.0 * ROW as f64 + GAP as f64));
        assert!(svg.contains("x &amp; y") && svg.contains("&lt;b&gt;"), "{svg}");
        assert!(
            svg.contains("fill=\"none\"") && svg.contains(", lost") && svg.contains("0 to 10.0 s<")
        );
        assert!(!Gantt::new(Vec::new()).svg("").contains("NaN"));
    }

    #[test]
    fn a_picture_is_bounded_and_says_so() {
        let mut gantt = Gantt::new((0..500).map(|node| format!("n{node}")).collect());
        (0..MOST + 500).for_each(|number| gantt.add(stretch(number % 500, 0, 0, 5)));
        let svg = gantt.svg("many");
        let (drawn, all) = (MOST / 500 * MOST_ROWS, MOST + 500);
        assert_eq!(svg.matches("<rect x=").count(), drawn);
        assert!(svg.contains(&format!("{drawn} of {all} starts are drawn")));
    }
}
