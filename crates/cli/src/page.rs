//! The pages that `weft sim report` and `weft bench sharing` write: one HTML file each that needs nothing else.
//!
//! Invariants: no script and no address outside the file, so it can be mailed, archived and opened offline; all
//! text that came from a user is escaped; the same data gives the same bytes. Numbers that are not finite are
//! shown as a dash, never as `NaN`. Running the simulator and writing the file are the caller's business.

mod data;
mod chart;
mod finding;
mod table;
pub(crate) mod ratios;
pub(crate) mod text;

use chart::bars::Bars;
use chart::heat::Heat;
use chart::lines::{Axis, Lines};
use chart::{Size, legend};
use std::fmt::Write;
use text::{escape, mean, percent, percent_tick, rate, share};

pub(crate) use data::{Estimate, PageData, Point, PolicyData, RatioRow};

/// The page, as a whole HTML document.
pub(crate) fn render(data: &PageData) -> String {
    let title = escape(&data.title);
    let mut body = String::new();
    let mut add = |part: String| {
        body.push_str(&part);
        body.push('\n');
    };
    add(format!(
        "<header><p class=\"kicker\">weft sim report</p><h1>{title}</h1>\
         <p class=\"question\">How many requests a second can this cluster answer in time under each scheduling \
         policy, and what happens on the way there?</p></header>"
    ));
    add(summary(&data.summary, "What was simulated"));
    add(finding::section(data));
    add(goodput(data));
    add(bad_rate(data));
    add(mean_batch(data));
    add(gpu_use(data));
    add(table::goodput(data));
    add(table::points(data));
    document(&format!("{}: weft sim report", data.title), &body)
}

/// A whole document with this title, which is escaped, and body, which is not.
fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        include_str!("page/style.css")
    )
}

fn summary(pairs: &[(String, String)], label: &str) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut out = format!("<dl class=\"summary\" aria-label=\"{label}\">");
    for (name, value) in pairs {
        // A value that is too long for a column of the grid gets a row of its own.
        let class = if value.chars().count() > 30 { " class=\"long\"" } else { "" };
        let _ = write!(out, "<div{class}><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    out.push_str("</dl>");
    out
}

fn goodput(data: &PageData) -> String {
    let limit = percent_tick(data.limit);
    let bars = Bars { policies: &data.policies, bound: data.bound };
    figure(
        "Goodput",
        &format!(
            "The highest offered rate at which at most {limit} of requests are bad, that is late, refused or lost. \
             Whiskers span the seeds."
        ),
        "<ul class=\"legend always\"><li><i class=\"swatch\"></i>all requests taken together</li>\
         <li><i class=\"swatch worst\"></i>every model on its own: the worst one is within the limit</li></ul>",
        |size| bars.draw(size),
    )
}

fn bad_rate(data: &PageData) -> String {
    let legend = legend(&data.policies)
        + "<ul class=\"legend always\"><li><i class=\"line\"></i>all requests</li>\
           <li><i class=\"line dashed\"></i>worst model</li></ul>";
    let limit = percent_tick(data.limit);
    figure(
        "Bad requests",
        &format!("The part of requests that was late, refused or lost. Goodput is where a line crosses {limit}."),
        &legend,
        |size| {
            Lines {
                policies: &data.policies,
                bound: data.bound,
                name: "Bad requests",
                unit: "bad requests, logarithmic",
                axis: Axis::LogPercent { floor: 1e-4, limit: data.limit },
                value: |point| point.bad_average,
                second: Some(|point| point.bad_worst),
                tell: |point| {
                    format!("{} bad, {} of the worst model", percent(point.bad_average), percent(point.bad_worst))
                },
            }
            .draw(size)
        },
    )
}

fn mean_batch(data: &PageData) -> String {
    figure(
        "Batch size",
        "Larger batches use a GPU better, up to the latency that the objectives leave.",
        &legend(&data.policies),
        |size| {
            Lines {
                policies: &data.policies,
                bound: data.bound,
                name: "Mean batch",
                unit: "requests a batch",
                axis: Axis::FromZero,
                value: |point| point.mean_batch,
                second: None,
                tell: |point| format!("{} requests a batch", rate(point.mean_batch)),
            }
            .draw(size)
        },
    )
}

fn gpu_use(data: &PageData) -> String {
    let lines = figure(
        "GPU use",
        "The part of the time that GPUs were busy, averaged over all of them. At the same bad rate, lower is cheaper.",
        &legend(&data.policies),
        |size| {
            Lines {
                policies: &data.policies,
                bound: data.bound,
                name: "GPU use",
                unit: "busy, mean of all GPUs",
                axis: Axis::Percent,
                value: |point| mean(&point.gpu_busy),
                second: None,
                tell: |point| format!("GPUs {} busy", share(mean(&point.gpu_busy))),
            }
            .draw(size)
        },
    );
    let Some(first) = data.policies.first().filter(|first| first.points.iter().any(|point| !point.gpu_busy.is_empty()))
    else {
        return lines;
    };
    let rates = chart::rates(&data.policies);
    let heat = Heat { policy: first, rates };
    let name = escape(&first.name);
    lines
        + &figure(&format!("Which GPUs {name} uses"), &finding::gpus_in_use(first), &chart::heat::key(), |size| {
            heat.draw(size)
        })
}

/// A heading, a sentence, a key and a chart. The chart is drawn twice, for wide windows and paper and for narrow
/// windows, and the style sheet shows one: text in a drawing scaled down to a phone could not be read.
fn figure(heading: &str, caption: &str, key: &str, draw: impl Fn(Size) -> String) -> String {
    let (wide, narrow) = (draw(Size::Wide), draw(Size::Narrow));
    format!(
        "<figure><figcaption><h2>{heading}</h2><p>{caption}</p></figcaption>\n{key}\n\
         <div class=\"wide\">{wide}</div>\n<div class=\"narrow\">{narrow}</div></figure>"
    )
}

#[cfg(test)]
mod tests;
