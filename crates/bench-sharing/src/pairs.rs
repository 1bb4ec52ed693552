//! Which programs are measured together: a line each, `name = LATENCY COMMAND | BEST-EFFORT COMMAND`.

use config::Percent;
use policy::Span;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What is measured where nothing else is asked for. The last one only with `--many`.
pub const BUILT_IN: &str = "\
resnet50-gpt2 = python3 {workloads}/workload.py resnet50 --batch 1 | python3 {workloads}/workload.py gpt2 --train
resnet50-graph-resnet50 = python3 {workloads}/workload.py resnet50 --batch 1 --graph \
  | python3 {workloads}/workload.py resnet50 --train
bert8-graph-gpt2 = python3 {workloads}/workload.py bert --batch 8 --graph | python3 {workloads}/workload.py gpt2 --train
gpt2-bert = python3 {workloads}/workload.py gpt2 --batch 1 | python3 {workloads}/workload.py bert --train
many = 8 x python3 {workloads}/workload.py resnet50 --batch 1 | 2 x python3 {workloads}/workload.py resnet50 --train
";

/// The built-in pair that stands for many programs on one GPU.
pub const MANY: &str = "many";

/// What stands for the folder of `--workloads` in a command.
const WORKLOADS: &str = "{workloads}";

/// More programs on one GPU than this are a slip of the finger.
const COPIES_MOST: usize = 64;

/// Latency programs and the best-effort programs beside them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// What it is called.
    pub name: String,
    /// The latency programs.
    pub latency: Group,
    /// The best-effort programs.
    pub best_effort: Group,
}

/// A program, so many times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub(super) copies: usize,
    /// As it was written, before the folder of workloads is put in: it says the same on every machine.
    pub(super) command: String,
    /// How long a burst of it may take, under Weft; else as long as alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slo: Option<String>,
    /// The share of GPU time that it requests, under Weft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<String>,
}

impl Group {
    /// The program and its arguments.
    pub(super) fn words(&self, workloads: &str) -> Vec<String> {
        self.command.split_whitespace().map(|word| word.replace(WORKLOADS, workloads)).collect()
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.copies != 1 {
            write!(f, "{} x ", self.copies)?;
        }
        if let Some(slo) = &self.slo {
            write!(f, "--slo {slo} ")?;
        }
        if let Some(request) = &self.request {
            write!(f, "--request {request} ")?;
        }
        f.write_str(&self.command)
    }
}

/// Reads pairs, in the order of the text. Empty lines and what follows a `#` mean nothing.
pub fn read(text: &str) -> Result<Vec<Pair>, String> {
    let mut pairs: Vec<Pair> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let pair = pair(line).map_err(|problem| format!("line {}: {problem}", index + 1))?;
        if pairs.iter().any(|other| other.name == pair.name) {
            return Err(format!("line {}: there are two pairs `{}`", index + 1, pair.name));
        }
        pairs.push(pair);
    }
    match pairs.is_empty() {
        true => Err("there is no pair in it; write `name = LATENCY COMMAND | BEST-EFFORT COMMAND`".into()),
        false => Ok(pairs),
    }
}

fn pair(line: &str) -> Result<Pair, String> {
    let form = || "expected `name = LATENCY COMMAND | BEST-EFFORT COMMAND`".to_owned();
    let (name, commands) = line.split_once('=').ok_or_else(form)?;
    let (latency, best_effort) = commands.split_once('|').ok_or_else(form)?;
    let name = name.trim();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("`{name}` is no name: use letters, digits, dashes, dots"));
    }
    if best_effort.contains('|') {
        return Err(form());
    }
    let pair = Pair { name: name.into(), latency: group(latency)?, best_effort: group(best_effort)? };
    match (&pair.best_effort.slo, &pair.latency.request) {
        (None, None) => Ok(pair),
        (Some(_), _) => Err("a best-effort program has no objective: `--slo` is for the latency side".into()),
        (_, Some(_)) => Err("a latency program comes first anyway: `--request` is for the best-effort side".into()),
    }
}

