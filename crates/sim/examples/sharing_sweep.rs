//! What each parameter of sharing is worth: families of programs beside each other, with one parameter at a time at parts and
//! multiples of what it is.
//!
//! Prints a table; `--json` one line for each run. `--only NAME` for one parameter, `--base` for none; `--case TEXT` for the
//! cases with this in their names; `--held-out` for programs of other sizes, beside others, by another seed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use policy::Span;
use policy::sharing::{Class, SharingConfig};
use sim::sharing::{GpuSpec, Kernel, Load, Scenario, TenantSpec, run_with};

/// In hundredths.
const PARTS: [u64; 2] = [50, 200];

struct Case {
    name: String,
    policy: &'static str,
    scenario: Scenario,
}

fn graph(micros: u64) -> Vec<Kernel> {
    vec![Kernel {
        duration: Span::from_micros(micros),
        gap: Span::from_micros(20),
        sync: true,
        sms: 1_000,
        memory_bound: false,
    }]
}

/// Kernels of 30 us that the host launches as fast as they run, and a sync at the end.
fn eager(micros: u64) -> Vec<Kernel> {
    let count = (micros / 50).max(1) as usize;
    let kernel = |index: usize| Kernel {
        duration: Span::from_micros(30),
        gap: Span::from_micros(50),
        sync: index + 1 == count,
        sms: 300,
        memory_bound: false,
    };
    (0..count).map(kernel).collect()
}

fn training(longest_ms: u64) -> Vec<Kernel> {
    let kernel = |micros: u64| Kernel {
        duration: Span::from_micros(micros),
        gap: Span::from_micros(2),
        sync: false,
        sms: 1_000,
        memory_bound: false,
    };
    let mut kernels = vec![kernel(300); 200];
    kernels.extend(vec![kernel(longest_ms * 1_000); 4]);
    kernels
}

/// The family, or another that nothing was chosen by.
fn cases(held_out: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let (sizes, longest_ms, seed) =
        if held_out { ([1_000, 1_900, 3_700, 7_000], [5, 120], 2) } else { ([800, 1_300, 2_500, 5_500], [2, 50], 1) };
    for (shape, kernels) in [("graph", graph as fn(u64) -> Vec<Kernel>), ("eager", eager)] {
        for micros in sizes {
            let seconds = micros as f64 / 1e6;
            let loads = [
                ("at random", Load::Poisson { rate: 0.5 / seconds }),
                ("every", Load::Every { interval: Span::from_micros(micros * 9 / 2) }),
                ("in a row", Load::Closed { think: Span::ZERO }),
            ];
            for (how, load) in loads {
                for longest in longest_ms {
                    let latency =
                        TenantSpec { class: Class::Latency, load, ..TenantSpec::new("latency", kernels(micros)) };
                    let best_effort =
                        TenantSpec { class: Class::BestEffort, ..TenantSpec::new("training", training(longest)) };
                    let gpu = GpuSpec {
                        switch: Span::from_micros(100),
                        linger: Span::ZERO,
                        preemption: Span::from_micros(200),
                        ..GpuSpec::default()
                    };
                    let scenario = Scenario {
                        seed,
                        warmup: Span::from_secs(10),
                        duration: Span::from_secs(10),
                        noise: 0.02,
                        gpu,
                        tenants: vec![latency, best_effort],
                    };
                    let name = format!("{shape} {micros}us {how} beside {longest}ms");
                    cases.push(Case { name, policy: "weft-time", scenario });
                }
            }
        }
    }
    cases
}

struct Found {
    /// Of the latency program: 99th percentile over alone, or time per request over alone where it never pauses.
    slower: f64,
    /// The training's part of the GPU.
    share: f64,
}

fn measure(case: &Case, config: &SharingConfig) -> Found {
    let report = run_with(&case.scenario, case.policy, config.clone()).expect("there is such a policy");
    let latency = &report.tenants[0];
    let closed = matches!(case.scenario.tenants[0].load, Load::Closed { .. });
    let slower = if closed { 1.0 / latency.throughput_alone } else { latency.p99_alone.unwrap_or(f64::INFINITY) };
    Found { slower, share: report.tenants[1].gpu_share }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let only = arguments.iter().position(|argument| argument == "--only").map(|place| arguments[place + 1].clone());
    let mut cases = cases(arguments.iter().any(|argument| argument == "--held-out"));
    if let Some(place) = arguments.iter().position(|argument| argument == "--case") {
        cases.retain(|case| case.name.contains(&arguments[place + 1]));
    }
    let mut rows: Vec<(String, u64, Vec<Found>)> = Vec::new();
    // A third of them say what a parameter is worth; all of them are for what it is.
    if !arguments.iter().any(|argument| argument == "--base") {
        cases.retain(|case| !case.name.contains("in a row") && case.name.contains("2ms"));
    }
    let play = |config: &SharingConfig| -> Vec<Found> { cases.iter().map(|case| measure(case, config)).collect() };
    rows.push(("as it is".to_owned(), 100, play(&SharingConfig::default())));
    if !arguments.iter().any(|argument| argument == "--base") {
        let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
        for parameter in SharingConfig::PARAMETERS.iter().filter(|parameter| wanted(parameter.name)) {
            for part in PARTS {
                let mut config = SharingConfig::default();
                let value = parameter.get(&config) * part / 100;
                parameter.set(&mut config, value);
                rows.push((parameter.name.to_owned(), part, play(&config)));
                eprintln!("{} at {part}%", parameter.name);
            }
        }
    }
    if json {
        for (name, part, found) in &rows {
            for (case, found) in cases.iter().zip(found) {
                let (slower, share) = (found.slower, found.share);
                let case = &case.name;
                println!(
                    r#"{{"parameter": "{name}", "percent": {part}, "case": "{case}", "slower": {slower:.4}, "training": {share:.4}}}"#
                );
            }
        }
        return;
    }
    if rows.len() == 1 {
        for (case, found) in cases.iter().zip(&rows[0].2) {
            println!("{:45} {:6.3} {:6.3}", case.name, found.slower, found.share);
        }
    }
    println!(
        "| parameter | at | cases above 1.10 | median slower | worst | training, mean |\n|---|---|---|---|---|---|"
    );
    for (name, part, found) in &rows {
        let mut slower: Vec<f64> = found.iter().map(|found| found.slower).collect();
        slower.sort_by(f64::total_cmp);
        let above = slower.iter().filter(|slower| **slower > 1.10).count();
        let share = found.iter().map(|found| found.share).sum::<f64>() / found.len() as f64;
        let (median, worst) = (slower[slower.len() / 2], slower[slower.len() - 1]);
        println!("| {name} | {part}% | {above} of {} | {median:.3} | {worst:.2} | {share:.3} |", slower.len());
    }
}
