//! The page as a whole.

use super::*;
use crate::data::{Estimate, Point, PolicyData};

fn estimate(mean: f64) -> Estimate {
    Estimate { mean, low: mean * 0.98, high: mean * 1.01 }
}

fn policy(name: &str, goodput: f64, rates: &[f64], gpus: usize) -> PolicyData {
    let point = |&rate: &f64| Point {
        rate,
        bad_average: (rate / goodput - 0.9).max(0.0) * 0.1,
        bad_worst: (rate / goodput - 0.8).max(0.0) * 0.2,
        mean_batch: 1.0 + rate / 700.0,
        gpu_busy: (0..gpus).map(|gpu| (rate / 800.0 - gpu as f64).clamp(0.0, 1.0)).collect(),
    };
    PolicyData {
        name: name.into(),
        goodput_average: estimate(goodput),
        goodput_worst: estimate(goodput * 0.9),
        points: rates.iter().map(point).collect(),
    }
}

fn sample() -> SweepPage {
    let rates = [1000.0, 2500.0, 4000.0, 5500.0, 6500.0];
    SweepPage {
        command: "weft sim report",
        title: "twenty-models.toml".into(),
        summary: vec![
            ("GPUs".into(), "8 x gpu".into()),
            ("Command".into(), "weft sim report twenty-models.toml".into()),
        ],
        policies: vec![policy("weft", 5458.0, &rates, 8), policy("deferred", 5350.0, &rates, 8)],
        bound: 5994.0,
        limit: 0.01,
    }
}

/// Renders odd data and holds it to what is true of every page.
fn check(data: &SweepPage) -> String {
    let page = render(data);
    for banned in ["NaN", "inf", "http://", "https://", "<script", "url(", "@import"] {
        assert!(!page.contains(banned), "{banned} in the page");
    }
    for element in ["figure", "table", "tbody", "section", "svg", "g", "dl", "ul", "text", "title"] {
        let opened = page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element} opened and closed");
    }
    page
}

#[test]
fn every_value_is_shown() {
    let data = sample();
    let page = check(&data);
    let mut expected: Vec<String> =
        ["twenty-models.toml", "8 x gpu", "5,994", "5,458", "5,350", "at most 1% bad"].map(String::from).into();
    for policy in &data.policies {
        expected.push(format!("<th scope=\"row\">{}</th>", policy.name));
        for own in [policy.goodput_average, policy.goodput_worst] {
            expected.push(format!("<td>{}</td><td>{} to {}</td>", rate(own.mean), rate(own.low), rate(own.high)));
        }
        for point in &policy.points {
            expected.push(format!("<td>{}</td>", rate(point.rate)));
            expected.push(format!("{} bad, {} of the worst", percent(point.bad_average), percent(point.bad_worst)));
            expected.extend([point.bad_average, point.bad_worst].map(|bad| format!(">{}</td>", percent(bad))));
            expected.push(format!("<td>{}</td>", rate(point.mean_batch)));
            expected.push(format!("<td>{}</td>", share(mean(&point.gpu_busy))));
        }
    }
    // GPUs that are equally busy are named together.
    expected.push("GPU 3 at 2,500 requests/s: 12.5% busy".into());
    expected.push("GPUs 4 to 7 at 2,500 requests/s: 0.0% busy".into());
    for text in expected {
        assert!(page.contains(&text), "{text} is missing");
    }
}

#[test]
fn the_same_data_gives_the_same_page() {
    assert_eq!(render(&sample()), render(&sample()));
}

#[test]
fn text_is_escaped() {
    let mut data = sample();
    let nasty = "<script>alert('1')</script>\"&";
    data.title = nasty.into();
    data.summary.push((nasty.into(), nasty.into()));
    data.policies.iter_mut().for_each(|policy| policy.name = nasty.into());
    let page = check(&data);
    assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;"));
    assert!(!page.contains("alert('"));
}

#[test]
fn one_point_and_no_goodput() {
    let mut data = sample();
    for policy in &mut data.policies {
        policy.points.truncate(1);
        policy.goodput_average = Estimate { mean: 0.0, low: 0.0, high: 0.0 };
        policy.goodput_worst = policy.goodput_average;
    }
    assert!(check(&data).contains("serves no load"));
    data.bound = 0.0;
    check(&data);
    data.policies.iter_mut().for_each(|policy| policy.points.clear());
    check(&data);
    data.policies.clear();
    check(&data);
}

#[test]
fn numbers_that_are_none() {
    let mut data = sample();
    data.bound = f64::INFINITY;
    let policy = &mut data.policies[0];
    policy.goodput_average = Estimate { mean: f64::NAN, low: f64::NAN, high: f64::INFINITY };
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0] {
        policy.points.push(Point {
            rate: odd,
            bad_average: odd,
            bad_worst: odd,
            mean_batch: odd,
            gpu_busy: vec![odd; 3],
        });
    }
    check(&data);
}

#[test]
fn many_gpus_policies_and_points() {
    let rates: Vec<f64> = (1..=40).map(|step| f64::from(step) * 200_000.0).collect();
    let mut data = sample();
    data.policies = (0..10).map(|index| policy(&format!("policy {index}"), 5e6, &rates, 10_000)).collect();
    data.bound = 6e6;
    let page = check(&data);
    assert!(page.contains("GPU id, 200 to a row"));
    assert!(page.len() < 1_500_000, "{} bytes", page.len());
}
