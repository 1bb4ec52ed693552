//! A profile on disk: what was measured of a model or a program on a type of GPU, and what was chosen from it.
//!
//! JSON with a version. Whoever reads a profile gets one that makes sense, or is told why it does not: another version,
//! measurements that contradict each other, a choice that was never measured or misses its objective. Whether it is
//! still about the model, GPU and driver at hand is asked with [`Profile::check_for`].

use crate::model::span;
use policy::Span;
use policy::surface::{Point, Share, Surface};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The version that is written, and the only one that is read.
pub const VERSION: u64 = 1;

/// What a profile is about. It is reused until one of these changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The digest of the model's files or of the program, like `sha256:…`.
    pub model: String,
    /// The GPU's name, as the driver tells it; what there is instead, where there is none.
    pub gpu: String,
    /// The driver's version.
    pub driver: String,
}

/// What [`Subject::gpu`] begins with where there is none.
const NO_GPU: &str = "no GPU";

impl Subject {
    /// A model that uses no GPU, on this processor.
    pub fn on_processor(model: String, processor: &str) -> Subject {
        Subject { model, gpu: format!("{NO_GPU}, {processor}"), driver: "none".to_owned() }
    }

    /// Whether it uses a GPU.
    pub fn has_gpu(&self) -> bool {
        !self.gpu.starts_with(NO_GPU)
    }
}

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date {
    year: u32,
    month: u32,
    day: u32,
}

impl Date {
    /// The day on which it is so many seconds since 1970 began, in Greenwich.
    pub fn from_unix_seconds(seconds: u64) -> Date {
        // Years begin in March, so that the day that some of them lack comes last. 400 of them have 146,097 days, and
        // the count begins with the year 0.
        let days = seconds / 86_400 + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // Five months from March have 153 days, and so have the next five.
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        Date { year: (era * 400 + year + next) as u32, month: month as u32, day: day as u32 }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Date, String> {
        let digits = |part: &str, length: usize| -> Option<u32> {
            let sound = part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
            sound.then(|| part.parse().ok()).flatten()
        };
        let read = |[year, month, day]: [&str; 3]| {
            Some(Date { year: digits(year, 4)?, month: digits(month, 2)?, day: digits(day, 2)? })
        };
        let parts: Vec<&str> = text.split('-').collect();
        let date = <[&str; 3]>::try_from(parts).ok().and_then(read);
        let date = date.filter(|date| (1..=12).contains(&date.month) && (1..=31).contains(&date.day));
        date.ok_or_else(|| format!("`{text}` is no day; write it like 2026-01-31"))
    }
}

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(text: String) -> Result<Date, String> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> String {
        date.to_string()
    }
}

/// What a point's throughput counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Requests that a model answers.
    #[default]
    Requests,
    /// Kernels and graphs that a training program launches.
    Launches,
    /// Steps that a training program says it does.
    Steps,
}

impl Work {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Requests => "requests",
            Work::Launches => "launches",
            Work::Steps => "steps",
        }
    }

    fn is_requests(&self) -> bool {
        *self == Work::Requests
    }
}

/// What was chosen from the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The latency that a batch had to keep; training has none.
    pub objective: Option<Span>,
    /// Requests that run together.
    pub batch: usize,
    /// The part of a GPU that a worker asks for.
    pub request: Share,
    /// The part beyond which more is of little use.
    pub limit: Share,
}

/// Measurements of a model on a type of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What it is about.
    pub subject: Subject,
    /// When it was measured, where that is known.
    pub measured: Option<Date>,
    /// What throughput counts. Training has batches of 1, whose latency is that of one piece of work.
    pub work: Work,
    /// What was measured.
    pub surface: Surface,
    /// What was chosen; nothing, where no measurement met the objective.
    pub choice: Option<Choice>,
}

/// Why a profile cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// It is not JSON, or lacks something.
    #[error("it is no profile: {0}; make it anew with `weft profile`")]
    Syntax(String),
    /// Another version of Weft wrote it.
    #[error("it has version {0}, and this Weft reads version {VERSION}: make it anew with `weft profile`")]
    Version(u64),
    /// The measurements contradict each other, or one makes no sense.
    #[error("{0}")]
    Contradiction(String),
    /// The choice does not follow from the measurements.
    #[error("its choice, {0}: make it anew with `weft profile`")]
    Choice(String),
}

