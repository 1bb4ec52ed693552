//! Something against the offered rate: a line for each policy.

use super::{Scale, Size, line, marker, rate_axis, rates, spread, style, svg, text, ticks};
use crate::data::{Point, PolicyData};
use crate::numbers::{escape, percent_tick, rate, shorten, tick as tick_text};

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    pub(crate) policies: &'a [PolicyData],
    /// Drawn as an upright line if it is among the rates.
    pub(crate) bound: f64,
    /// What it is about.
    pub(crate) name: &'a str,
    /// What the numbers of the upright axis are.
    pub(crate) unit: &'a str,
    pub(crate) axis: Axis,
    pub(crate) value: fn(&Point) -> f64,
    /// Drawn dashed.
    pub(crate) second: Option<fn(&Point) -> f64>,
    /// What a point says when the pointer rests on it.
    pub(crate) tell: fn(&Point) -> String,
}

/// The upright axis.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Axis {
    /// Fractions from a smallest one, which stands for all below it, to all; with a limit.
    LogPercent { floor: f64, limit: f64 },
    /// Fractions from none to all.
    Percent,
    /// Numbers from zero to what there is.
    FromZero,
}

/// An axis with its ends known.
struct Upright {
    scale: Scale,
    logarithmic: bool,
    ticks: Vec<(f64, String)>,
    limit: Option<(f64, String)>,
}

impl Upright {
    fn at(&self, value: f64) -> f64 {
        // A zero has no logarithm: minus infinity is drawn at the floor.
        self.scale.at(if self.logarithmic { value.log10().max(self.scale.from.0) } else { value })
    }
}

/// Room between labels at the ends of lines.
const LABEL_GAP: f64 = 16.0;

impl Lines<'_> {
    pub(crate) fn draw(&self, size: Size) -> String {
        let (top, bottom) = (40.0, 40.0 + size.pick(300.0, 240.0));
        let x = Scale { from: rates(self.policies), to: size.pick((62.0, 740.0), (62.0, 368.0)) };
        let y = self.upright(Scale { from: (0.0, 1.0), to: (bottom, top) });
        let mut parts = text("tick name", (0.0, 12.0), self.unit);
        for (value, label) in &y.ticks {
            let at = y.at(*value);
            let crowded = y.limit.as_ref().is_some_and(|(limit, _)| (y.at(*limit) - at).abs() < 22.0);
            parts += &line("grid", (x.to.0, at), (x.to.1, at));
            if !crowded {
                parts += &text("tick end", (x.to.0 - 8.0, at + 4.5), label);
            }
        }
        parts += &rate_axis(size, x, top, bottom);
        if let Some((limit, label)) = &y.limit {
            let at = y.at(*limit);
            parts += &line("reference", (x.to.0, at), (x.to.1, at));
            parts += &text("tick end strong", (x.to.0 - 8.0, at - 2.0), "limit");
            parts += &text("tick end strong", (x.to.0 - 8.0, at + 11.0), label);
        }
        if self.bound > x.from.0 && self.bound <= x.from.1 {
            let at = x.at(self.bound);
            parts += &line("reference", (at, top), (at, bottom));
            let class = if at > (x.to.0 + x.to.1) / 2.0 { "tick end strong" } else { "tick strong" };
            parts += &text(class, (at, top - 7.0), &format!("fluid bound {}", rate(self.bound)));
        }
        parts += &line("axis", (x.to.0, bottom), (x.to.1, bottom));

        let labels = self.labels(size, x, &y, (top, bottom));
        // The first policy is drawn last, above the others.
        for index in (0..self.policies.len()).rev() {
            parts += &self.series(index, x, &y, &labels[index]);
        }
        let names: Vec<&str> = self.policies.iter().map(|policy| policy.name.as_str()).collect();
        let label = format!(
            "{} against offered rate, a line for each of {}. The numbers are in the table of all points.",
            self.name,
            names.join(", ")
        );
        svg(size, bottom + 44.0, &label, &parts)
    }

    fn upright(&self, scale: Scale) -> Upright {
        let within = |from: (f64, f64)| Scale { from, ..scale };
        match self.axis {
            Axis::LogPercent { floor, limit } => {
                let mut ticks: Vec<(f64, String)> = vec![];
                let mut tick = 1.0;
                while tick > floor * 1.5 {
                    ticks.push((tick, percent_tick(tick)));
                    tick /= 10.0;
                }
                ticks.push((floor, format!("≤{}", percent_tick(floor))));
                let limit = (limit > floor && limit < 1.0).then(|| (limit, percent_tick(limit)));
                Upright { scale: within((floor.log10(), 0.0)), logarithmic: true, ticks, limit }
            }
            Axis::Percent => {
                let ticks = ticks(0.0, 1.0, 5).into_iter().map(|tick| (tick, percent_tick(tick))).collect();
                Upright { scale: within((0.0, 1.0)), logarithmic: false, ticks, limit: None }
            }
            Axis::FromZero => {
                let values = self.policies.iter().flat_map(|policy| &policy.points).map(self.value);
                let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
                let most = if most > 0.0 { most * 1.05 } else { 1.0 };
                let ticks = ticks(0.0, most, 5).into_iter().map(|tick| (tick, tick_text(tick))).collect();
                Upright { scale: within((0.0, most)), logarithmic: false, ticks, limit: None }
            }
        }
    }

    /// The name at the end of each line, with a thin line to it where it was moved.
    fn labels(&self, size: Size, x: Scale, y: &Upright, (top, bottom): (f64, f64)) -> Vec<String> {
        let mut labels = vec![String::new(); self.policies.len()];
        if size == Size::Narrow {
            return labels;
        }
        let ends = self.policies.iter().enumerate();
        let ends = ends.filter_map(|(index, policy)| policy.points.last().map(|point| (index, point)));
        let ends: Vec<(usize, f64, f64)> =
            ends.map(|(index, point)| (index, x.at(point.rate), y.at((self.value)(point)))).collect();
        let wanted: Vec<f64> = ends.iter().map(|end| end.2).collect();
        for ((index, from, height), at) in ends.iter().zip(spread(&wanted, LABEL_GAP, top, bottom)) {
            let mark = (x.to.1 + 26.0, at);
            labels[*index] = line("leader", (from + 7.0, *height), (mark.0 - 7.0, at))
                + &marker(*index, mark)
                + &text("who", (mark.0 + 11.0, at + 4.5), &shorten(&self.policies[*index].name, 16));
        }
        labels
    }

    fn series(&self, index: usize, x: Scale, y: &Upright, label: &str) -> String {
        let policy = &self.policies[index];
        let mut out = format!("<g class=\"series {}\">\n", style(index));
        let path = |value: fn(&Point) -> f64| {
            let place = |(order, point): (usize, &Point)| {
                let letter = if order == 0 { 'M' } else { 'L' };
                format!("{letter}{:.1} {:.1}", x.at(point.rate), y.at(value(point)))
            };
            policy.points.iter().enumerate().map(place).collect::<String>()
        };
        if !policy.points.is_empty() {
            if let Some(second) = self.second {
                out += &format!("<path class=\"curve dashed\" d=\"{}\"/>\n", path(second));
            }
            out += &format!("<path class=\"curve\" d=\"{}\"/>\n", path(self.value));
        }
        for point in &policy.points {
            let mark = marker(index, (x.at(point.rate), y.at((self.value)(point))));
            let (name, at, tell) = (escape(&policy.name), rate(point.rate), (self.tell)(point));
            out += &format!("<g><title>{name} at {at} requests/s: {tell}</title>{mark}</g>\n");
        }
        out + label + "</g>\n"
    }
}
