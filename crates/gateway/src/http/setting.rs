//! How requests are traced and what is logged, as Triton's clients ask and change it.

use super::answer::{Answer, Problem, value};
use super::models::parse;
use crate::Gateway;
use crate::settings::LogValue;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A trace setting that is a list even when there is one of it.
const LEVEL: &str = "trace_level";

/// Shows the trace settings of a model or of all, after changing them when there is a body to a POST.
pub(super) fn trace(gateway: &Gateway, model: Option<&str>, changes: Option<&Bytes>) -> Result<Answer, Problem> {
    if let Some(model) = model {
        gateway.catalog().find(model, None)?;
    }
    if let Some(body) = changes {
        let mut read = BTreeMap::new();
        for (name, value) in parse::<Map<String, Value>>(body)? {
            let words = match value {
                Value::Null => None,
                Value::String(text) => Some(vec![text]),
                Value::Number(number) if name != LEVEL => Some(vec![number.to_string()]),
                // The level is the one setting that is a list.
                Value::Array(words) if name == LEVEL => {
                    let text = |word: Value| word.as_str().map(str::to_string);
                    let texts: Option<Vec<String>> = words.into_iter().map(text).collect();
                    Some(texts.ok_or_else(|| Problem::invalid("`trace_level` takes a list of texts"))?)
                }
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    return Err(Problem::invalid(format!("trace setting `{name}` takes a text or a number")));
                }
            };
            read.insert(name, words);
        }
        gateway.settings.set_trace(model, read).map_err(Problem::invalid)?;
    }
    let shown = gateway.settings.trace(model).into_iter().map(|(name, mut words)| {
        let value = if words.len() == 1 && name != LEVEL { json!(words.remove(0)) } else { json!(words) };
        (name, value)
    });
    Ok(value(&Value::Object(shown.collect())))
}

/// Shows the log settings, after changing them when there is a body to a POST.
pub(super) fn logging(gateway: &Gateway, changes: Option<&Bytes>) -> Result<Answer, Problem> {
    if let Some(body) = changes {
        let mut read = BTreeMap::new();
        for (name, value) in parse::<Map<String, Value>>(body)? {
            // A number without a fraction is whole, however it is written.
            let number = value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0);
            let number = number.filter(|number| *number <= f64::from(u32::MAX)).map(|number| number as u32);
            let value = match value {
                Value::Bool(flag) => Some(LogValue::Flag(flag)),
                Value::String(text) => Some(LogValue::Text(text)),
                _ => number.map(LogValue::Number),
            };
            let wrong = || Problem::invalid(format!("log setting `{name}` takes true, false, a text or a number"));
            read.insert(name.clone(), value.ok_or_else(wrong)?);
        }
        gateway.settings.set_log(read).map_err(Problem::invalid)?;
    }
    let shown = gateway.settings.log().into_iter().map(|(name, value)| {
        let value = match value {
            LogValue::Flag(flag) => json!(flag),
            LogValue::Number(number) => json!(number),
            LogValue::Text(text) => json!(text),
        };
        (name, value)
    });
    Ok(value(&Value::Object(shown.collect())))
}
