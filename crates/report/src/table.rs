//! The numbers behind the charts.

use crate::data::{Estimate, PolicyData, SweepPage};
use crate::numbers::{NONE, count, escape, mean, percent, rate, share};
use std::fmt::Write;

/// Goodput by policy.
pub(crate) fn goodput(data: &SweepPage) -> String {
    let Some(first) = data.policies.first() else { return String::new() };
    let name = escape(&first.name);
    let heads = ["requests/s", "spread", "of bound"].map(str::to_string).into_iter().chain([format!("of {name}’s")]);
    let heads: String = heads.map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let mut out = format!(
        "<section class=\"numbers keep\"><h2>Goodput in numbers</h2>\n<div class=\"scroll\" role=\"region\" \
         aria-label=\"Goodput in numbers\" tabindex=\"0\"><table class=\"goodput\">\n<thead><tr>\
         <th scope=\"col\" rowspan=\"2\">Policy</th>\
         <th scope=\"colgroup\" colspan=\"4\">All requests</th>\
         <th scope=\"colgroup\" colspan=\"4\">Worst model</th></tr>\
         <tr>{heads}{heads}</tr></thead>\n<tbody>\n"
    );
    for policy in &data.policies {
        let cells = estimate(policy.goodput_average, data.bound, first.goodput_average)
            + &estimate(policy.goodput_worst, data.bound, first.goodput_worst);
        let _ = writeln!(out, "<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(&policy.name));
    }
    out.push_str("</tbody></table></div></section>");
    out
}

fn estimate(own: Estimate, bound: f64, first: Estimate) -> String {
    let ratio = own.mean / first.mean;
    let ratio = if ratio.is_finite() { format!("{ratio:.2}") } else { NONE.into() };
    let of_bound = share(own.mean / bound);
    let (low, high) = (rate(own.low), rate(own.high));
    cells(&[rate(own.mean), format!("{low} to {high}"), of_bound, ratio])
}

/// Every point of every policy, folded away.
pub(crate) fn points(data: &SweepPage) -> String {
    let all: usize = data.policies.iter().map(|policy| policy.points.len()).sum();
    let mut out = format!(
        "<section class=\"numbers\"><details><summary>All {} points</summary>\n<div class=\"scroll\" role=\"region\" \
         aria-label=\"All points\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\" rowspan=\"2\">Policy</th>\
         <th scope=\"col\" rowspan=\"2\">Offered requests/s</th><th scope=\"colgroup\" colspan=\"2\">Bad</th>\
         <th scope=\"col\" rowspan=\"2\">Mean batch</th><th scope=\"colgroup\" colspan=\"3\">GPU busy</th></tr>\
         <tr><th scope=\"col\">all requests</th><th scope=\"col\">worst model</th><th scope=\"col\">mean</th>\
         <th scope=\"col\">least</th><th scope=\"col\">most</th></tr></thead>\n",
        count(all)
    );
    for policy in &data.policies {
        out.push_str(&points_of(policy, data.limit));
    }
    out.push_str("</table></div></details></section>");
    out
}

fn points_of(policy: &PolicyData, limit: f64) -> String {
    let name = escape(&policy.name);
    let mut out = String::from("<tbody>\n");
    for point in &policy.points {
        let busy = point.gpu_busy.iter().copied();
        let least = busy.clone().reduce(f64::min).unwrap_or(f64::NAN);
        let most = busy.reduce(f64::max).unwrap_or(f64::NAN);
        let bad = |fraction: f64| {
            let class = if fraction > limit { " class=\"over\"" } else { "" };
            format!("<td{class}>{}</td>", percent(fraction))
        };
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{name}</th>{}{}{}{}</tr>",
            cells(&[rate(point.rate)]),
            bad(point.bad_average),
            bad(point.bad_worst),
            cells(&[rate(point.mean_batch), share(mean(&point.gpu_busy)), share(least), share(most)]),
        );
    }
    out + "</tbody>\n"
}

fn cells(texts: &[String]) -> String {
    texts.iter().map(|text| format!("<td>{text}</td>")).collect()
}
