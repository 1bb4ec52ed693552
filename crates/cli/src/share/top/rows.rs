//! What `weft top` shows, as rows of text: the same on a screen and in a table.

use clap::ValueEnum;
use config::share::class_name;
use report::columns::row;
use share_client::{Status, TenantStatus};

/// What tenants are sorted by; the most first, names from A on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The part of the GPU that was used
    Used,
    /// Memory
    Memory,
    /// Launches a second
    Launches,
    /// Time that launches were held
    Waiting,
    /// The name
    Name,
}

/// A row of titles, and a row for each tenant on each GPU.
pub(crate) fn rows(status: &Status, order: Order, filter: &str) -> Vec<Vec<String>> {
    let titles = [
        "TENANT", "GPU", "CLASS", "PRIO", "REQUEST", "LIMIT", "GRANTED", "USED", "MEMORY", "OF", "LAUNCH/S", "WAITING",
        "THROTTLE", "REASON",
    ];
    let mut rows = vec![row(titles)];
    for gpu in &status.gpus {
        let index = gpu.index.to_string();
        rows.extend(sorted(&gpu.tenants, order, filter).map(|tenant| {
            let most = tenant.share.memory.map_or(gpu.memory_bytes, |bytes| bytes.0);
            describe(tenant, &index, most)
        }));
    }
    rows.extend(sorted(&status.idle, order, filter).map(|tenant| {
        let most = tenant.share.memory.map_or(0, |bytes| bytes.0);
        describe(tenant, "-", most)
    }));
    rows
}

fn sorted<'a>(tenants: &'a [TenantStatus], order: Order, filter: &str) -> impl Iterator<Item = &'a TenantStatus> {
    let mut found: Vec<&TenantStatus> = tenants.iter().filter(|tenant| tenant.name.contains(filter)).collect();
    found.sort_by(|one, other| {
        let by = |number: fn(&TenantStatus) -> u64| number(other).cmp(&number(one));
        let by_number = match order {
            Order::Used => by(|tenant| tenant.used_permille.into()),
            Order::Memory => by(|tenant| tenant.memory_bytes),
            Order::Launches => by(|tenant| tenant.launches_per_second),
            Order::Waiting => by(|tenant| tenant.waiting_permille.into()),
            Order::Name => std::cmp::Ordering::Equal,
        };
        by_number.then_with(|| one.name.cmp(&other.name))
    });
    found.into_iter()
}

fn describe(tenant: &TenantStatus, gpu: &str, memory_most: u64) -> Vec<String> {
    let share = &tenant.share;
    // The daemon writes what is done about a program, and behind a colon for whom and why.
    let (throttle, reason) = tenant.note.split_once(": ").unwrap_or((&tenant.note, ""));
    let mut row = vec![
        tenant.name.clone(),
        gpu.to_owned(),
        class_name(share.class).to_owned(),
        share.priority.to_string(),
        share.request.to_string(),
        share.limit.to_string(),
        percent(tenant.given_permille),
        percent(tenant.used_permille),
        gibibytes(tenant.memory_bytes),
        if memory_most == 0 { "-".to_owned() } else { gibibytes(memory_most) },
        tenant.launches_per_second.to_string(),
        percent(tenant.waiting_permille),
    ];
    row.extend([throttle, reason].map(|text| if text.is_empty() { "-".to_owned() } else { text.to_owned() }));
    row
}

fn percent(permille: u32) -> String {
    format!("{}.{}%", permille / 10, permille % 10)
}

/// Memory so that a column can be compared: two places of GiB.
pub(super) fn gibibytes(bytes: u64) -> String {
    format!("{:.2}GiB", bytes as f64 / (1u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use share_client::GpuStatus;

    #[test]
    fn tenants_are_sorted_and_filtered() {
        let tenant = |name: &str, used: u32, memory: u64| TenantStatus {
            name: name.into(),
            used_permille: used,
            memory_bytes: memory << 30,
            ..TenantStatus::default()
        };
        let gpu = GpuStatus {
            memory_bytes: 8 << 30,
            tenants: vec![tenant("train", 100, 3), tenant("serve", 655, 1), tenant("trace", 100, 2)],
            ..GpuStatus::default()
        };
        let status = Status { gpus: vec![gpu], idle: vec![tenant("idle", 0, 0)], ..Status::default() };
        let names = |order, filter| -> Vec<String> {
            rows(&status, order, filter).into_iter().skip(1).map(|row| row[0].clone()).collect()
        };
        assert_eq!(names(Order::Used, ""), ["serve", "trace", "train", "idle"]);
        assert_eq!(names(Order::Memory, "tra"), ["train", "trace"]);
        let shown = rows(&status, Order::Name, "serve");
        assert_eq!(shown[1][6..10], ["0.0%", "65.5%", "1.00GiB", "8.00GiB"]);
        assert_eq!(shown[1][12..], ["-", "-"]);
    }

    #[test]
    fn a_throttled_program_shows_how_and_why() {
        let shown = |note: &str| {
            let tenant = TenantStatus { note: note.into(), ..TenantStatus::default() };
            describe(&tenant, "0", 0)[12..].to_vec()
        };
        assert_eq!(shown("on 75% of the SMs: serve takes 1.10 of what it takes alone")[0], "on 75% of the SMs");
        assert_eq!(
            shown("held: serve takes 1.10 of what it takes alone")[1],
            "serve takes 1.10 of what it takes alone"
        );
        assert_eq!(shown("suspended"), ["suspended", "-"]);
    }
}
