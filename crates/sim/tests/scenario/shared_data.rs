//! The published data that benchmarks use, where it is at hand: it does not belong to the repository.

use std::path::{Path, PathBuf};

/// What a file is good for, by the start of its path.
const KINDS: [(&str, &str); 4] = [
    ("profiles/", "profile"),
    ("traces/azure_functions", "azure"),
    ("traces/dilu", "per-second"),
    ("workloads/", "workload"),
];

fn scenario(kind: &str, path: &str) -> String {
    let model = "[[model]]\nname = \"m\"\ncount = 200\nslo = \"2s\"\n";
    let line = "latency = { alpha = \"1ms\", beta = \"5ms\" }\n";
    match kind {
        // Only the fitted profile has many models in a file; the other layouts take no notice.
        "profile" => format!(
            "rate = 10\ncluster.gpus = 1\n{model}\
             latency = {{ profile = \"{path}\", model = \"resnet50\", gpu = \"A100-80GB\" }}\n"
        ),
        "workload" => format!("rate = 10\ncluster.gpus = 1\nmodels = \"{path}\"\n"),
        format => format!(
            "cluster.gpus = 1\n[arrivals]\nkind = \"trace\"\npath = \"{path}\"\nformat = \"{format}\"\n{model}{line}"
        ),
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[test]
#[allow(clippy::print_stderr)]
fn every_published_file_is_read_as_what_it_is_and_refused_as_anything_else() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !data.is_dir() {
        eprintln!("SKIPPED: no published data at {}", data.display());
        return;
    }
    let mut paths = Vec::new();
    files(&data, &mut paths);
    paths.sort();
    let read = |path: &str| std::fs::read_to_string(data.join(path)).map_err(|error| error.to_string());
    let mut good = 0;
    for path in &paths {
        let path = path.strip_prefix(&data).unwrap().to_str().unwrap();
        for (prefix, kind) in KINDS {
            let result = sim::parse("s.toml", &scenario(kind, path), &read);
            let is = path.starts_with(prefix) && !path.ends_with("LICENSE");
            match result {
                Ok(scenario) => {
                    assert!(is, "{path} was read as {kind}");
                    let written = sim::effective(&scenario);
                    assert!(sim::parse("effective.toml", &written, &read) == Ok(scenario), "{path} does not read back");
                    good += 1;
                }
                Err(error) => assert!(!is, "{error}"),
            }
        }
    }
    assert_eq!(good, 11 + 5 + 1 + 1 + 3 + 5);
}
