//! A quota of q% gives q% beside a busy neighbour, from 10 to 90, with launches and with graphs, however the GPU is
//! shared underneath; and it does so steadily.

use policy::Span;
use sim::sharing::{GpuSpec, Kernel, Mode, Report, Scenario, TenantSpec, run};

fn busy(name: &str, count: usize, micros: u64, sync_every: usize) -> TenantSpec {
    let kernel = |index: usize| Kernel {
        duration: Span::from_micros(micros),
        gap: Span::from_micros(5),
        sync: (index + 1).is_multiple_of(sync_every),
        sms: 1_000,
        memory_bound: false,
    };
    TenantSpec::new(name, (0..count).map(kernel).collect())
}

fn share(mode: Mode, tenants: Vec<TenantSpec>) -> Report {
    let gpu = GpuSpec { mode, ..GpuSpec::default() };
    let (warmup, duration) = (Span::from_millis(500), Span::from_secs(4));
    run(&Scenario { seed: 1, warmup, duration, noise: 0.1, gpu, tenants }, "weft").expect("there is such a policy")
}

/// Asks for 10, 20, ... 90% and looks at what was given, in points, and at what both were given.
fn check(mode: Mode, own: &TenantSpec, neighbour: &TenantSpec, both: f64) {
    let mut wrong = Vec::new();
    for percent in (10..=90).step_by(10) {
        let asked = TenantSpec { request: percent * 10, limit: percent * 10, ..own.clone() };
        let report = share(mode, vec![asked, neighbour.clone()]);
        let given = report.tenants[0].gpu_share * 100.0;
        let other = report.tenants[1].gpu_share * 100.0;
        if (given - f64::from(percent)).abs() > 3.0 || given + other < both {
            wrong.push(format!("asked {percent}%, given {given:.1}%, neighbour {other:.1}%"));
        }
    }
    assert!(wrong.is_empty(), "{mode:?}, {} beside {}:\n{}", own.name, neighbour.name, wrong.join("\n"));
}

#[test]
fn launches_beside_launches() {
    for mode in [Mode::TimeSlice, Mode::Fifo] {
        check(mode, &busy("short", 200, 50, 200), &busy("short too", 200, 60, 200), 94.0);
        check(mode, &busy("long", 40, 700, 40), &busy("short", 200, 50, 200), 92.0);
    }
}

#[test]
fn graphs_beside_launches_and_graphs() {
    let graph = busy("graph", 200, 50, 200).as_graphs();
    assert_eq!(graph.kernels.len(), 1);
    for mode in [Mode::TimeSlice, Mode::Fifo] {
        check(mode, &graph, &busy("launches", 200, 60, 200), 90.0);
        check(mode, &graph, &busy("graph too", 100, 80, 100).as_graphs(), 88.0);
    }
}

#[test]
fn kernels_of_ten_ticks_beside_short_ones() {
    // Whose limit is reached cannot take what the other's next kernel is too long for.
    check(Mode::TimeSlice, &busy("short", 200, 50, 200), &busy("long", 4, 20_000, 4), 75.0);
}

#[test]
fn unused_share_flows_on() {
    // The owner of 80% uses a tenth: the neighbour has the rest.
    let mut owner = busy("owner", 10, 100, 10);
    owner.kernels[9].gap = Span::from_millis(9);
    let owner = TenantSpec { request: 800, limit: 800, ..owner };
    let report = share(Mode::TimeSlice, vec![owner, busy("neighbour", 200, 50, 200)]);
    assert!(report.tenants[0].completion_alone < Some(4.0), "{report:#?}");
    assert!(report.tenants[1].gpu_share > 0.70, "{report:#?}");
}
