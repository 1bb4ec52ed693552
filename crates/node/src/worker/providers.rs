//! Which of ONNX Runtime's execution providers are to run a model, and which did. No I/O happens here.
//!
//! A GPU is used where the worker sees one, TensorRT before CUDA. What a provider does not take, the next one in the
//! list does, and the CPU takes everything. A provider that cannot be used at all is left out, and the reason is kept:
//! a model that is slow because it runs on the CPU must be able to say so.

use crate::protocol::Grant;
use config::Device;
use ort::ep::{ArenaExtendStrategy, CUDA, ExecutionProvider, TensorRT};
use ort::session::builder::SessionBuilder;
use rpc::RunsOn;
use std::collections::BTreeMap;

/// What brings the GPU's providers.
const REMEDY: &str = "run `weft setup --gpu` and start Weft again";

/// Something that can run operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Provider {
    TensorRt,
    Cuda,
    Cpu,
}

impl Provider {
    /// What ONNX Runtime calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Provider::TensorRt => "TensorrtExecutionProvider",
            Provider::Cuda => "CUDAExecutionProvider",
            Provider::Cpu => "CPUExecutionProvider",
        }
    }

    /// What people call it.
    const fn label(self) -> &'static str {
        match self {
            Provider::TensorRt => "TensorRT",
            Provider::Cuda => "CUDA",
            Provider::Cpu => "CPU",
        }
    }

    /// Those that the loaded library was built with.
    pub(super) fn offered() -> ort::Result<Vec<Provider>> {
        let gpu = [(Provider::TensorRt, TensorRT::is_available()?), (Provider::Cuda, CUDA::is_available()?)];
        let gpu = gpu.into_iter().filter_map(|(provider, there)| there.then_some(provider));
        Ok(gpu.chain([Provider::Cpu]).collect())
    }

    /// Asks a session for it. The CPU is there without being asked for.
    pub(super) fn register(self, gpu: Grant, builder: &mut SessionBuilder) -> ort::Result<()> {
        // The first GPU that the worker sees: which one that is, its share or CUDA_VISIBLE_DEVICES says.
        let memory = gpu.memory_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        match self {
            Provider::TensorRt => {
                let options = TensorRT::default().with_device_id(0);
                memory.into_iter().fold(options, TensorRT::with_max_workspace_size).register(builder)
            }
            Provider::Cuda => {
                // Twice what is needed would be memory that others on the GPU cannot have.
                let exact = ArenaExtendStrategy::SameAsRequested;
                let options = CUDA::default().with_device_id(0).with_arena_extend_strategy(exact);
                memory.into_iter().fold(options, CUDA::with_memory_limit).register(builder)
            }
            Provider::Cpu => Ok(()),
        }
    }
}

/// What to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Lists of providers, each in the order in which they take operators. A list that cannot be used gives way to the
    /// next.
    pub(super) attempts: Vec<Vec<Provider>>,
    /// Why no GPU is among them, where there is one.
    pub(super) reason: Option<String>,
}

/// Chooses providers for a model, from what the library offers, what the deployment asks for and what the worker has.
pub(super) fn choose(offered: &[Provider], wanted: Device, gpu: Option<Grant>) -> Result<Choice, String> {
    let mut on_gpu = vec![Provider::TensorRt, Provider::Cuda];
    on_gpu.retain(|provider| offered.contains(provider));
    // Builds for GPUs offer TensorRT whether or not it is installed, and complain when it is asked for in vain.
    on_gpu.retain(|provider| *provider != Provider::TensorRt || gpu.is_some_and(|gpu| gpu.tensorrt));
    let cpu = |reason| Ok(Choice { attempts: vec![vec![Provider::Cpu]], reason });
    match (wanted, gpu) {
        (Device::Cpu, _) | (Device::Auto, None) => return cpu(None),
        (Device::Gpu, None) => {
            return Err("run it on a GPU: this worker sees none. Where `weft doctor` lists one, CUDA_VISIBLE_DEVICES \
                        hides it; elsewhere deploy the model with `device = \"auto\"`"
                .into());
        }
        (_, Some(_)) => {}
    }
    if on_gpu.is_empty() {
        let reason = "this build of ONNX Runtime has no provider for GPUs";
        return match wanted {
            Device::Gpu => Err(format!("run it on a GPU: {reason}; {REMEDY}")),
            _ => cpu(Some(format!("{reason}; to use the GPU, {REMEDY}"))),
        };
    }
    let all: Vec<Provider> = on_gpu.iter().copied().chain([Provider::Cpu]).collect();
    let least = if wanted == Device::Gpu { 2 } else { 1 };
    let attempts = (0..=all.len() - least).map(|from| all[from..].to_vec()).collect();
    Ok(Choice { attempts, reason: None })
}

