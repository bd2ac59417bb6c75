//! A picture of one figure: a bar for each case, as long as its median, with a line over its
//! interval, as SVG.
//!
//! Cases named `case/policy` stand by policy, so that the cases of one can be compared; the name is
//! beside each bar, so that nothing is shown by colour alone. Written by hand: `lrs-bench` draws with
//! plotters, which is a lot of code for bars.
//!
//! Limits: one figure, from 0 on; the widths of letters are guessed.

use std::fmt::Write as _;

use crate::simulation::spread::Spread;

/// Okabe and Ito's, which the colour-blind and a printer can tell apart.
const COLOURS: [&str; 4] = ["#8793a0", "#0072b2", "#e69f00", "#008060"];
const WIDTH: usize = 720;
const ROW: usize = 18;
/// Between two policies.
const GAP: usize = 6;
const HEAD: usize = 40;
/// Width of a letter.
const LETTER: usize = 7;

/// A bar for each case that has the figure; `title` says what it is.
pub fn bars(title: &str, cases: &[(&str, Option<Spread>)]) -> String {
    let mut rows: Vec<(&str, &str, Option<Spread>)> = cases
        .iter()
        .map(|(name, value)| {
            let (case, policy) = name.split_once('/').unwrap_or((name, ""));
            (case, policy, value.filter(|value| value.median.is_finite() && value.median >= 0.0))
        })
        .collect();
    let mut policies: Vec<&str> = rows.iter().map(|(_, policy, _)| *policy).collect();
    let mut kinds: Vec<&str> = rows.iter().map(|(case, ..)| *case).collect();
    keep_first(&mut policies);
    keep_first(&mut kinds);
    let place = |list: &[&str], of: &str| list.iter().position(|one| *one == of).unwrap_or(0);
    rows.sort_by_key(|(_, policy, _)| place(&policies, policy));

    let label = |case: &str, policy: &str| match policy {
        "" => case.to_owned(),
        policy => format!("{policy}, {case}"),
    };
    let longest = rows.iter().map(|(case, policy, _)| label(case, policy).chars().count()).max();
    let left = (longest.unwrap_or(0) * LETTER + 16).min(WIDTH / 2);
    let end = |value: &Spread| value.high.unwrap_or(value.median).max(value.median);
    let most = rows.iter().filter_map(|(.., value)| value.as_ref().map(end)).fold(0.0, f64::max);
    let room = (WIDTH - left - 10 * LETTER) as f64;

    let (mut drawn, mut y, mut before) = (String::new(), HEAD, None);
    for (case, policy, value) in rows {
        if before.is_some_and(|before| before != policy) {
            y += GAP;
        }
        before = Some(policy);
        let colour = match policy {
            "" => COLOURS[1],
            _ => COLOURS[place(&kinds, case) % COLOURS.len()],
        };
        let along = |seconds: f64| if most > 0.0 { seconds / most * room } else { 0.0 };
        let width = value.map_or(0.0, |value| along(value.median));
        let text = escaped(&label(case, policy));
        let end = left as f64 + value.map_or(0.0, |value| along(end(&value)));
        let shown = value.map_or_else(|| "-".to_owned(), |value| number(value.median));
        // Writing to a String cannot fail.
        let _ = writeln!(
            drawn,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{text}</text>\
             <rect x=\"{left}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{shown}</text>",
            left - 6,
            y + ROW - 5,
            y + 2,
            ROW - 4,
            end + 5.0,
            y + ROW - 5,
        );
        if let Some((low, high)) = value.and_then(|value| value.low.zip(value.high)) {
            let (from, to) = (left as f64 + along(low), left as f64 + along(high));
            let middle = y + ROW / 2;
            let _ = writeln!(
                drawn,
                "<path d=\"M{from:.1} {middle}H{to:.1}\" stroke=\"#1b2127\" stroke-width=\"2\"/>"
            );
        }
        y += ROW;
    }
    let height = y + 8;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"system-ui, DejaVu Sans, sans-serif\" font-size=\"12\" \
         fill=\"#1b2127\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"8\" y=\"22\" font-size=\"14\">{}</text>\n{drawn}</svg>\n",
        escaped(title)
    )
}

/// Each once, in the order in which they came.
fn keep_first<'a>(list: &mut Vec<&'a str>) {
    let mut seen: Vec<&'a str> = Vec::new();
    list.retain(|one| {
        let new = !seen.contains(one);
        seen.push(one);
        new
    });
}

pub(crate) fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::bars;
    use crate::simulation::spread::Spread;

    #[test]
    fn cases_stand_by_policy_and_what_is_not_counted_has_a_dash() {
        let cases = [
            ("static/fifo", Spread::of(&[8.0])),
            ("static/<b>", Spread::of(&[4.0])),
            ("LRS/fifo", Spread::of(&[1.0, 2.0, 2.0, 2.0, 2.0, 8.0])),
            ("LRS/<b>", None),
        ];
        let svg = bars("seconds & more", &cases);
        let at = |text: &str| svg.find(text).unwrap_or_else(|| panic!("{text}\n{svg}"));
        let order = ["fifo, static", "fifo, LRS", "&lt;b&gt;, static", "&lt;b&gt;, LRS"].map(at);
        assert!(order.is_sorted(), "{svg}");
        assert!(at("seconds &amp; more") < order[0] && svg.matches("<rect").count() == 5);
        let widths: Vec<f64> = svg
            .split("<rect x=")
            .skip(1)
            .map(|rect| rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap())
            .map(|width| width.parse().unwrap())
            .collect();
        assert_eq!((widths[0], widths[3]), (widths[1] * 4.0, 0.0), "{widths:?}");
        assert_eq!(svg.matches("<path").count(), 1, "only one has an interval: {svg}");
        assert!(svg.contains(">-</text>") && !bars("nothing", &[]).contains("NaN"));
    }
}
