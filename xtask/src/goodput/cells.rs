//! What is measured: workloads, cluster sizes and arrivals, as scenario files.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// Seconds simulated before anything is counted.
pub(super) const WARMUP: u64 = 5;

/// From a scenario in target/goodput/ to the published data.
const FROM_SCENARIO: &str = "../../../shared/data";

/// A workload and what is measured of it: GPUs and seconds (so that the rarest model has hundreds of requests),
/// and on how many of those clusters the measured tables of the A100 models also stand for its lines.
type Workload = (&'static str, &'static [(usize, u64)], usize);

const WORKLOADS: [Workload; 6] = [
    ("one", &[(8, 30)], 0),
    ("rn50x20_25", &[(8, 30)], 0),
    ("rn50x20_100_zipf", &[(8, 30)], 0),
    ("a100mix_11", &[(8, 30)], 1),
    ("a100mix_44_zipf", &[(24, 20)], 1),
    ("a100mix_100_zipf", &[(16, 60), (32, 30), (64, 10), (128, 5)], 2),
];

/// The profiles that the lines of `a100mix_11.txt` were fitted to, line by line.
const PROFILES: [&str; 11] = [
    "bert",
    "densenet121",
    "densenet169",
    "densenet201",
    "inceptionv3",
    "mobilenetv2",
    "resnet101",
    "resnet152",
    "resnet50",
    "vgg16",
    "vgg19",
];

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrivals {
    Poisson,
    Gamma,
}

/// One workload on one cluster with one kind of arrivals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) workload: &'static str,
    pub(super) gpus: usize,
    pub(super) arrivals: Arrivals,
    /// Latency from measured tables, rather than from the lines fitted to them.
    pub(super) measured: bool,
    /// Seconds that count.
    pub(super) duration: u64,
}

/// All cells, in the order of tables.
pub(super) fn cells(quick: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for measured in [false, true] {
        for (workload, sizes, with_tables) in WORKLOADS {
            for &(gpus, duration) in sizes.iter().take(if measured { with_tables } else { sizes.len() }) {
                for arrivals in [Arrivals::Poisson, Arrivals::Gamma] {
                    let duration = if quick { duration.div_ceil(4) } else { duration };
                    cells.push(Cell { workload, gpus, arrivals, measured, duration });
                }
            }
        }
    }
    cells
}

impl Cell {
    /// Like `a100mix_11-8-poisson` or `a100mix_11-8-gamma-measured`.
    pub(super) fn name(&self) -> String {
        let arrivals = match self.arrivals {
            Arrivals::Poisson => "poisson",
            Arrivals::Gamma => "gamma",
        };
        let measured = if self.measured { "-measured" } else { "" };
        format!("{}-{}-{arrivals}{measured}", self.workload, self.gpus)
    }
}

/// The published data.
#[derive(Debug)]
pub(super) struct Data {
    folder: PathBuf,
    /// Pairs of alpha and beta, in the order of [`PROFILES`].
    fitted: Vec<(f64, f64)>,
}

impl Data {
    pub(super) fn load(folder: &Path) -> Result<Data> {
        let mut data = Data { folder: folder.to_owned(), fitted: Vec::new() };
        data.fitted = pairs(&data.read("workloads/a100mix_11.txt")?)?;
        ensure!(
            data.fitted.len() == PROFILES.len(),
            "read a100mix_11.txt: expected {} distinct models, found {}",
            PROFILES.len(),
            data.fitted.len()
        );
        Ok(data)
    }

    fn read(&self, path: &str) -> Result<String> {
        let path = self.folder.join(path);
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }

    /// The cell's scenario file.
    pub(super) fn scenario(&self, cell: &Cell, seed: u64) -> Result<String> {
        let arrivals = match cell.arrivals {
            Arrivals::Poisson => "kind = \"poisson\"",
            Arrivals::Gamma => "kind = \"gamma\"\nshape = 0.2",
        };
        let workload = format!("{FROM_SCENARIO}/workloads/{}.txt", cell.workload);
        let (top, bottom) = match (cell.workload, cell.measured) {
            ("one", _) => (
                String::new(),
                "\n[[model]]\nname = \"resnet50\"\nslo = \"25ms\"\nlatency = { alpha = \"1.053ms\", beta = \"5.072ms\" }\n",
            ),
            (_, false) => (format!("models = \"{workload}\"\n"), ""),
            (_, true) => {
                let files = self.profiles(cell)?.into_iter().map(|name| format!("  \"{FROM_SCENARIO}/{name}\",\n"));
                let files: String = files.collect();
                (format!("models = {{ path = \"{workload}\", profiles = [\n{files}] }}\n"), "")
            }
        };
        Ok(format!(
            "# Written by `cargo xtask goodput`. The search tries rates of its own.\nseed = {seed}\n\
             warmup = \"{WARMUP}s\"\nduration = \"{}s\"\nrate = 1000\n{top}\n[cluster]\ngpus = {}\n\n\
             [arrivals]\n{arrivals}\n{bottom}",
            cell.duration, cell.gpus
        ))
    }