/// Why a GPU was not used although it was tried, in one line: what the last of its providers said.
pub(super) fn explain(failed: &[(Provider, String)]) -> Option<String> {
    let (provider, error) = failed.last()?;
    Some(format!("{}: {}; where a library is missing, {REMEDY}", provider.label(), short(error)))
}

/// The first line of what ONNX Runtime said; of a library that could not be loaded only why, without where in whose
/// source that was noticed.
fn short(error: &str) -> &str {
    let line = error.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it does not say why");
    let loading = line.find("Failed to load library").map(|start| &line[start..]);
    let line = loading.and_then(|rest| rest.split_once(" with error: ")).map_or(line, |(_, why)| why);
    &line[..line.floor_char_boundary(300)]
}

/// How many operators each provider has been given, from what ONNX Runtime logs about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement(BTreeMap<String, usize>);

impl Placement {
    /// Reads a message: `All nodes placed on [CPUExecutionProvider]. Number of nodes: 3`, or `Node(s) placed on […`.
    pub(super) fn read(&mut self, message: &str) {
        let Some((_, rest)) = message.split_once(" placed on [") else { return };
        let Some((provider, rest)) = rest.split_once(']') else { return };
        let Some((_, count)) = rest.split_once("Number of nodes:") else { return };
        let Ok(count) = count.trim().parse::<usize>() else { return };
        *self.0.entry(provider.to_owned()).or_default() += count;
    }

