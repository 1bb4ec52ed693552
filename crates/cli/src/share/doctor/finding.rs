//! What was looked at, and how it is.

use serde::Serialize;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Health {
    /// As it should be.
    Good,
    /// It works, with less than there could be.
    Limited,
    /// Programs cannot share GPUs because of it.
    Broken,
    /// It was not looked at.
    Skipped,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) what: &'static str,
    pub(super) health: Health,
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn good(what: &'static str, found: impl Into<String>) -> Finding {
        Finding { what, health: Health::Good, found: found.into(), advice: None }
    }

    pub(super) fn other(
        what: &'static str,
        health: Health,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { what, health, found: found.into(), advice: Some(advice.into()) }
    }
}
