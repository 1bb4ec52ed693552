//! The page of `weft sim report`: how every policy behaves as the offered rate rises.

use crate::chart::bars::Bars;
use crate::chart::heat::Heat;
use crate::chart::lines::{Axis, Lines};
use crate::chart::{self, legend};
use crate::data::SweepPage;
use crate::document::{document, figure, summary};
use crate::numbers::{escape, mean, percent, percent_tick, rate, share};
use crate::{finding, table};

/// The page, as a whole HTML document.
pub fn render(data: &SweepPage) -> String {
    let title = escape(&data.title);
    let mut body = String::new();
    let mut add = |part: String| {
        body.push_str(&part);
        body.push('\n');
    };
    add(format!(
        "<header><p class=\"kicker\">{}</p><h1>{title}</h1>\
         <p class=\"question\">How many requests a second can this cluster answer in time under each scheduling \
         policy, and what happens on the way there?</p></header>",
        data.command
    ));
    add(summary(&data.summary, "What was simulated"));
    add(finding::section(data));
    add(goodput(data));
    add(bad_rate(data));
    add(mean_batch(data));
    add(gpu_use(data));
    add(table::goodput(data));
    add(table::points(data));
    document(&format!("{}: {}", data.title, data.command), &body)
}

fn goodput(data: &SweepPage) -> String {
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

fn bad_rate(data: &SweepPage) -> String {
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

fn mean_batch(data: &SweepPage) -> String {
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

fn gpu_use(data: &SweepPage) -> String {
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

#[cfg(test)]
mod tests;
