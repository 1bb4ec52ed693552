//! A fuzzer for every day: deterministic, on stable Rust, over in seconds.
//!
//! Feeds what the real fuzz targets are fed (`fuzz/`), through the same functions. Input starts as an example or
//! a seed and is changed line by line and value by value, so that much of it is still read, and what is read is
//! run. Arbitrary letters are the business of `scenario/any_text.rs`.
//!
//! `WEFT_FUZZ_SEED`, `WEFT_FUZZ_CASES` and `WEFT_FUZZ_FIRST` choose the seed, the number of cases and the first.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a crate of its own in fuzz/")]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const CASES: u64 = 2_000;

/// What a value may become: limits, what lies beyond them, and what is no number.
const VALUES: [&str; 26] = [
    "0",
    "1",
    "-1",
    "2",
    "64",
    "512",
    "513",
    "99999",
    "100001",
    "9223372036854775807",
    "0.5",
    "1e-320",
    "1e308",
    "nan",
    "inf",
    "\"0ns\"",
    "\"1ns\"",
    "\"1us\"",
    "\"100us\"",
    "\"3ms\"",
    "\"24h\"",
    "\"25h\"",
    "\"weft\"",
    "[]",
    "{}",
    "true",
];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn choose<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Somewhere to start, by target.
struct Seeds {
    scenarios: Vec<String>,
    traces: Vec<String>,
    profiles: Vec<String>,
}

impl Seeds {
    fn load() -> Seeds {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |paths: Vec<PathBuf>| -> Vec<String> {
            paths.iter().map(|path| std::fs::read_to_string(path).expect("a seed can be read")).collect()
        };
        let seeds = |target: &str| read(list(&root.join("fuzz/seeds").join(target)));
        let examples = list(&root.join("examples")).into_iter().map(|folder| folder.join("scenario.toml"));
        let examples = read(examples.filter(|path| path.is_file()).collect());
        assert!(!examples.is_empty(), "no examples/NN-name/scenario.toml to start from");
        let mut scenarios = seeds("scenario");
        // Whatever file an example names, it finds one of these.
        let files: Vec<String> = seeds("trace").into_iter().chain(seeds("profile_csv")).collect();
        for (index, example) in examples.iter().enumerate() {
            scenarios.push(format!("{example}{}{}", targets::SEPARATOR, files[index % files.len()]));
        }
        Seeds { scenarios, traces: seeds("trace"), profiles: seeds("profile_csv") }
    }
}

/// What a folder holds, in order.
fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    paths.sort();
    paths
}

/// One change to a text; `other` is another of its kind.
fn change(random: &mut Random, text: &str, other: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let others: Vec<&str> = other.lines().collect();
    if lines.is_empty() || others.is_empty() {
        return other.to_owned();
    }
    let at = random.below(lines.len());
    match random.below(9) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => {
            let with = random.below(lines.len());
            lines.swap(at, with);
        }
        3 => lines.insert(at, random.choose(&others).to_owned()),
        4 => lines[at] = with_number(random, &lines[at]),
        5 => {
            // A key takes the value of another.
            let values: Vec<&str> = others.iter().filter_map(|line| Some(line.split_once('=')?.1)).collect();
            if let (Some((key, _)), false) = (lines[at].split_once('='), values.is_empty()) {
                lines[at] = format!("{key}={}", random.choose(&values));
            }
        }
        6 => {
            if let Some((key, _)) = lines[at].split_once('=') {
                lines[at] = format!("{key}= {}", random.choose(&VALUES));
            }
        }
        7 => {
            if let Some(line) = lines.iter_mut().find(|line| line.starts_with("policy")) {
                *line = format!("policy = \"{}\"", random.choose(&sim::POLICIES));
            }
        }
        _ => {
            let end = random.below(lines[at].chars().count() + 1);
            lines[at] = lines[at].chars().take(end).collect();
        }
    }
    lines.join("\n") + "\n"
}

/// A line with one of its numbers replaced.
fn with_number(random: &mut Random, line: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let starts: Vec<usize> = line
        .char_indices()
        .filter(|(at, c)| is_digit(*c) && !line[..*at].chars().next_back().is_some_and(is_digit))
        .map(|(at, _)| at)
        .collect();
    if starts.is_empty() {
        return line.to_owned();
    }
    let start = starts[random.below(starts.len())];
    let end = line[start..].find(|c: char| !is_digit(c)).map_or(line.len(), |length| start + length);
    let number = match random.below(3) {
        0 => random.choose(&VALUES[..13]).to_owned(),
        1 => random.below(1_000).to_string(),
        _ => format!("{:.3}", random.below(100_000) as f64 / 1e4),
    };
    format!("{}{number}{}", &line[..start], &line[end..])
}

/// The input of a case: the same for the same seed and number.
fn input(seeds: &Seeds, seed: u64, case: u64) -> (&'static str, fn(&[u8]), String) {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ case);
    let (name, target, texts): (_, fn(&[u8]), _) = match case % 4 {
        0 | 1 => ("scenario", targets::scenario as fn(&[u8]), &seeds.scenarios),
        2 => ("trace", targets::trace, &seeds.traces),
        _ => ("profile_csv", targets::profile_csv, &seeds.profiles),
    };
    let mut text = texts[random.below(texts.len())].clone();
    for _ in 0..=random.below(4) {
        let other = &texts[random.below(texts.len())];
        text = change(&mut random, &text, other);
    }
    (name, target, text)
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text}: expected a number")),
        Err(_) => default,
    }
}

#[test]
fn seeds_and_examples_are_read_and_run() {
    let seeds = Seeds::load();
    seeds.scenarios.iter().for_each(|text| targets::scenario(text.as_bytes()));
    seeds.traces.iter().for_each(|text| targets::trace(text.as_bytes()));
    seeds.profiles.iter().for_each(|text| targets::profile_csv(text.as_bytes()));
}

#[test]
fn changed_input_is_refused_or_read_and_run() {
    let seeds = Seeds::load();
    let seed = number("WEFT_FUZZ_SEED", 1);
    let first = number("WEFT_FUZZ_FIRST", 0);
    for case in first..first + number("WEFT_FUZZ_CASES", CASES) {
        let (name, target, text) = input(&seeds, seed, case);
        if catch_unwind(AssertUnwindSafe(|| target(text.as_bytes()))).is_err() {
            panic!(
                "case {case} of seed {seed}, target {name}; run it again with\n\
                 WEFT_FUZZ_SEED={seed} WEFT_FUZZ_FIRST={case} WEFT_FUZZ_CASES=1 cargo test --package weft-sim \
                 --test fuzz_smoke\nThe input:\n{text}"
            );
        }
    }
}

#[test]
fn many_changed_scenarios_are_still_read() {
    let seeds = Seeds::load();
    let inputs = (0..400).map(|case| input(&seeds, 1, 4 * case).2);
    let good = inputs.filter(|text| {
        let (scenario, file) = text.split_once(targets::SEPARATOR).unwrap_or((text, ""));
        sim::parse("s.toml", scenario, &|_| Ok(file.to_owned())).is_ok()
    });
    let good = good.count();
    assert!((40..360).contains(&good), "{good} of 400: the changes are too wild or too tame to find anything");
}
