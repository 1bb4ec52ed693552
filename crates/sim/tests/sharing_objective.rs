//! Requests of 0.85 ms that come at random, half of the time, in turns with a training whose longest kernels take 50 ms.

use sim::sharing::{Report, parse, run};

fn beside_training(slo: &str) -> Report {
    let text = format!(
        r#"
        warmup = "5s"
        duration = "10s"

        [gpu]
        switch = "180us"
        linger = "0us"
        preemption = "330us"

        [[tenant]]
        name = "requests"
        class = "latency"
        kernels = [{{ duration = "840us", gap = "10us", sync = true }}]
        rate = 579
        {slo}

        [[tenant]]
        name = "training"
        class = "best-effort"
        kernels = [{{ count = 400, duration = "1ms", gap = "2us" }}, {{ count = 4, duration = "50ms", gap = "2us" }}]
        "#
    );
    run(&parse("s.toml", &text).expect("it is well formed"), "weft-time").expect("it is a policy")
}

#[test]
fn an_objective_is_kept_and_what_it_leaves_is_used() {
    let as_alone = beside_training("");
    let p99 = as_alone.tenants[0].p99_alone.unwrap();
    assert!(p99 < 1.12, "{as_alone:?}");
    let promised = beside_training(r#"slo = "10ms""#);
    let p99_ms = promised.tenants[0].p99_ms.unwrap();
    assert!(p99_ms < 10.0 && promised.tenants[1].gpu_share > 0.3, "{promised:?}");
    assert!(promised.tenants[1].gpu_share > as_alone.tenants[1].gpu_share, "{promised:?} {as_alone:?}");
}
