//! Files being read, and what is wrong with them: one line of text with the file and the line.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use toml::Spanned;

/// Reads the text of another file named in a scenario, relative to it. `Err`: why it could not be read.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Why a scenario could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file the problem is in: the scenario, or one that it names.
    pub file: String,
    /// Line in the file, from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.problem),
            line => write!(f, "{}:{line}: {}", self.file, self.problem),
        }
    }
}

impl std::error::Error for ScenarioError {}

/// Letters in a problem, at most: a file may be one long line of anything.
const PROBLEM_MAX: usize = 600;

/// A file being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl Source<'_> {
    /// A problem with what stands at a place in the text.
    pub(crate) fn error(&self, place: Range<usize>, problem: impl Into<String>) -> ScenarioError {
        let before = &self.text.as_bytes()[..place.start.min(self.text.len())];
        self.error_on(before.iter().filter(|byte| **byte == b'\n').count() + 1, problem)
    }

    /// A problem with a line, or with the whole file (line 0).
    pub(crate) fn error_on(&self, line: usize, problem: impl Into<String>) -> ScenarioError {
        // What was typed may hold line breaks and is quoted in problems; a problem is one line all the same.
        let problem = problem.into();
        let lines: Vec<&str> = problem.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let mut problem = lines.join(" ");
        if let Some((end, _)) = problem.char_indices().nth(PROBLEM_MAX) {
            problem.truncate(end);
            problem.push_str("...");
        }
        ScenarioError { file: self.file.to_owned(), line, problem }
    }

    /// A value between two limits.
    pub(crate) fn within<T>(
        &self,
        key: &str,
        value: &Spanned<T>,
        allowed: RangeInclusive<T>,
    ) -> Result<T, ScenarioError>
    where
        T: Copy + PartialOrd + fmt::Display,
    {
        if allowed.contains(value.get_ref()) {
            return Ok(*value.get_ref());
        }
        let typed = self.text.get(value.span()).unwrap_or_default();
        let problem = format!("{key} = {typed} is out of range: expected {} to {}", allowed.start(), allowed.end());
        Err(self.error(value.span(), problem))
    }

    /// Lines with something on them, numbered from 1. Lines that start with `#` are comments.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    }

    /// A number in a line, between two limits.
    pub(super) fn number(
        &self,
        line: usize,
        name: &str,
        text: &str,
        allowed: RangeInclusive<f64>,
    ) -> Result<f64, ScenarioError> {
        let number: f64 =
            text.parse().map_err(|_| self.error_on(line, format!("expected a number for {name}, found \"{text}\"")))?;
        if allowed.contains(&number) {
            return Ok(number);
        }
        let (least, most) = allowed.into_inner();
        Err(self.error_on(line, format!("{name} {text} is out of range: expected {least} to {most}")))
    }
}

/// A scenario being read, and the way to the files it names.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) source: Source<'a>,
    pub(super) read: ReadFile<'a>,
}

impl Reader<'_> {
    /// The text of a file that is named at a place in the scenario.
    pub(super) fn open(&self, place: Range<usize>, path: &str) -> Result<String, ScenarioError> {
        (self.read)(path).map_err(|why| self.source.error(place, format!("cannot read \"{path}\": {why}")))
    }
}

/// `unknown {what} `name``, the nearest name that is known, and all of them.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|known| (distance(name, known), *known)).min();
    // Half of the letters wrong is a different word, not a slip.
    let meant = match nearest {
        Some((wrong, known)) if 2 * wrong <= known.chars().count().max(2) => format!(", did you mean `{known}`?"),
        _ => ",".to_owned(),
    };
    format!("unknown {what} `{name}`{meant} expected one of: {}", known.join(", "))
}

/// Letters to insert, drop, replace or swap with their neighbour to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().take(64).collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_from_another_word() {
        assert_eq!(
            unknown("key", "polcy", &["policy", "rate"]),
            "unknown key `polcy`, did you mean `policy`? expected one of: policy, rate"
        );
        assert_eq!(
            unknown("key", "colour", &["policy", "rate"]),
            "unknown key `colour`, expected one of: policy, rate"
        );
        assert_eq!((distance("kitten", "sitting"), distance("", "abc"), distance("abc", "")), (3, 3, 3));
        assert_eq!(distance("sol", "slo"), 1);
    }

    #[test]
    fn a_place_has_a_line_and_a_problem_is_one_line() {
        let source = Source { file: "f", text: "a\nb\nc" };
        assert_eq!(source.error(2..3, "x\n  y\n").to_string(), "f:2: x y");
        assert_eq!(source.error_on(0, "x").to_string(), "f: x");
    }
}
