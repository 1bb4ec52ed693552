//! Which GPUs are busy: ids upward, rates across, the darker the busier.

use super::{Scale, Size, line, rate_axis, svg, text};
use crate::data::{Point, PolicyData};
use crate::numbers::{count, escape, mean, rate, share};

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Heat<'a> {
    pub(crate) policy: &'a PolicyData,
    /// Lowest and highest rate, as in the charts above it.
    pub(crate) rates: (f64, f64),
}

/// More GPUs than this share rows, so that a row can be seen and a page of ten thousand GPUs can be mailed.
const ROWS_MAX: usize = 64;

/// The key of the colours.
pub(crate) fn key() -> String {
    let steps: String =
        (0..=10).map(|step| format!("<i style=\"opacity:{:.1}\"></i>", f64::from(step) / 10.0)).collect();
    format!(
        "<p class=\"legend always heat-key\"><span>idle</span> <span class=\"steps\">{steps}</span> \
         <span>always busy</span></p>"
    )
}

impl Heat<'_> {
    pub(crate) fn draw(&self, size: Size) -> String {
        let gpus = self.policy.points.iter().map(|point| point.gpu_busy.len()).max().unwrap_or(0);
        let per_row = round_up(gpus.div_ceil(ROWS_MAX));
        let rows = gpus.div_ceil(per_row);
        let row_height = (240.0 / rows.max(1) as f64).clamp(4.0, 22.0);
        let bottom = 22.0 + row_height * rows as f64;
        let x = Scale { from: self.rates, to: size.pick((62.0, 740.0), (62.0, 368.0)) };

        let grouped = if per_row > 1 { format!(", {} to a row", count(per_row)) } else { String::new() };
        let mut parts = text("tick name", (0.0, 12.0), &format!("GPU id{grouped}"));
        // Labels need more room than a row may have.
        let every = (15.0 / row_height).ceil() as usize;
        for row in (0..rows).step_by(every.max(1)) {
            let middle = bottom - (row as f64 + 0.5) * row_height;
            parts += &text("tick end", (x.to.0 - 8.0, middle + 4.5), &(row * per_row).to_string());
        }
        parts += &rate_axis(size, x, bottom, bottom + 4.0);
        parts += "<g class=\"heat s0\">\n";
        let points = &self.policy.points;
        for (index, point) in points.iter().enumerate() {
            // A column reaches half-way to its neighbours, and as far on a side that has none.
            let at = x.at(point.rate);
            let before = index.checked_sub(1).map(|before| at - x.at(points[before].rate));
            let after = points.get(index + 1).map(|after| x.at(after.rate) - at);
            let alone = x.to.1 - x.to.0;
            let left = at - before.or(after).unwrap_or(alone) / 2.0;
            let right = at + after.or(before).unwrap_or(alone) / 2.0;
            // Rounded before the width is taken, so that neighbours meet.
            let (left, right) = (left.max(x.to.0).round(), right.min(x.to.1).round());
            parts += &column(point, per_row, (left, right), bottom, row_height);
        }
        parts += "</g>\n";
        parts += &line("axis", (x.to.0, bottom), (x.to.1, bottom));
        let label = format!(
            "How busy each of {} GPUs is under {}, by offered rate. The least and the most busy are in the table of \
             all points.",
            count(gpus),
            self.policy.name
        );
        svg(size, bottom + 44.0, &label, &parts)
    }
}

/// The cells of one rate. Neighbours that would look the same are one cell.
fn column(point: &Point, per_row: usize, (left, right): (f64, f64), bottom: f64, row_height: f64) -> String {
    let rows: Vec<f64> = point.gpu_busy.chunks(per_row).map(mean).collect();
    let mut out = String::new();
    let mut first = 0;
    for run in rows.chunk_by(|one, other| share(*one) == share(*other)) {
        let busy = run[0];
        let shade = if busy.is_finite() { busy.clamp(0.0, 1.0) } else { 0.0 };
        let (from, to) = (first * per_row, ((first + run.len()) * per_row).min(point.gpu_busy.len()) - 1);
        let who = if from == to { format!("GPU {from}") } else { format!("GPUs {from} to {to}") };
        let title = format!("{who} at {} requests/s: {} busy", rate(point.rate), share(busy));
        let height = run.len() as f64 * row_height;
        let top = bottom - first as f64 * row_height - height;
        out += &format!(
            "<rect fill-opacity=\"{shade:.2}\" x=\"{left:.0}\" y=\"{top:.1}\" width=\"{:.0}\" height=\"{height:.1}\">\
             <title>{}</title></rect>\n",
            right - left,
            escape(&title),
        );
        first += run.len();
    }
    out
}

/// The next of 1, 2, 5, 10, 20, ...
fn round_up(least: usize) -> usize {
    let mut steps = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10usize.pow(power)));
    steps.find(|step| *step >= least).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_round_numbers_of_gpus() {
        assert_eq!([0, 1, 2, 3, 6, 157].map(round_up), [1, 1, 2, 5, 10, 200]);
    }

    #[test]
    fn neighbours_that_look_the_same_are_one_cell() {
        let point = |gpu_busy| Point { rate: 500.0, bad_average: 0.0, bad_worst: 0.0, mean_batch: 1.0, gpu_busy };
        let cells = column(&point(vec![0.5, 0.0, 0.0]), 1, (10.0, 20.0), 100.0, 20.0);
        assert_eq!(
            cells,
            "<rect fill-opacity=\"0.50\" x=\"10\" y=\"80.0\" width=\"10\" height=\"20.0\"><title>GPU 0 at 500 \
             requests/s: 50.0% busy</title></rect>\n\
             <rect fill-opacity=\"0.00\" x=\"10\" y=\"40.0\" width=\"10\" height=\"40.0\"><title>GPUs 1 to 2 at 500 \
             requests/s: 0.0% busy</title></rect>\n"
        );
        assert_eq!(column(&point(vec![]), 1, (10.0, 20.0), 100.0, 20.0), "");
    }
}
