//! Weft's own names: base units, and labels that can be summed over.

use super::Scrape;
use super::process::{self, Process};
use super::text::{Exposition, Labels, Type};
use crate::statistics::{BATCH_BUCKETS, LATENCY_BUCKETS, Refused, Statistics, latency_of};
use policy::Span;
use rpc::{State, WorkerState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Writes all of them.
pub(crate) fn write(scrape: &Scrape, out: &mut Exposition) {
    server(scrape, out);
    requests(scrape, out);
    batches(scrape, out);
    models(scrape, out);
    workers(scrape, out);
    own_process(out);
}

fn server(scrape: &Scrape, out: &mut Exposition) {
    let version = Labels::none().with("version", env!("CARGO_PKG_VERSION"));
    out.family("weft_build_info", Type::Gauge, "The version that runs, always 1.").add(&version, 1);
    let mut gauge = |name, help, value: f64| out.family(name, Type::Gauge, help).add(&Labels::none(), value);
    gauge("weft_start_time_seconds", "When this server started, as Unix time.", scrape.started);
    gauge("weft_nodes", "Nodes in the cluster.", scrape.overview.nodes.len() as f64);
    gauge("weft_requests_in_flight", "Requests handed to the scheduler and not answered yet.", scrape.in_flight as f64);
}

fn requests(scrape: &Scrape, out: &mut Exposition) {
    let mut family = out.family("weft_requests_total", Type::Counter, "Requests by what became of them.");
    for (labels, statistics) in &scrape.statistics {
        let mut add = |outcome: &str, count: &AtomicU64| family.add(&labels.with("outcome", outcome), read(count));
        add("good", &statistics.good);
        add("late", &statistics.late);
        add("failed", &statistics.failed);
        add("invalid", &statistics.invalid);
        add("withdrawn", &statistics.withdrawn);
        for reason in Refused::ALL {
            add(&format!("refused_{}", reason.name()), &statistics.refused[reason as usize]);
        }
    }

    let mut family = out.family(
        "weft_request_duration_seconds",
        Type::Histogram,
        "Time from arrival to answer of requests answered with outputs.",
    );
    let ends = latency_ends();
    for (labels, statistics) in &scrape.statistics {
        let counts: Vec<u64> = statistics.latencies.iter().map(read).collect();
        let mut from = 0;
        let upto = |bucket: usize| {
            let count = counts[from..=bucket].iter().sum();
            from = bucket + 1;
            (latency_of(bucket).seconds(), count)
        };
        let shown: Vec<(f64, u64)> = ends.iter().copied().map(upto).collect();
        family.add_histogram(labels, &shown, counts[from..].iter().sum(), seconds(&statistics.total_ns));
    }

    let mut times = |name, help, pick: fn(&Statistics) -> u64| {
        let mut family = out.family(name, Type::Counter, help);
        for (labels, statistics) in &scrape.statistics {
            family.add(labels, pick(statistics) as f64 / 1e9);
        }
    };
    times("weft_request_queue_seconds_total", "Time that answered requests waited.", |of| of.queued_ns.load(Relaxed));
    times("weft_request_compute_seconds_total", "Time that answered requests were computed.", |of| {
        of.compute.total_ns()
    });
    times("weft_request_unserved_seconds_total", "Time to the answer of requests that failed or were refused.", |of| {
        of.failed_ns.load(Relaxed)
    });

    let mut family = out.family("weft_requests_pending", Type::Gauge, "Requests that came and are not answered yet.");
    for (labels, statistics) in &scrape.statistics {
        family.add(labels, read(&statistics.pending));
    }
    let mut family = out.family("weft_rows_total", Type::Counter, "Rows of answered requests.");
    for (labels, statistics) in &scrape.statistics {
        family.add(labels, read(&statistics.rows));
    }
    let mut family =
        out.family("weft_last_request_timestamp_seconds", Type::Gauge, "When the last request came, as Unix time.");
    for (labels, statistics) in scrape.statistics.iter().filter(|(_, statistics)| read(&statistics.last_ms) > 0) {
        family.add(labels, read(&statistics.last_ms) as f64 / 1e3);
    }
}

fn batches(scrape: &Scrape, out: &mut Exposition) {
    let mut family = out.family("weft_batch_requests", Type::Histogram, "Requests in a batch, by batch.");
    for (labels, statistics) in &scrape.statistics {
        let counts: Vec<u64> = statistics.batch_sizes.iter().map(read).collect();
        let shown: Vec<(f64, u64)> =
            (0..BATCH_BUCKETS - 1).map(|bucket| ((1u64 << bucket) as f64, counts[bucket])).collect();
        // Every request that was answered was in a batch.
        family.add_histogram(labels, &shown, counts[BATCH_BUCKETS - 1], read(&statistics.succeeded));
    }
}

fn models(scrape: &Scrape, out: &mut Exposition) {
    let mut family = out.family("weft_queue_requests", Type::Gauge, "Requests that wait for a batch.");
    for model in &scrape.models {
        family.add(&model.labels, model.waiting);
    }
    let mut family = out.family("weft_queue_limit_requests", Type::Gauge, "The most that may wait.");
    for model in &scrape.models {
        family.add(&model.labels, model.entry.spec.queue);
    }
    let mut family = out.family("weft_model_state", Type::Gauge, "1 for the state a model is in and 0 for the others.");
    for model in &scrape.models {
        let is = state_name(&model.entry.shown());
        for state in ["loading", "ready", "unavailable"] {
            family.add(&model.labels.with("state", state), u8::from(state == is));
        }
    }
    let mut family = out.family("weft_model_workers", Type::Gauge, "Workers that can take a batch.");
    for model in &scrape.models {
        family.add(&model.labels, model.entry.workers_ready);
    }
    let mut family = out.family("weft_model_workers_wanted", Type::Gauge, "Workers that a deployment asks for.");
    for model in &scrape.models {
        family.add(&model.labels, model.entry.workers_wanted);
    }
    let mut family = out.family("weft_model_objective_seconds", Type::Gauge, "From arrival to answer, as asked for.");
    for model in &scrape.models {
        family.add(&model.labels, model.entry.spec.slo.seconds());
    }
}

fn workers(scrape: &Scrape, out: &mut Exposition) {
    let mut family = out.family("weft_workers", Type::Gauge, "Workers by state.");
    let states = [WorkerState::Starting, WorkerState::Ready, WorkerState::Restarting, WorkerState::Stopping];
    for state in states {
        let count = scrape.overview.workers.iter().filter(|worker| worker.state == state).count();
        family.add(&Labels::none().with("state", state.name()), count);
    }
    let mut family = out.family("weft_worker_busy_seconds_total", Type::Counter, "Time in which a worker ran batches.");
    for (labels, worker) in scrape.workers() {
        family.add(labels, worker.busy.seconds());
    }
    let mut family = out.family("weft_worker_batches_total", Type::Counter, "Batches that a worker ran.");
    for (labels, worker) in scrape.workers() {
        family.add(labels, worker.batches);
    }
    let mut family = out.family("weft_worker_restarts_total", Type::Counter, "How often a worker was started again.");
    for (labels, worker) in scrape.workers() {
        family.add(labels, worker.restarts);
    }
}

fn own_process(out: &mut Exposition) {
    if let Some(own) = Process::own() {
        let none = Labels::none();
        let cpu = "Processor time of this process, user and kernel.";
        out.family("process_cpu_seconds_total", Type::Counter, cpu).add(&none, own.cpu_seconds);
        let resident = "Memory of this process that is in use.";
        out.family("process_resident_memory_bytes", Type::Gauge, resident).add(&none, own.resident_bytes);
        out.family("process_threads", Type::Gauge, "Threads of this process.").add(&none, own.threads);
    }
    if let Some(files) = process::open_files() {
        out.family("process_open_fds", Type::Gauge, "Files this process has open.").add(&Labels::none(), files);
    }
}

/// The word for a model's state.
pub(crate) const fn state_name(state: &State) -> &'static str {
    match state {
        State::Loading => "loading",
        State::Ready => "ready",
        State::Unavailable(_) => "unavailable",
    }
}

