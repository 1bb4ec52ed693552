//! What a program may have of a GPU, as people ask for it and as it is meant.
//!
//! People say only what they want to be different; [`Share`] is what that comes to, and always makes sense.

use crate::Bytes;
use policy::Span;
use policy::sharing::{Class, PRIORITY_LEAST, WHOLE};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A part of a GPU: `"30%"`, kept in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Percent(u32);

impl Percent {
    /// All of it.
    pub const ALL: Percent = Percent(WHOLE);
    /// None of it.
    pub const NONE: Percent = Percent(0);

    /// So many thousandths; `None` for more than all.
    pub const fn from_permille(permille: u32) -> Option<Percent> {
        if permille > WHOLE { None } else { Some(Percent(permille)) }
    }

    /// In thousandths.
    pub const fn permille(self) -> u32 {
        self.0
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        let wrong = || format!("`{text}` is not a share; write it like 30%");
        let number = text.strip_suffix('%').ok_or_else(wrong)?.trim();
        let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
        if !digits(whole) || !digits(tenths) || tenths.len() > 1 || whole.len() > 6 {
            return Err(wrong());
        }
        let permille = whole.parse::<u32>().map_err(|_| wrong())? * 10 + tenths.parse::<u32>().map_err(|_| wrong())?;
        if permille > WHOLE {
            return Err(format!("`{text}` is more than a whole GPU; at most 100% can be shared out"));
        }
        Ok(Percent(permille))
    }
}

impl TryFrom<String> for Percent {
    type Error = String;

    fn try_from(text: String) -> Result<Percent, String> {
        text.parse()
    }
}

impl From<Percent> for String {
    fn from(percent: Percent) -> String {
        percent.to_string()
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(formatter, "{}%", self.0 / 10),
            tenths => write!(formatter, "{}.{tenths}%", self.0 / 10),
        }
    }
}

/// How a program shares its GPU's hardware with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharingMode {
    /// As the daemon finds best.
    #[default]
    Auto,
    /// One program at a time, in time slices.
    #[serde(rename = "time", alias = "temporal")]
    Temporal,
    /// Side by side, under the daemon's MPS server.
    #[serde(rename = "space", alias = "spatial")]
    Spatial,
}

impl FromStr for SharingMode {
    type Err = String;

    fn from_str(text: &str) -> Result<SharingMode, String> {
        match text {
            "auto" => Ok(SharingMode::Auto),
            "temporal" | "time" => Ok(SharingMode::Temporal),
            "spatial" | "space" => Ok(SharingMode::Spatial),
            _ => Err(format!("`{text}` is no sharing mode; expected auto, temporal or spatial")),
        }
    }
}

/// What somebody asks for; what is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShareAsked {
    /// What the program is to others on its GPU: `latency`, `standard` or `best-effort`.
    #[serde(skip_serializing_if = "Option::is_none", with = "class")]
    pub class: Option<Class>,
    /// 0, the most important of its class, to 9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Guaranteed whenever it is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Percent>,
    /// Never passed, even when nobody else wants the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Percent>,
    /// GPU memory that it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// SMs that its long kernels may use, live, where programs share in space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sms: Option<Percent>,
    /// How long its bursts of work may take; a latency tenant's are held to what they take alone where this is not said.
    #[serde(skip_serializing_if = "Option::is_none", with = "objective")]
    pub slo: Option<Span>,
    /// Time slices or side by side; decided when it starts.
    #[serde(rename = "way", alias = "mode", skip_serializing_if = "Option::is_none")]
    pub mode: Option<SharingMode>,
    /// Which GPU: its number, or its UUID or the beginning of it; several with commas between them; `all` of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// On how many GPUs it runs, where it is not said on which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Whether it launches nothing until it is resumed; its memory stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
}

/// A share that makes sense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ShareAsked", into = "ShareAsked")]
#[allow(missing_docs, reason = "each is the field of `ShareAsked` with this name")]
pub struct Share {
    pub class: Class,
    pub priority: u8,
    pub request: Percent,
    pub limit: Percent,
    pub memory: Option<Bytes>,
    pub sms: Percent,
    pub slo: Option<Span>,
    pub mode: SharingMode,
    pub gpu: Option<String>,
    pub gpus: u32,
    pub suspended: bool,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            class: Class::Standard,
            priority: 5,
            request: Percent::NONE,
            limit: Percent::ALL,
            memory: None,
            sms: Percent::ALL,
            slo: None,
            mode: SharingMode::Auto,
            gpu: None,
            gpus: 1,
            suspended: false,
        }
    }
}

impl Share {
    /// The share after a change; an error says what makes no sense.
    pub fn with(&self, asked: &ShareAsked) -> Result<Share, String> {
        let share = Share {
            class: asked.class.unwrap_or(self.class),
            priority: asked.priority.unwrap_or(self.priority),
            request: asked.request.unwrap_or(self.request),
            limit: asked.limit.unwrap_or(self.limit),
            memory: asked.memory.or(self.memory),
            sms: asked.sms.unwrap_or(self.sms),
            slo: asked.slo.or(self.slo),
            mode: asked.mode.unwrap_or(self.mode),
            gpu: asked.gpu.clone().or_else(|| self.gpu.clone()),
            gpus: asked.gpus.unwrap_or(self.gpus),
            suspended: asked.suspended.unwrap_or(self.suspended),
        };
        if share.priority > PRIORITY_LEAST {
            return Err(format!("priority {} is not one of 0 (most important) to {PRIORITY_LEAST}", share.priority));
        }
        if share.limit == Percent::NONE {
            return Err("a limit of 0% would never let the program run".into());
        }
        if share.request > share.limit {
            return Err(format!("the request of {} is more than the limit of {}", share.request, share.limit));
        }
        if share.sms == Percent::NONE {
            return Err("a program without any SMs would never run".into());
        }
        if share.slo == Some(Span::ZERO) {
            return Err("no work takes 0 ms; an objective is a time such as 20ms".into());
        }
        if share.memory == Some(Bytes(0)) {
            return Err("a program without any memory cannot use a GPU".into());
        }
        if share.gpu.as_ref().is_some_and(String::is_empty) {
            return Err("a GPU is named by its number or its UUID".into());
        }
        if share.gpus == 0 {
            return Err("a program without any GPU shares none".into());
        }
        if share.gpu.is_some() && share.gpus != 1 {
            return Err("say either on which GPUs it runs or on how many".into());
        }
        Ok(share)
    }
}

