//! How requests are traced and what is logged, as Triton's clients ask and change it.

use super::answer::{Answer, Problem, value};
use super::models::parse;
use crate::Gateway;
use crate::settings::LogValue;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

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
                Value::Array(words) => Some(words.into_iter().map(word).collect::<Option<Vec<_>>>()),
                one => Some(word(one).map(|word| vec![word])),
            };
            let wrong = || Problem::invalid(format!("trace setting `{name}` takes a text or a list of texts"));
            let words = words.map(|words| words.ok_or_else(wrong)).transpose()?;
            read.insert(name, words);
        }
        gateway.settings.set_trace(model, read).map_err(Problem::invalid)?;
    }
    let shown = gateway.settings.trace(model).into_iter().map(|(name, mut words)| {
        // The level is the one setting that is a list even when there is one of it.
        let value = if words.len() == 1 && name != "trace_level" { json!(words.remove(0)) } else { json!(words) };
        (name, value)
    });
    Ok(value(&Value::Object(shown.collect())))
}

fn word(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Shows the log settings, after changing them when there is a body to a POST.
pub(super) fn logging(gateway: &Gateway, changes: Option<&Bytes>) -> Result<Answer, Problem> {
    if let Some(body) = changes {
        let mut read = BTreeMap::new();
        for (name, value) in parse::<Map<String, Value>>(body)? {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
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
