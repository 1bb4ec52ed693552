//! The demo's tables.

use super::model::Model;
use policy::sharing::Class;
use report::columns::align;
use share_client::Status;

/// What became of the requests to each model.
pub(super) fn models(models: &[Model], reports: &[serde_json::Value]) -> String {
    let head = ["model", "what", "requests/s", "in time", "p99 ms", "objective ms"].map(str::to_owned).to_vec();
    let row = |(model, report): (&Model, &serde_json::Value)| {
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or_default();
        let (good, offered) = (number(&report["good"]), number(&report["offered"]));
        vec![
            model.name.to_owned(),
            model.what.to_owned(),
            format!("{:.0}", number(&report["offered_rps"])),
            format!("{:.1}%", 100.0 * good / offered.max(1.0)),
            format!("{:.1}", number(&report["latency_ms"]["p99"])),
            model.slo_ms.to_string(),
        ]
    };
    let rows = std::iter::once(head).chain(models.iter().zip(reports).map(row));
    format!("\n{}\n", align(&rows.collect::<Vec<_>>()))
}

/// Who used how much of the GPU.
pub(super) fn tenants(status: &Status) -> String {
    let head = ["on the GPU", "class", "GPU time", "memory GiB"].map(str::to_owned).to_vec();
    let tenants = status.gpus.iter().flat_map(|gpu| &gpu.tenants);
    let rows = tenants.map(|tenant| {
        let class = match tenant.share.class {
            Class::Latency => "latency",
            Class::Standard => "standard",
            Class::BestEffort => "best-effort",
        };
        vec![
            tenant.name.clone(),
            class.to_owned(),
            format!("{:.0}%", f64::from(tenant.used_permille) / 10.0),
            format!("{:.1}", tenant.memory_bytes as f64 / f64::from(1 << 30)),
        ]
    });
    format!("{}\n", align(&std::iter::once(head).chain(rows).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::model::{RESNET, SENTIMENT};

    #[test]
    fn a_row_says_what_was_in_time() {
        let report = |good: u64| serde_json::json!({"good": good, "offered": 200, "offered_rps": 40.0, "latency_ms": {"p99": 12.34}});
        let text = models(&[RESNET, SENTIMENT], &[report(200), report(150)]);
        let lines: Vec<&str> = text.trim().lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("resnet50") && lines[1].contains("100.0%") && lines[1].contains("12.3"), "{text}");
        assert!(lines[2].contains("75.0%") && lines[2].ends_with("100"), "{text}");
    }
}