impl TryFrom<ShareAsked> for Share {
    type Error = String;

    fn try_from(asked: ShareAsked) -> Result<Share, String> {
        Share::default().with(&asked)
    }
}

impl From<Share> for ShareAsked {
    fn from(share: Share) -> ShareAsked {
        ShareAsked {
            class: Some(share.class),
            priority: Some(share.priority),
            request: Some(share.request),
            limit: Some(share.limit),
            memory: share.memory,
            sms: Some(share.sms).filter(|sms| *sms != Percent::ALL),
            slo: share.slo,
            mode: Some(share.mode).filter(|mode| *mode != SharingMode::Auto),
            gpu: share.gpu,
            gpus: Some(share.gpus).filter(|gpus| *gpus != 1),
            suspended: Some(share.suspended).filter(|suspended| *suspended),
        }
    }
}

/// Classes as people write them.
const CLASSES: [(&str, Class); 3] =
    [("latency", Class::Latency), ("standard", Class::Standard), ("best-effort", Class::BestEffort)];

/// The class with this name.
pub fn read_class(text: &str) -> Result<Class, String> {
    let found = CLASSES.into_iter().find(|(name, _)| *name == text).map(|(_, class)| class);
    found.ok_or_else(|| format!("`{text}` is not a class; latency, standard and best-effort are"))
}

/// What a class is called.
pub fn class_name(class: Class) -> &'static str {
    CLASSES.into_iter().find(|(_, known)| *known == class).map_or("standard", |(name, _)| name)
}

mod class {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(class: &Option<Class>, serializer: S) -> Result<S::Ok, S::Error> {
        class.map(class_name).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Class>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| read_class(&text)).transpose().map_err(serde::de::Error::custom)
    }
}

mod objective {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Option<Span>, serializer: S) -> Result<S::Ok, S::Error> {
        span.map(|span| span.to_string()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse()).transpose().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Share, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_has_a_default_and_reads_back_the_same() {
        assert_eq!(read("{}"), Ok(Share::default()));
        let text = r#"{"class": "best-effort", "priority": 2, "request": "12.5%", "limit": "60%", "memory": "20GiB",
            "sms": "75%", "slo": "20ms", "way": "space"}"#;
        let share = read(text).unwrap();
        assert_eq!((share.class, share.request.permille()), (Class::BestEffort, 125));
        assert_eq!(read(&serde_json::to_string(&share).unwrap()), Ok(share));
    }

    #[test]
    fn modes_have_the_fields_names_and_those_of_the_last_version() {
        for (new, old, mode) in
            [("temporal", "time", SharingMode::Temporal), ("spatial", "space", SharingMode::Spatial)]
        {
            for name in [new, old] {
                assert_eq!(name.parse(), Ok(mode));
                assert_eq!(read(&format!("{{\"way\": \"{name}\"}}")).map(|share| share.mode), Ok(mode));
            }
        }
        assert!("sideways".parse::<SharingMode>().unwrap_err().contains("expected auto, temporal or spatial"));
    }

    #[test]
    fn a_change_leaves_the_rest_alone() {
        let share = read(r#"{"class": "latency", "request": "30%", "limit": "60%"}"#).unwrap();
        let asked = ShareAsked { limit: Some("40%".parse().unwrap()), ..ShareAsked::default() };
        let changed = share.with(&asked).unwrap();
        assert_eq!((changed.class, changed.request, changed.limit.permille()), (share.class, share.request, 400));
        let less = ShareAsked { limit: Some("20%".parse().unwrap()), ..ShareAsked::default() };
        assert_eq!(share.with(&less).unwrap_err(), "the request of 30% is more than the limit of 20%");
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let check = |text: &str, expected: &str| {
            let message = read(text).unwrap_err();
            assert!(message.contains(expected), "{message}");
        };
        check(r#"{"class": "fast"}"#, "`fast` is not a class");
        check(r#"{"priority": 10}"#, "priority 10 is not one of");
        check(r#"{"request": "130%"}"#, "`130%` is more than a whole GPU");
        check(r#"{"limit": "0%"}"#, "a limit of 0%");
        check(r#"{"memory": "0B"}"#, "without any memory");
        check(r#"{"sms": "0%"}"#, "without any SMs");
        check(r#"{"slo": "0ms"}"#, "no work takes 0 ms");
        check(r#"{"way": "sideways"}"#, "sideways");
        check(r#"{"gpus": 0}"#, "without any GPU");
        check(r#"{"gpus": 2, "gpu": "0,1"}"#, "either on which GPUs");
        check(r#"{"memory": "lots"}"#, "`lots` is not a size");
        check(r#"{"colour": 3}"#, "unknown field `colour`");
        for wrong in ["30", "%", "-5%", "3.14%", "1e2%", "99999999999%", "٣%"] {
            assert!(wrong.parse::<Percent>().is_err(), "{wrong}");
        }
    }
}