fn group(text: &str) -> Result<Group, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (copies, command) = match words[..] {
        [count, "x", ..] if count.bytes().all(|byte| byte.is_ascii_digit()) => {
            let copies = count.parse().ok().filter(|copies| (1..=COPIES_MOST).contains(copies));
            (copies.ok_or_else(|| format!("`{count} x`: expected 1 to {COPIES_MOST} programs"))?, &words[2..])
        }
        _ => (1, &words[..]),
    };
    let (slo, command) = option::<Span>("--slo", "a time such as 3ms", command)?;
    let (request, command) = option::<Percent>("--request", "a share such as 5%", command)?;
    match command.is_empty() {
        true => Err("a command is missing; write `name = LATENCY COMMAND | BEST-EFFORT COMMAND`".into()),
        false => Ok(Group { copies, command: command.join(" "), slo, request }),
    }
}

/// An option that stands before a command, as it was written, and what follows it.
fn option<'a, T: FromStr>(
    name: &str,
    expected: &str,
    words: &'a [&'a str],
) -> Result<(Option<String>, &'a [&'a str]), String> {
    match words {
        [first, value, rest @ ..] if *first == name => match value.parse::<T>() {
            Ok(_) => Ok((Some((*value).to_owned()), rest)),
            Err(_) => Err(format!("`{name} {value}`: expected {expected}")),
        },
        _ => Ok((None, words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_pair() {
        let text = "# programs\n\none = a --batch 1 | b --train # noted\nmany = 8 x a|2 x b\n";
        let pairs = read(text).unwrap();
        let group = |copies, command: &str| Group { copies, command: command.into(), slo: None, request: None };
        assert_eq!(
            pairs,
            [
                Pair { name: "one".into(), latency: group(1, "a --batch 1"), best_effort: group(1, "b --train") },
                Pair { name: "many".into(), latency: group(8, "a"), best_effort: group(2, "b") },
            ]
        );
        assert_eq!(pairs[1].latency.to_string(), "8 x a");
        let held = &read("held = 2 x --slo 3ms a --slo 5 | b").unwrap()[0].latency;
        assert_eq!(held, &Group { slo: Some("3ms".into()), ..group(2, "a --slo 5") });
        assert_eq!(held.to_string(), "2 x --slo 3ms a --slo 5");
        let promised = &read("promised = a | --request 5% b").unwrap()[0].best_effort;
        assert_eq!(promised, &Group { request: Some("5%".into()), ..group(1, "b") });
        assert_eq!(promised.to_string(), "--request 5% b");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let check = |text: &str, expected: &str| {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        };
        check("", "no pair");
        check("# only a comment", "no pair");
        check("a = b | c\nfoo", "line 2: expected `name =");
        check("a = b", "line 1: expected `name =");
        check("a = b | c | d", "line 1: expected `name =");
        check("a = | c", "a command is missing");
        check("a = 3 x | c", "a command is missing");
        check("a = 0 x b | c", "expected 1 to 64");
        check("a = --slo 3 b | c", "expected a time such as 3ms");
        check("a = --slo 3ms | c", "a command is missing");
        check("a = b | --slo 3ms c", "a best-effort program has no objective");
        check("a = --request 5% b | c", "a latency program comes first anyway");
        check("a = b | --request 5x c", "expected a share such as 5%");
        check("a = 99999999999999999999 x b | c", "expected 1 to 64");
        check("a/b = b | c", "is no name");
        check("a = b | c\na = d | e", "line 2: there are two pairs `a`");
    }

    #[test]
    fn the_built_in_pairs_can_be_read_and_name_the_folder() {
        let pairs = read(BUILT_IN).unwrap();
        assert_eq!(pairs.len(), 5);
        let many = pairs.iter().find(|pair| pair.name == MANY).unwrap();
        assert_eq!((many.latency.copies, many.best_effort.copies), (8, 2));
        for pair in &pairs {
            for group in [&pair.latency, &pair.best_effort] {
                let words = group.words("some/folder");
                assert_eq!(words[..2], ["python3", "some/folder/workload.py"], "{}", pair.name);
            }
            assert!(pair.best_effort.command.ends_with("--train"), "{}", pair.name);
        }
    }
}