    /// What the model runs on, where the session was made with these providers.
    pub(super) fn runs_on(&self, providers: &[Provider], reason: Option<String>) -> RunsOn {
        let count = |provider: Provider| self.0.get(provider.name()).copied().unwrap_or(0);
        let mut used: Vec<Provider> = providers.iter().copied().filter(|provider| count(*provider) > 0).collect();
        used.sort_by_key(|provider| std::cmp::Reverse(count(*provider)));
        if used.is_empty() {
            // A model without operators, or a library that does not say: the first took what there was.
            used.extend(providers.first());
        }
        let on_gpu = used.iter().any(|provider| *provider != Provider::Cpu);
        let asked = providers.iter().any(|provider| *provider != Provider::Cpu);
        let none = || "none of its operators can run on the GPU".to_owned();
        RunsOn {
            device: if on_gpu { "gpu" } else { "cpu" }.to_owned(),
            provider: used.iter().map(|provider| provider.label()).collect::<Vec<_>>().join(", "),
            reason: if on_gpu { None } else { reason.or_else(|| asked.then(none)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Provider::{Cpu, Cuda, TensorRt};
    use super::*;

    const WHOLE: Option<Grant> = Some(Grant { memory_bytes: None, tensorrt: true });
    const NO_TENSORRT: Option<Grant> = Some(Grant { memory_bytes: None, tensorrt: false });

    fn check(offered: &[Provider], wanted: Device, gpu: Option<Grant>, expected: Result<&[&[Provider]], &str>) {
        let what = format!("{offered:?}, {wanted:?}, {gpu:?}");
        match (choose(offered, wanted, gpu), expected) {
            (Ok(choice), Ok(attempts)) => assert_eq!(choice.attempts, attempts, "{what}"),
            (Err(error), Err(words)) => assert!(error.contains(words), "{what}: {error}"),
            (choice, expected) => panic!("{what}: {choice:?} is not {expected:?}"),
        }
    }

    #[test]
    fn providers_are_chosen_by_what_there_is_and_what_is_asked_for() {
        let (bare, cuda, all) = (&[Cpu][..], &[Cuda, Cpu][..], &[TensorRt, Cuda, Cpu][..]);
        let only_cpu: Result<&[&[Provider]], &str> = Ok(&[&[Cpu]]);
        for offered in [bare, cuda, all] {
            check(offered, Device::Cpu, WHOLE, only_cpu);
            check(offered, Device::Cpu, None, only_cpu);
            check(offered, Device::Auto, None, only_cpu);
            check(offered, Device::Gpu, None, Err("this worker sees none"));
        }
        check(bare, Device::Auto, WHOLE, only_cpu);
        check(bare, Device::Gpu, WHOLE, Err("run `weft setup --gpu`"));
        check(cuda, Device::Auto, WHOLE, Ok(&[&[Cuda, Cpu], &[Cpu]]));
        check(cuda, Device::Gpu, WHOLE, Ok(&[&[Cuda, Cpu]]));
        check(all, Device::Auto, WHOLE, Ok(&[&[TensorRt, Cuda, Cpu], &[Cuda, Cpu], &[Cpu]]));
        check(all, Device::Gpu, WHOLE, Ok(&[&[TensorRt, Cuda, Cpu], &[Cuda, Cpu]]));
        check(&[TensorRt, Cpu], Device::Gpu, WHOLE, Ok(&[&[TensorRt, Cpu]]));
        check(&[TensorRt, Cpu], Device::Gpu, NO_TENSORRT, Err("no provider for GPUs"));
        check(all, Device::Auto, NO_TENSORRT, Ok(&[&[Cuda, Cpu], &[Cpu]]));
    }

    #[test]
    fn a_gpu_that_is_not_used_is_not_passed_over_in_silence() {
        let reason = |offered: &[Provider], gpu| choose(offered, Device::Auto, gpu).unwrap().reason;
        assert!(reason(&[Cpu], WHOLE).unwrap().contains("weft setup --gpu"));
        assert_eq!(reason(&[Cpu], None), None, "there is no GPU to speak of");
        assert_eq!(reason(&[Cuda, Cpu], WHOLE), None);
        assert_eq!(explain(&[]), None);
        let error = "/src/provider_bridge_ort.cc:2043 Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library \
                     /a/libx.so with error: libcudnn.so.9: cannot open shared object file\n\nmore";
        let said = explain(&[(TensorRt, "no engine".into()), (Cuda, error.into())]).unwrap();
        assert!(said.starts_with("CUDA: libcudnn.so.9: cannot open shared object file; "), "{said}");
        assert!(said.ends_with("run `weft setup --gpu` and start Weft again"), "{said}");
        assert!(explain(&[(Cuda, "\n CUDA failure 2\n".into())]).unwrap().starts_with("CUDA: CUDA failure 2;"));
    }

    #[test]
    fn what_a_model_runs_on_is_read_from_where_its_operators_are() {
        let check = |messages: &[&str], providers: &[Provider], expected: (&str, &str), reason: Option<&str>| {
            let mut placement = Placement::default();
            messages.iter().for_each(|message| placement.read(message));
            let found = placement.runs_on(providers, None);
            assert_eq!((found.device.as_str(), found.provider.as_str()), expected, "{messages:?}");
            assert_eq!(found.reason.as_deref(), reason);
        };
        let all = &[TensorRt, Cuda, Cpu];
        let words = [" Node(s) placed on [CPUExecutionProvider]. Number of nodes: 2", "  Shape (a)"];
        check(
            &["Node placements", " All nodes placed on [CUDAExecutionProvider]. Number of nodes: 7"],
            all,
            ("gpu", "CUDA"),
            None,
        );
        check(
            &[words[0], words[1], " Node(s) placed on [CUDAExecutionProvider]. Number of nodes: 9"],
            all,
            ("gpu", "CUDA, CPU"),
            None,
        );
        check(&words, all, ("cpu", "CPU"), Some("none of its operators can run on the GPU"));
        check(&words, &[Cpu], ("cpu", "CPU"), None);
        check(&[], &[Cuda, Cpu], ("gpu", "CUDA"), None);
        let late = Placement::default().runs_on(&[Cuda, Cpu], Some("TensorRT could not be used".into()));
        assert_eq!(late.reason, None, "it is on the GPU");
        check(
            &[" placed on [x", " placed on [CPUExecutionProvider]. Number of nodes: many"],
            &[Cpu],
            ("cpu", "CPU"),
            None,
        );
    }
}