    /// Profile files for a workload's distinct lines, in the order in which they first appear.
    fn profiles(&self, cell: &Cell) -> Result<Vec<String>> {
        let pairs = pairs(&self.read(&format!("workloads/{}.txt", cell.workload))?)?;
        let name = |pair: &(f64, f64)| {
            let index = self.fitted.iter().position(|fitted| fitted == pair);
            let index = index.with_context(|| format!("find {pair:?} of {} among the A100 models", cell.workload))?;
            Ok(format!("profiles/parvagpu_a100_80gb/{}.csv", PROFILES[index]))
        };
        pairs.iter().map(name).collect()
    }

    /// Changes when the cell's scenario changes, or a file that it names.
    pub(super) fn hash(&self, cell: &Cell) -> Result<String> {
        let mut text = self.scenario(cell, 1)?;
        if cell.workload != "one" {
            text += &self.read(&format!("workloads/{}.txt", cell.workload))?;
        }
        if cell.measured {
            for profile in self.profiles(cell)? {
                text += &self.read(&profile)?;
            }
        }
        Ok(format!("{:016x}", fnv(text.as_bytes())))
    }
}

/// Distinct pairs of alpha and beta in a workload file, in the order in which they first appear.
fn pairs(text: &str) -> Result<Vec<(f64, f64)>> {
    let mut pairs = Vec::new();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let mut numbers = line.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(alpha)), Some(Ok(beta))) = (numbers.next(), numbers.next()) else {
            anyhow::bail!("read a workload: expected alpha and beta, found \"{line}\"");
        };
        if !pairs.contains(&(alpha, beta)) {
            pairs.push((alpha, beta));
        }
    }
    Ok(pairs)
}

/// FNV-1a: the same number on every machine and with every version of Rust.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        let mut names: Vec<_> = cells(false).iter().map(Cell::name).collect();
        assert_eq!((names.len(), names[0].as_str()), (26, "one-8-poisson"));
        assert_eq!(names[25], "a100mix_100_zipf-32-gamma-measured");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 26);
    }

    #[test]
    fn distinct_lines_take_profiles_in_the_order_they_appear() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("workloads");
        std::fs::create_dir(&data).unwrap();
        let lines: Vec<_> = (0..11).map(|line| format!("0.{line} {line} 25 1\n")).collect();
        std::fs::write(data.join("a100mix_11.txt"), lines.concat()).unwrap();
        std::fs::write(data.join("a100mix_44_zipf.txt"), "0.8 8 1 1\n0.0 0 1 1\n0.8 8 2 1\n").unwrap();
        let data = Data::load(folder.path()).unwrap();
        let mut cell =
            Cell { workload: "a100mix_44_zipf", gpus: 24, arrivals: Arrivals::Gamma, measured: true, duration: 60 };
        assert_eq!(
            data.scenario(&cell, 3).unwrap(),
            "# Written by `cargo xtask goodput`. The search tries rates of its own.\nseed = 3\nwarmup = \"5s\"\n\
             duration = \"60s\"\nrate = 1000\nmodels = { path = \"../../../shared/data/workloads/a100mix_44_zipf.txt\", \
             profiles = [\n  \"../../../shared/data/profiles/parvagpu_a100_80gb/resnet50.csv\",\n  \
             \"../../../shared/data/profiles/parvagpu_a100_80gb/bert.csv\",\n] }\n\n[cluster]\ngpus = 24\n\n\
             [arrivals]\nkind = \"gamma\"\nshape = 0.2\n"
        );
        cell.measured = false;
        let before = data.hash(&cell).unwrap();
        assert_eq!(before, data.hash(&cell).unwrap());
        std::fs::write(folder.path().join("workloads/a100mix_44_zipf.txt"), "0.8 8 1 1\n").unwrap();
        assert_ne!(before, data.hash(&cell).unwrap());
    }
}