/// The buckets whose upper ends are shown: two for every doubling between a millisecond and a second, where objectives
/// are, one below and above. All ends are ends of the buckets that are counted, so nothing is guessed.
fn latency_ends() -> Vec<usize> {
    let shown = |bucket: &usize| {
        let end = latency_of(*bucket);
        let objectives = Span::from_millis(1)..=Span::from_millis(1_100);
        let quarter = (bucket + 3) % 4;
        end > Span::from_micros(100) && (quarter == 3 || quarter == 1 && objectives.contains(&end))
    };
    (1..LATENCY_BUCKETS - 1).filter(shown).collect()
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

fn seconds(nanoseconds: &AtomicU64) -> f64 {
    Span::from_nanos(read(nanoseconds)).seconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_few_and_rise_by_half_a_doubling_at_most() {
        let ends: Vec<f64> = latency_ends().into_iter().map(|bucket| latency_of(bucket).seconds()).collect();
        assert!(ends.len() < 35, "{}", ends.len());
        assert_eq!((ends[0], *ends.last().unwrap()), (0.000131072, 68.719476736));
        for pair in ends.windows(2) {
            let most = if pair[0] > 0.001 && pair[1] < 1.1 { 1.51 } else { 2.01 };
            assert!(pair[1] / pair[0] <= most, "{pair:?}");
        }
    }
}
