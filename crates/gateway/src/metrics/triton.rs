//! Triton's names, with its units and labels, so that boards and alerts made for it go on working.
//!
//! What Triton counts as an inference is a row, and as an execution a batch. Times are sums over requests that were
//! answered with outputs.

use super::Scrape;
use super::text::{Exposition, Labels, Type};
use crate::statistics::Statistics;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Value = fn(&Statistics) -> u64;

const COUNTERS: [(&str, &str, Value); 8] = [
    ("nv_inference_request_success", "Requests answered with outputs.", |of| read(&of.succeeded)),
    ("nv_inference_count", "Rows of requests answered with outputs.", |of| read(&of.rows)),
    ("nv_inference_exec_count", "Batches that were computed.", |of| read(&of.batches)),
    ("nv_inference_request_duration_us", "From arrival to answer, summed over requests.", |of| micros(&of.total_ns)),
    ("nv_inference_queue_duration_us", "Time of waiting, summed over requests.", |of| micros(&of.queued_ns)),
    ("nv_inference_compute_input_duration_us", "Time of putting inputs together, summed over requests.", |of| {
        micros(&of.compute.input_ns)
    }),
    ("nv_inference_compute_infer_duration_us", "Time at the worker, summed over requests.", |of| {
        micros(&of.compute.infer_ns)
    }),
    ("nv_inference_compute_output_duration_us", "Time of taking outputs apart, summed over requests.", |of| {
        micros(&of.compute.output_ns)
    }),
];

/// Writes all of them.
pub(crate) fn write(scrape: &Scrape, out: &mut Exposition) {
    failures(scrape, out);
    for (name, help, value) in COUNTERS {
        let mut family = out.family(name, Type::Counter, help);
        for (labels, statistics) in &scrape.statistics {
            family.add(labels, value(statistics));
        }
    }
    let help = "Requests that wait for a batch.";
    let mut family = out.family("nv_inference_pending_request_count", Type::Gauge, help);
    for model in &scrape.models {
        family.add(&model.labels, model.waiting);
    }
    gpus(scrape, out);
}

fn failures(scrape: &Scrape, out: &mut Exposition) {
    let help = "Requests not answered with outputs, by Triton's reasons.";
    let mut family = out.family("nv_inference_request_failure", Type::Counter, help);
    for (labels, statistics) in &scrape.statistics {
        let mut add = |reason: &str, count: u64| family.add(&labels.with("reason", reason), count);
        add("BACKEND", read(&statistics.failed));
        add("CANCELED", 0);
        add("OTHER", read(&statistics.invalid));
        add("REJECTED", statistics.refused.iter().map(read).sum());
    }
}

fn gpus(scrape: &Scrape, out: &mut Exposition) {
    if scrape.gpus.is_empty() {
        return;
    }
    let labels = |uuid: &str| Labels::none().with("gpu_uuid", uuid);
    let mut family = out.family("nv_gpu_utilization", Type::Gauge, "Part of the time a GPU ran something, 0 to 1.");
    for gpu in scrape.gpus.iter() {
        family.add(&labels(&gpu.uuid), gpu.utilization);
    }
    let mut family = out.family("nv_gpu_memory_total_bytes", Type::Gauge, "Memory of a GPU.");
    for gpu in scrape.gpus.iter() {
        family.add(&labels(&gpu.uuid), gpu.memory_total_bytes);
    }
    let mut family = out.family("nv_gpu_memory_used_bytes", Type::Gauge, "Memory of a GPU that is in use.");
    for gpu in scrape.gpus.iter() {
        family.add(&labels(&gpu.uuid), gpu.memory_bytes);
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

fn micros(nanoseconds: &AtomicU64) -> u64 {
    read(nanoseconds) / 1_000
}
