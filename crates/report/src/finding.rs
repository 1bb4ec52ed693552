//! What the data shows, in sentences.

use crate::data::{Estimate, PolicyData, SweepPage};
use crate::numbers::{count, escape, percent_tick, rate};

/// The section that a reader in a hurry reads.
pub(crate) fn section(data: &SweepPage) -> String {
    let Some((first, others)) = data.policies.split_first() else {
        return "<section class=\"finding\"><h2>What it shows</h2><p>No policy was run.</p></section>".into();
    };
    let name = escape(&first.name);
    let (limit, goodput) = (percent_tick(data.limit), first.goodput_average);
    let mut lead = if goodput.mean > 0.0 {
        format!(
            "<strong>{name}</strong> serves <strong>{}</strong> requests a second with at most {limit} bad",
            rate(goodput.mean)
        )
    } else {
        format!("<strong>{name}</strong> serves no load with at most {limit} bad")
    };
    lead += &against(goodput, others, |policy| policy.goodput_average);
    if data.bound > 0.0 && data.bound.is_finite() {
        lead += &format!("; the bound is {}", rate(data.bound));
    }
    let worst = first.goodput_worst;
    let mut more = if worst.mean > 0.0 {
        format!("With every model within {limit} it serves {}", rate(worst.mean))
    } else {
        format!("It serves no load with every model within {limit}")
    };
    more += &against(worst, others, |policy| policy.goodput_worst);
    format!("<section class=\"finding\"><h2>What it shows</h2><p class=\"lead\">{lead}.</p><p>{more}.</p></section>")
}

/// How a goodput compares with the best of the others.
fn against(own: Estimate, others: &[PolicyData], of: fn(&PolicyData) -> Estimate) -> String {
    let best = others.iter().reduce(|best, other| if of(other).mean > of(best).mean { other } else { best });
    let Some((best, theirs)) = best.map(|best| (best, of(best))).filter(|(_, theirs)| theirs.mean > 0.0) else {
        return String::new();
    };
    let ratio = own.mean / theirs.mean;
    if !ratio.is_finite() {
        return String::new();
    }
    let who = if ratio >= 1.0 { "the next best" } else { "the best" };
    let name = escape(&best.name);
    // Spreads that meet mean that another choice of seeds could have turned the order around.
    let close = if own.low <= theirs.high && theirs.low <= own.high { ", within the spread over seeds" } else { "" };
    format!(", {ratio:.2} times {who} ({name}){close}")
}

/// How many GPUs carry the load, at the lowest rate and where it first takes most of them.
pub(crate) fn gpus_in_use(policy: &PolicyData) -> String {
    let about = "How busy each GPU was. Where load is kept together, it climbs from the low ids as the rate rises and \
                 leaves the others free.";
    let Some(point) = policy.points.iter().find(|point| working(&point.gpu_busy) > 0) else {
        return about.into();
    };
    let (few, all) = (working(&point.gpu_busy), point.gpu_busy.len());
    let (verb, gpus) = (if few == 1 { "does" } else { "do" }, if all == 1 { "GPU" } else { "GPUs" });
    format!(
        "{about} At {} requests a second, {} of {} {gpus} {verb} 95% of the work.",
        rate(point.rate),
        count(few),
        count(all),
    )
}

/// The smallest number of GPUs that do 95% of the work.
fn working(busy: &[f64]) -> usize {
    let mut busy: Vec<f64> = busy.iter().copied().filter(|busy| busy.is_finite() && *busy > 0.0).collect();
    busy.sort_by(|one, other| other.total_cmp(one));
    let enough = 0.95 * busy.iter().sum::<f64>();
    let mut done = 0.0;
    let before = busy.iter().take_while(|part| {
        let wanting = done < enough;
        done += **part;
        wanting
    });
    before.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, mean: f64, spread: f64) -> PolicyData {
        let estimate = Estimate { mean, low: mean - spread, high: mean + spread };
        PolicyData { name: name.into(), goodput_average: estimate, goodput_worst: estimate, points: vec![] }
    }

    fn check(policies: &[(&str, f64, f64)], expected: &str) {
        let policies = policies.iter().map(|(name, mean, spread)| policy(name, *mean, *spread)).collect();
        let data =
            SweepPage { command: "weft", title: String::new(), summary: vec![], policies, bound: 5994.0, limit: 0.01 };
        let text = section(&data).replace("<strong>", "").replace("</strong>", "");
        assert!(text.contains(&format!("<p class=\"lead\">{expected}</p>")), "{text}");
    }

    #[test]
    fn the_lead_says_who_is_ahead() {
        check(
            &[("weft", 5458.0, 10.0), ("eager", 4000.0, 9.0), ("deferred", 5350.0, 20.0)],
            "weft serves 5,458 requests a second with at most 1% bad, 1.02 times the next best (deferred); the bound \
             is 5,994.",
        );
        check(
            &[("weft", 5300.0, 60.0), ("deferred", 5350.0, 20.0)],
            "weft serves 5,300 requests a second with at most 1% bad, 0.99 times the best (deferred), within the \
             spread over seeds; the bound is 5,994.",
        );
        check(&[("weft", 0.0, 0.0)], "weft serves no load with at most 1% bad; the bound is 5,994.");
    }

    #[test]
    fn few_gpus_carry_the_load() {
        assert_eq!(working(&[0.9, 0.8, 0.01, 0.0]), 2);
        assert_eq!(working(&[0.5; 4]), 4);
        assert_eq!(working(&[0.0, f64::NAN]), 0);
    }
}
