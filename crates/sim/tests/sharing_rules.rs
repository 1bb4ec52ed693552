//! Random tenants on one GPU under every policy: the rules that a run checks hold, one seed gives one report, and the
//! figures in it make sense. And scenario files that are refused, each with its message.

use policy::Span;
use policy::sharing::Class;
use proptest::prelude::*;
use sim::sharing::{GpuSpec, Kernel, Load, Mode, NAMES, Report, Scenario, TenantSpec, parse, run};

fn kernel() -> impl Strategy<Value = Kernel> {
    let parts = (1..3_000u64, 0..300u64, prop::bool::weighted(0.2), 1..=1_000u32, any::<bool>());
    parts.prop_map(|(duration, gap, sync, sms, memory_bound)| Kernel {
        duration: Span::from_micros(duration),
        gap: Span::from_micros(gap),
        sync,
        sms,
        memory_bound,
    })
}

fn tenant() -> impl Strategy<Value = TenantSpec> {
    let class = prop::sample::select(vec![Class::Latency, Class::Standard, Class::BestEffort]);
    let load = prop_oneof![
        (0..5_000u64).prop_map(|think| Load::Closed { think: Span::from_micros(think) }),
        (1.0..200.0f64).prop_map(|rate| Load::Poisson { rate }),
        (1..100u64).prop_map(|millis| Load::Every { interval: Span::from_millis(millis) }),
    ];
    let kernels = prop::collection::vec(kernel(), 1..20);
    (class, 0..10u8, 0..300u32, 0..1_000u32, kernels, load).prop_map(
        |(class, priority, request, more, kernels, load)| {
            let limit = (request + more).clamp(10, 1_000);
            TenantSpec { class, priority, request, limit, load, ..TenantSpec::new("tenant", kernels) }
        },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let mode = prop::sample::select(vec![Mode::TimeSlice, Mode::Concurrent, Mode::Fifo]);
    let tenants = prop::collection::vec(tenant(), 1..4);
    (0..100u64, mode, 0.0..0.3f64, tenants).prop_map(|(seed, mode, noise, tenants)| Scenario {
        seed,
        warmup: Span::from_millis(20),
        duration: Span::from_millis(200),
        noise,
        gpu: GpuSpec { mode, ..GpuSpec::default() },
        tenants,
    })
}

fn makes_sense(scenario: &Scenario, report: &Report) {
    let shares: f64 = report.tenants.iter().map(|tenant| tenant.gpu_share).sum();
    assert!((0.0..=1.0).contains(&report.gpu_busy), "{report:?}");
    assert!(report.gpu_busy + report.gpu_switching <= 1.0 + 1e-9, "{report:?}");
    // Kernels side by side do more than one kernel's work in a moment.
    let least = shares / scenario.tenants.len() as f64;
    assert!(least <= report.gpu_busy + 1e-6, "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_and_one_seed_gives_one_report(scenario in scenario()) {
        for policy in NAMES {
            let report = run(&scenario, policy).expect("there is such a policy");
            prop_assert_eq!(&report, &run(&scenario, policy).expect("there is such a policy"));
            makes_sense(&scenario, &report);
        }
    }
}

#[test]
fn there_is_no_policy_of_another_name() {
    let text = "[[tenant]]\nname = \"a\"\nmodel = \"alexnet\"\n";
    assert!(run(&parse("s.toml", text).expect("it is a scenario"), "wefd").is_none());
}

/// The message for a scenario of this tenant, or that nothing is wrong.
#[track_caller]
fn check(text: &str, expected: &str) {
    let found = parse("s.toml", text).map_or_else(|error| error.to_string(), |_| "nothing wrong".to_owned());
    assert_eq!(found, expected, "for:\n{text}");
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let tenant = "[[tenant]]\nname = \"a\"\nmodel = \"alexnet\"\n";
    check(tenant, "nothing wrong");
    check("", "s.toml: no tenants: expected [[tenant]]");
    check(
        &format!("sede = 1\n{tenant}"),
        "s.toml:1: unknown key `sede`, did you mean `seed`? expected one of: seed, warmup, duration, noise, gpu, tenant",
    );
    check(
        "[gpu]\nmode = \"slices\"\n",
        "s.toml:2: unknown value `slices`, expected one of: timeslice, concurrent, fifo",
    );
    check(
        &format!("{tenant}limit = \"130%\"\n"),
        "s.toml:4: limit = \"130%\" is out of range: expected \"0.1%\" to \"100%\"",
    );
    check(
        &format!("{tenant}limit = 0.3\n"),
        "s.toml:4: invalid type: floating point `0.3`, expected a percentage in quotes, like \"30%\"",
    );
    check(
        &format!("{tenant}limit = \"a third\"\n"),
        "s.toml:4: \"a third\" is no percentage: expected one like \"30%\"",
    );
    check(
        &format!("{tenant}request = \"60%\"\nlimit = \"30%\"\n"),
        "s.toml:4: request \"60%\" is more than limit \"30%\"",
    );
    check(&format!("{tenant}slo = \"0ms\"\n"), "s.toml:4: slo = \"0ms\" is out of range: expected 1ns to 600s");
    check(
        &format!("{tenant}slo = \"20ms\"\n"),
        "s.toml:4: slo is for latency tenants: expected class = \"latency\" with it",
    );
    check(&format!("{tenant}class = \"latency\"\nslo = \"20ms\"\n"), "nothing wrong");
    check(&format!("{tenant}priority = 10\n"), "s.toml:4: priority = 10 is out of range: expected 0 to 9");
    check(&format!("{tenant}{tenant}"), "s.toml:5: two tenants are named \"a\"");
    check(
        &format!("{tenant}rate = 3\nthink = \"1ms\"\n"),
        "s.toml:1: expected one of think (closed loop), rate and every, or none of them",
    );
    check("[[tenant]]\nname = \"a\"\n", "s.toml:1: expected either model = \"resnet50\" or kernels = [{ ... }]");
    check(
        "[[tenant]]\nname = \"a\"\nkernels = []\n",
        "s.toml:3: no kernels: expected [{ count = 10, duration = \"50us\" }]",
    );
    check(
        "[[tenant]]\nname = \"a\"\nkernels = [{ duration = \"0us\" }]\n",
        "s.toml:3: duration = \"0us\" is out of range: expected 1ns to 600s",
    );
    let second = tenant.replace("\"a\"", "\"b\"");
    check(
        &format!("{tenant}request = \"60%\"\n{second}request = \"60%\"\n"),
        "s.toml:8: requests come to 120%: expected at most 100%",
    );
}
