//! Charts as SVG text: what they share. Colours, fonts and strokes are the style sheet's business; a drawing says
//! where things are and, by class, what they are.
//!
//! Positions are pixels of the drawing's own size. A mark that has more to say carries a `<title>`, which browsers
//! show when the pointer rests on it.

pub(crate) mod bars;
pub(crate) mod heat;
pub(crate) mod lines;
pub(crate) mod ratios;

use crate::data::PolicyData;
use crate::numbers::{escape, tick as tick_text};

/// How many colours and shapes the style sheet and [`marker`] tell apart.
const STYLES: usize = 10;

/// For what a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Size {
    /// A window of a computer, or paper.
    Wide,
    /// A phone, or a narrow column.
    Narrow,
}

impl Size {
    fn width(self) -> f64 {
        match self {
            Size::Wide => 900.0,
            Size::Narrow => 380.0,
        }
    }

    fn pick<T>(self, wide: T, narrow: T) -> T {
        match self {
            Size::Wide => wide,
            Size::Narrow => narrow,
        }
    }
}

/// A straight map from numbers to pixels. What lies outside is drawn at the edge.
#[derive(Clone, Copy, Debug)]
struct Scale {
    from: (f64, f64),
    to: (f64, f64),
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let ((low, high), (start, end)) = (self.from, self.to);
        let part = (value - low) / (high - low);
        // Not a number, or a domain without extent.
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        start + part * (end - start)
    }
}

/// The rates that the line charts span: one range for all, so that they can be compared down the page.
pub(crate) fn rates(policies: &[PolicyData]) -> (f64, f64) {
    let rates = policies.iter().flat_map(|policy| &policy.points).map(|point| point.rate);
    let rates = rates.filter(|rate| rate.is_finite());
    let low = rates.clone().reduce(f64::min).unwrap_or(0.0);
    let high = rates.reduce(f64::max).unwrap_or(0.0);
    // From zero if that costs little room.
    let low = if low < 0.25 * high { 0.0 } else { low };
    match high - low {
        span if span > 0.0 => (low, high),
        _ if high > 0.0 => (0.0, 2.0 * high),
        _ => (0.0, 1.0),
    }
}

/// Round numbers within `low..=high`, about `count` of them.
fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let span = high - low;
    if !span.is_finite() || span <= 0.0 || count == 0 {
        return vec![];
    }
    let rough = span / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step - 1e-6).ceil() as i64;
    let last = (high / step + 1e-6).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// Moves positions apart to at least `gap`, within `low..=high` where there is room, by as little as can be
/// (in squares). Returns them in the order given.
fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let count = wanted.len();
    let gap = if count > 1 { gap.min((high - low) / (count - 1) as f64) } else { gap };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&one, &other| wanted[one].total_cmp(&wanted[other]));
    // With the gaps taken out, the nearest rising sequence is found by pooling neighbours that are out of order.
    let mut pools: Vec<(f64, usize)> = vec![];
    for (rank, &index) in order.iter().enumerate() {
        let mut pool = (wanted[index] - rank as f64 * gap, 1);
        while let Some(&(before, size)) = pools.last().filter(|(before, _)| *before > pool.0) {
            let all = size + pool.1;
            pool = ((before * size as f64 + pool.0 * pool.1 as f64) / all as f64, all);
            pools.pop();
        }
        pools.push(pool);
    }
    let top = (high - count.saturating_sub(1) as f64 * gap).max(low);
    let spaced = pools.iter().flat_map(|&(at, size)| std::iter::repeat_n(at.clamp(low, top), size));
    let mut out = vec![0.0; count];
    for (rank, (&index, at)) in order.iter().zip(spaced).enumerate() {
        out[index] = at + rank as f64 * gap;
    }
    out
}

/// The drawing around its parts.
fn svg(size: Size, height: f64, label: &str, parts: &str) -> String {
    let (width, label) = (size.width(), escape(label));
    format!("<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{label}\">\n{parts}</svg>")
}

fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    format!("<path class=\"{class}\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>\n", from.0, from.1, to.0, to.1)
}

/// A text whose `content` is escaped already. `class` says how it is aligned.
fn text(class: &str, at: (f64, f64), content: &str) -> String {
    format!("<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\">{content}</text>\n", at.0, at.1)
}

/// The axis of offered rates, below a plot, with faint lines up through it.
fn rate_axis(size: Size, x: Scale, top: f64, bottom: f64) -> String {
    let mut out = String::new();
    for tick in ticks(x.from.0, x.from.1, size.pick(8, 4)) {
        let at = x.at(tick);
        out += &line("grid", (at, top), (at, bottom));
        out += &text("tick middle", (at, bottom + 17.0), &tick_text(tick));
    }
    out + &text("tick middle name", ((x.to.0 + x.to.1) / 2.0, bottom + 35.0), "offered requests a second")
}

/// The class that gives a policy its colour. The first one is set off from the others.
fn style(index: usize) -> String {
    match index {
        0 => "s0 first".into(),
        index => format!("s{}", (index - 1) % (STYLES - 1) + 1),
    }
}

/// A shape around a point, different for each policy, so that colour is not all that tells them apart.
fn marker(index: usize, (x, y): (f64, f64)) -> String {
    let shape = match index % STYLES {
        0 => "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
        1 => "m-3-3h6v6h-6z",
        2 => "m0-4l4 7h-8z",
        3 => "m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
        4 => "m0 4l4-7h-8z",
        5 => "m-1.3-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",
        6 => "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
        7 => "m-4-1.5h8v3h-8z",
        8 => "m-1.5-4.5h3v9h-3z",
        _ => "m-4 0l7-4v8z",
    };
    format!("<path class=\"mark\" d=\"M{x:.1} {y:.1}{shape}\"/>")
}

/// Which line is whose, for drawings too narrow to say it at the end of the line.
pub(crate) fn legend(policies: &[PolicyData]) -> String {
    let entry = |(index, policy): (usize, &PolicyData)| {
        format!(
            "<li class=\"{}\"><svg viewBox=\"0 0 26 12\" aria-hidden=\"true\">\
             <path class=\"curve\" d=\"M0 6L26 6\"/>{}</svg>{}</li>",
            style(index),
            marker(index, (13.0, 6.0)),
            escape(&policy.name)
        )
    };
    format!("<ul class=\"legend\">{}</ul>", policies.iter().enumerate().map(entry).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.0, 5994.0, 6), [0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0]);
        assert_eq!(ticks(0.3, 0.9, 3), [0.4, 0.6000000000000001, 0.8]);
        assert_eq!(ticks(1.0, 1.0, 5), [0.0; 0]);
        assert_eq!(ticks(0.0, f64::NAN, 5), [0.0; 0]);
    }

    #[test]
    fn labels_are_moved_apart_and_stay_within() {
        assert_eq!(spread(&[50.0, 20.0], 10.0, 0.0, 100.0), [50.0, 20.0]);
        assert_eq!(spread(&[50.0, 50.0, 50.0], 10.0, 0.0, 100.0), [40.0, 50.0, 60.0]);
        assert_eq!(spread(&[0.0, 0.0], 10.0, 0.0, 100.0), [0.0, 10.0]);
        assert_eq!(spread(&[100.0, 99.0], 10.0, 0.0, 100.0), [100.0, 90.0]);
        assert_eq!(spread(&[5.0; 5], 10.0, 0.0, 20.0), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(spread(&[], 10.0, 0.0, 20.0), [0.0; 0]);
    }

    #[test]
    fn a_scale_without_extent_still_maps() {
        let scale = Scale { from: (1.0, 1.0), to: (10.0, 20.0) };
        assert_eq!([scale.at(1.0), scale.at(f64::NAN), scale.at(f64::INFINITY)], [10.0; 3]);
    }
}
