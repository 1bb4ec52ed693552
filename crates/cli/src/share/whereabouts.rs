//! Where a program under a share is, and why.

use super::daemon;
use super::job::Job;
use config::share::class_name;
use serde_json::{Value, json};
use share_client::TenantStatus;

/// What is known of the programs with one name.
#[derive(Debug, Default)]
pub(crate) struct Whereabouts {
    /// With the number and name of the GPU, where it uses one.
    programs: Vec<(Option<(u32, String)>, TenantStatus)>,
    /// Why a job of that name does not run yet.
    waiting: Option<String>,
}

impl Whereabouts {
    /// Programs of this name, or of this name and a number, as a model's workers are called.
    pub(crate) fn of(name: &str) -> Whereabouts {
        let is = |tenant: &TenantStatus| {
            let numbered = tenant.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            tenant.name == name || numbered.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let mut programs = Vec::new();
        if let Some(status) = daemon::reach().ok().and_then(|client| client.status().ok()) {
            for gpu in status.gpus {
                let named = gpu.tenants.into_iter().filter(is);
                programs.extend(named.map(|tenant| (Some((gpu.index, gpu.name.clone())), tenant)));
            }
            programs.extend(status.idle.into_iter().filter(is).map(|tenant| (None, tenant)));
        }
        let waiting = Job::named(name).ok().filter(Job::is_held).and_then(|job| job.read()?.waiting);
        Whereabouts { programs, waiting }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.waiting.is_none()
    }

    pub(crate) fn json(&self) -> Value {
        let program = |(gpu, tenant): &(Option<(u32, String)>, TenantStatus)| json!({ "gpu": gpu.as_ref().map(|(index, _)| index), "tenant": tenant });
        json!({ "waiting": self.waiting, "tenants": self.programs.iter().map(program).collect::<Vec<_>>() })
    }

    pub(crate) fn words(&self) -> String {
        let mut told = String::new();
        if let Some(reason) = &self.waiting {
            told += &format!("waits for room: {reason}\n");
        }
        for (gpu, tenant) in &self.programs {
            let share = &tenant.share;
            let place = match gpu {
                Some((index, name)) => format!("on GPU {index} ({name})"),
                None => "uses no GPU at the moment".to_owned(),
            };
            let (class, request, limit) = (class_name(share.class), share.request, share.limit);
            told += &format!("{} {place}: {class}, request {request}, limit {limit}", tenant.name);
            if gpu.is_some() {
                let (given, used) = (tenant.given_permille / 10, tenant.used_permille / 10);
                told += &format!("; granted {given}%, uses {used}%");
            }
            if tenant.boost_permille > share.request.permille() {
                told += &format!("; its load needs {}%", tenant.boost_permille / 10);
            }
            told += "\n";
            let lines = [&tenant.placed, &tenant.note].into_iter().filter(|line| !line.is_empty());
            lines.for_each(|line| told += &format!("  {line}\n"));
        }
        told
    }
}