/// A profile is about something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was measured with another {what}, {found} and not {wanted}: profile the model again")]
pub struct Stale {
    /// What is different: model, GPU or driver.
    pub what: &'static str,
    /// What the profile is about.
    pub found: String,
    /// What is at hand.
    pub wanted: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u64,
    model: String,
    gpu: String,
    driver: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured: Option<Date>,
    #[serde(default, skip_serializing_if = "Work::is_requests")]
    work: Work,
    points: Vec<WrittenPoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<WrittenChoice>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPoint {
    batch: usize,
    share: crate::Percent,
    #[serde(with = "span")]
    latency: Span,
    throughput: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenChoice {
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::optional")]
    objective: Option<Span>,
    batch: usize,
    request: crate::Percent,
    limit: crate::Percent,
}

impl Profile {
    /// Reads a profile from its text.
    pub fn read(text: &str) -> Result<Profile, ProfileError> {
        let syntax = |error: serde_json::Error| ProfileError::Syntax(error.to_string());
        let value: serde_json::Value = serde_json::from_str(text).map_err(syntax)?;
        // Another version may have other fields: look at it first.
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => return Err(ProfileError::Version(other)),
            None => return Err(ProfileError::Syntax("missing field `version`".to_owned())),
        }
        let written: Written = serde_json::from_str(text).map_err(syntax)?;
        let mut points = Vec::new();
        for point in &written.points {
            let (batch, latency, throughput) = (point.batch, point.latency, point.throughput);
            points.push(Point { batch, share: read_share(point.share)?, latency, throughput });
        }
        let surface = Surface::new(&points).map_err(|error| ProfileError::Contradiction(error.problem))?;
        let choice = written.choice.map(|choice| read_choice(&choice, written.work, &surface)).transpose()?;
        let subject = Subject { model: written.model, gpu: written.gpu, driver: written.driver };
        Ok(Profile { subject, measured: written.measured, work: written.work, surface, choice })
    }

    /// The profile as text, which [`Profile::read`] reads back as the same.
    pub fn write(&self) -> String {
        let point = |point: &Point| WrittenPoint {
            batch: point.batch,
            share: percent(point.share),
            latency: point.latency,
            throughput: point.throughput,
        };
        let choice = |choice: &Choice| WrittenChoice {
            objective: choice.objective,
            batch: choice.batch,
            request: percent(choice.request),
            limit: percent(choice.limit),
        };
        let Subject { model, gpu, driver } = self.subject.clone();
        let points = self.surface.points().iter().map(point).collect();
        let choice = self.choice.as_ref().map(choice);
        let (measured, work) = (self.measured, self.work);
        let written = Written { version: VERSION, model, gpu, driver, measured, work, points, choice };
        serde_json::to_string_pretty(&written).expect("text and finite numbers can be written") + "\n"
    }

    /// Whether the profile is about this; what is different, where it is not.
    pub fn check_for(&self, wanted: &Subject) -> Result<(), Stale> {
        let sides = |subject: &Subject| [subject.model.clone(), subject.gpu.clone(), subject.driver.clone()];
        let pairs = ["model", "GPU", "driver"].into_iter().zip(sides(&self.subject)).zip(sides(wanted));
        match pairs.into_iter().find(|((_, found), wanted)| found != wanted) {
            None => Ok(()),
            Some(((what, found), wanted)) => Err(Stale { what, found, wanted }),
        }
    }
}

fn read_share(percent: crate::Percent) -> Result<Share, ProfileError> {
    let none = || ProfileError::Contradiction("0% is no share: expected a percentage above 0, up to 100".to_owned());
    Share::from_permille(percent.permille()).ok_or_else(none)
}

fn percent(share: Share) -> crate::Percent {
    share.to_string().parse().expect("a share is written as a percentage")
}

fn read_choice(written: &WrittenChoice, work: Work, surface: &Surface) -> Result<Choice, ProfileError> {
    let (request, limit) = (read_share(written.request)?, read_share(written.limit)?);
    let choice = Choice { objective: written.objective, batch: written.batch, request, limit };
    let told = format!("batch {} at {request}", choice.batch);
    match surface.at(choice.batch, request) {
        None => Err(ProfileError::Choice(format!("{told}, was not measured"))),
        Some(_) if work.is_requests() != choice.objective.is_some() => {
            let (lacks, work) = (if work.is_requests() { "no" } else { "an" }, work.name());
            Err(ProfileError::Choice(format!("{told}, has {lacks} objective though it counts {work}")))
        }
        Some(point) if choice.objective.is_some_and(|objective| point.latency > objective) => {
            let objective = choice.objective.unwrap_or_default();
            Err(ProfileError::Choice(format!("{told}, takes {} and not {objective}", point.latency)))
        }
        Some(_) if limit < request => Err(ProfileError::Choice(format!("{told}, has a limit of {limit} below that"))),
        Some(_) => Ok(choice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
  "version": 1,
  "model": "sha256:12ab",
  "gpu": "NVIDIA H200",
  "driver": "580.65",
  "points": [
    {
      "batch": 1,
      "share": "10%",
      "latency": "12.5ms",
      "throughput": 80.0
    },
    {
      "batch": 1,
      "share": "14.3%",
      "latency": "10ms",
      "throughput": 100.0
    }
  ],
  "choice": {
    "objective": "20ms",
    "batch": 1,
    "request": "10%",
    "limit": "14.3%"
  }
}
"#;

    #[test]
    fn a_profile_reads_and_writes_the_same() {
        let profile = Profile::read(TEXT).unwrap();
        assert_eq!(profile.write(), TEXT);
        let undecided = Profile { choice: None, ..profile.clone() };
        assert_eq!(Profile::read(&undecided.write()), Ok(undecided));
        let choice = Choice { objective: None, ..profile.choice.unwrap() };
        let measured = Some(Date::from_unix_seconds(1_794_700_000));
        let training = Profile { work: Work::Launches, choice: Some(choice), measured, ..profile };
        assert_eq!(Profile::read(&training.write()), Ok(training));
    }

    #[test]
    fn days_are_counted_as_people_count_them() {
        let check = |seconds: u64, expected: &str| {
            let date = Date::from_unix_seconds(seconds);
            assert_eq!(date.to_string(), expected);
            assert_eq!(expected.parse(), Ok(date));
        };
        check(0, "1970-01-01");
        check(86_399, "1970-01-01");
        check(951_782_400, "2000-02-29");
        check(951_868_800, "2000-03-01");
        check(1_798_761_599, "2026-12-31");
        check(4_107_542_400, "2100-03-01");
        for text in ["", "2026-1-01", "2026-13-01", "2026-00-10", "2026-01-32", "2026-01", "today", "+026-01-01"] {
            assert!(text.parse::<Date>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_profile_is_said_with_what_to_do() {
        let check = |from: &str, to: &str, expected: &str| {
            assert!(TEXT.contains(from));
            assert_eq!(Profile::read(&TEXT.replacen(from, to, 1)).unwrap_err().to_string(), expected);
        };
        let anew = "make it anew with `weft profile`";
        check(
            "\"version\": 1",
            "\"version\": 2, \"new\": 3",
            &format!("it has version 2, and this Weft reads version 1: {anew}"),
        );
        check("\"version\": 1,", "", &format!("it is no profile: missing field `version`; {anew}"));
        check(
            "\"gpu\": \"NVIDIA H200\",",
            "",
            &format!("it is no profile: missing field `gpu` at line 26 column 1; {anew}"),
        );
        check("14.3%", "10%", "batch 1 at 10% was given before: keep one of the two measurements");
        check(
            "10ms",
            "30ms",
            "batch 1 takes 30ms at 14.3% but 12.5ms at 10%: more of a GPU does not slow a batch down; measure both \
             again, with nothing else on the GPU",
        );
        check("\"share\": \"10%\"", "\"share\": \"0%\"", "0% is no share: expected a percentage above 0, up to 100");
        check("80.0", "-80.0", "-80 is no throughput: expected a number above zero");
        check(
            "\"objective\": \"20ms\",",
            "",
            &format!("its choice, batch 1 at 10%, has no objective though it counts requests: {anew}"),
        );
        check(
            "\"points\"",
            "\"work\": \"steps\", \"points\"",
            &format!("its choice, batch 1 at 10%, has an objective though it counts steps: {anew}"),
        );
        check("20ms", "12ms", &format!("its choice, batch 1 at 10%, takes 12.5ms and not 12ms: {anew}"));
        check(
            "\"request\": \"10%\"",
            "\"request\": \"20%\"",
            &format!("its choice, batch 1 at 20%, was not measured: {anew}"),
        );
        check(
            "\"limit\": \"14.3%\"",
            "\"limit\": \"5%\"",
            &format!("its choice, batch 1 at 10%, has a limit of 5% below that: {anew}"),
        );
    }

    #[test]
    fn a_profile_is_about_one_model_on_one_gpu_with_one_driver() {
        let profile = Profile::read(TEXT).unwrap();
        assert_eq!(profile.check_for(&profile.subject), Ok(()));
        let other = Subject { gpu: "NVIDIA A100".to_owned(), ..profile.subject.clone() };
        assert_eq!(
            profile.check_for(&other).unwrap_err().to_string(),
            "it was measured with another GPU, NVIDIA H200 and not NVIDIA A100: profile the model again"
        );
        let other = Subject { driver: "590".to_owned(), ..profile.subject.clone() };
        assert_eq!(profile.check_for(&other).unwrap_err().what, "driver");
        let other = Subject { model: "sha256:34cd".to_owned(), ..profile.subject.clone() };
        assert_eq!(profile.check_for(&other).unwrap_err().what, "model");
    }
}
