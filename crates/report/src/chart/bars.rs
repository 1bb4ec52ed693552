//! Goodput: a pair of bars for each policy, and the bound.

use super::{Scale, Size, line, style, svg, text, ticks};
use crate::data::{Estimate, PolicyData};
use crate::numbers::{escape, rate, share, shorten, tick as tick_text};

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Bars<'a> {
    pub(crate) policies: &'a [PolicyData],
    pub(crate) bound: f64,
}

const BAR: f64 = 14.0;
const PAIR: f64 = 2.0 * BAR + 3.0;

/// Where the columns of numbers end.
const SPREAD_END: f64 = 834.0;
const VALUE_END: f64 = 692.0;

impl Bars<'_> {
    pub(crate) fn draw(&self, size: Size) -> String {
        let estimates = self.policies.iter().flat_map(|policy| [policy.goodput_average, policy.goodput_worst]);
        let values = estimates.flat_map(|estimate| [estimate.mean, estimate.high]).chain([self.bound]);
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let most = if most > 0.0 { most * 1.02 } else { 1.0 };
        let x = Scale { from: (0.0, most), to: size.pick((150.0, 606.0), (0.0, 318.0)) };
        // A narrow drawing has the name above the bars, a wide one to their left.
        let (name_room, between) = size.pick((0.0, 16.0), (18.0, 14.0));
        let pitch = name_room + PAIR + between;
        let top = size.pick(42.0, 40.0);
        let bottom = top + self.policies.len() as f64 * pitch;

        let mut parts = String::new();
        for tick in ticks(0.0, most, size.pick(6, 3)) {
            let at = x.at(tick);
            parts += &line("grid", (at, top), (at, bottom));
            let class = if at - x.to.0 < 12.0 { "tick" } else { "tick middle" };
            parts += &text(class, (at, bottom + 17.0), &tick_text(tick));
        }
        parts += &text("tick middle name", ((x.to.0 + x.to.1) / 2.0, bottom + 35.0), "requests a second");
        match size {
            Size::Wide => {
                parts += &text("tick end name", (VALUE_END, top - 12.0), "requests/s");
                parts += &text("tick end name", (SPREAD_END, top - 12.0), "spread");
                parts += &text("tick end name", (size.width(), top - 12.0), "of bound");
            }
            Size::Narrow => parts += &text("tick end name", (size.width(), 14.0), "req/s"),
        }
        for (index, policy) in self.policies.iter().enumerate() {
            let start = top + between / 2.0 + index as f64 * pitch;
            parts += &format!("<g class=\"series {}\">\n", style(index));
            parts += &match size {
                Size::Wide => text("who end", (140.0, start + PAIR / 2.0 + 4.5), &shorten(&policy.name, 18)),
                Size::Narrow => text("who", (5.0, start + 13.0), &shorten(&policy.name, 36)),
            };
            let start = start + name_room;
            parts += &self.bar(size, x, start, "bar", policy, policy.goodput_average);
            parts += &self.bar(size, x, start + BAR + 3.0, "bar worst", policy, policy.goodput_worst);
            parts += "</g>\n";
        }
        parts += &line("axis", (x.to.0, top), (x.to.0, bottom));
        if self.bound > 0.0 && self.bound.is_finite() {
            let at = x.at(self.bound);
            parts += &line("reference", (at, top - 6.0), (at, bottom));
            let label = format!("fluid bound {}", rate(self.bound));
            let class = if at > (x.to.0 + x.to.1) / 2.0 { "tick end strong" } else { "tick strong" };
            parts += &text(class, (at + 4.0, top - 12.0), &label);
        }
        svg(size, bottom + 44.0, &self.label(), &parts)
    }

    fn bar(&self, size: Size, x: Scale, y: f64, class: &str, policy: &PolicyData, own: Estimate) -> String {
        let middle = y + BAR / 2.0;
        let (mean, spread) = (rate(own.mean), format!("{} to {}", rate(own.low), rate(own.high)));
        let what = if class.contains("worst") { "every model within the limit" } else { "all requests taken together" };
        let mut out = format!(
            "<g><title>{}, {what}: {mean} requests/s, {spread} over seeds</title><rect class=\"{class}\" x=\"{:.1}\" \
             y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>\n",
            escape(&policy.name),
            x.to.0,
            x.at(own.mean) - x.to.0,
        );
        let (low, high) = (x.at(own.low), x.at(own.high));
        if high - low >= 0.5 {
            out += &format!("<path class=\"whisker\" d=\"M{low:.1} {:.1}v6m0-3H{high:.1}m0-3v6\"/>\n", middle - 3.0);
        }
        let base = middle + 4.5;
        match size {
            Size::Wide => {
                out += &text("value end", (VALUE_END, base), &mean);
                out += &text("tick end", (SPREAD_END, base), &spread.replace(" to ", "–"));
                out += &text("tick end", (size.width(), base), &share(own.mean / self.bound));
            }
            Size::Narrow => out += &text("value end", (size.width(), base), &mean),
        }
        out + "</g>\n"
    }

    fn label(&self) -> String {
        let one = |policy: &PolicyData| {
            let (average, worst) = (rate(policy.goodput_average.mean), rate(policy.goodput_worst.mean));
            format!("{} {average}, worst model {worst}", policy.name)
        };
        let all: Vec<String> = self.policies.iter().map(one).collect();
        format!("Goodput in requests a second. {}. Fluid bound {}.", all.join("; "), rate(self.bound))
    }
}
