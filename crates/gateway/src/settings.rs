//! What clients asked to be traced and logged, in the words of Triton's trace and logging extensions.
//!
//! This keeps and checks the settings; whoever traces and logs reads them here. Files cannot be named by a client: a
//! request must not be able to make the server write where it likes.

use std::collections::BTreeMap;
use std::sync::RwLock;

/// Settings of tracing, for all models and for some, and of logging.
pub struct Settings {
    trace: RwLock<Trace>,
    log: RwLock<BTreeMap<String, LogValue>>,
}

#[derive(Default)]
struct Trace {
    everywhere: BTreeMap<String, Vec<String>>,
    models: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// The value of a setting of logging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogValue {
    /// On or off.
    Flag(bool),
    /// How much.
    Number(u32),
    /// Where, or how.
    Text(String),
}

/// Settings of tracing and what they are where nobody changed them.
const TRACE: [(&str, &str); 6] = [
    ("trace_file", ""),
    ("trace_level", "OFF"),
    ("trace_rate", "1000"),
    ("trace_count", "-1"),
    ("log_frequency", "0"),
    ("trace_mode", "triton"),
];
/// What can be traced.
const LEVELS: [&str; 3] = ["OFF", "TIMESTAMPS", "TENSORS"];
/// How log lines can look.
const FORMATS: [&str; 2] = ["default", "ISO8601"];

impl Default for Settings {
    fn default() -> Settings {
        let log = [
            ("log_file", LogValue::Text(String::new())),
            ("log_info", LogValue::Flag(true)),
            ("log_warning", LogValue::Flag(true)),
            ("log_error", LogValue::Flag(true)),
            ("log_verbose_level", LogValue::Number(0)),
            ("log_format", LogValue::Text(FORMATS[0].into())),
        ];
        let log = log.map(|(name, value)| (name.to_string(), value)).into();
        Settings { trace: RwLock::default(), log: RwLock::new(log) }
    }
}

impl Settings {
    /// The settings of tracing that hold for a model, or for those that have none of their own.
    pub fn trace(&self, model: Option<&str>) -> BTreeMap<String, Vec<String>> {
        let trace = self.trace.read().expect("no panic holds this lock");
        let own = model.and_then(|model| trace.models.get(model));
        let value = |(name, default): (&str, &str)| {
            let changed = own.and_then(|own| own.get(name)).or_else(|| trace.everywhere.get(name));
            (name.to_string(), changed.cloned().unwrap_or_else(|| vec![default.to_string()]))
        };
        TRACE.into_iter().map(value).collect()
    }

    /// Changes settings of tracing, of a model or of all that have none of their own. `None` takes a change back. All
    /// changes are made, or none.
    pub fn set_trace(&self, model: Option<&str>, changes: BTreeMap<String, Option<Vec<String>>>) -> Result<(), String> {
        for (name, values) in &changes {
            check_trace(name, values.as_deref())?;
        }
        let mut trace = self.trace.write().expect("no panic holds this lock");
        let settings = match model {
            Some(model) => trace.models.entry(model.to_string()).or_default(),
            None => &mut trace.everywhere,
        };
        for (name, values) in changes {
            match values {
                Some(values) => drop(settings.insert(name, values)),
                None => drop(settings.remove(&name)),
            }
        }
        trace.models.retain(|_, settings| !settings.is_empty());
        Ok(())
    }

    /// The settings of logging.
    pub fn log(&self) -> BTreeMap<String, LogValue> {
        self.log.read().expect("no panic holds this lock").clone()
    }

    /// Changes settings of logging: all of those given, or none.
    pub fn set_log(&self, changes: BTreeMap<String, LogValue>) -> Result<(), String> {
        let mut log = self.log.write().expect("no panic holds this lock");
        for (name, value) in &changes {
            check_log(name, log.get(name), value)?;
        }
        log.extend(changes);
        Ok(())
    }
}

fn check_trace(name: &str, values: Option<&[String]>) -> Result<(), String> {
    if !TRACE.iter().any(|(known, _)| *known == name) {
        let known = TRACE.map(|(known, _)| known).join(", ");
        return Err(format!("`{name}` is not a setting of tracing; there are {known}"));
    }
    if name == "trace_file" || name == "trace_mode" {
        return Err(format!("`{name}` cannot be changed by a client"));
    }
    let Some(values) = values else { return Ok(()) };
    if name == "trace_level" {
        return match values.iter().find(|value| !LEVELS.contains(&value.as_str())) {
            Some(odd) => Err(format!("`trace_level` is `{odd}`; it can be {}", LEVELS.join(", "))),
            None if values.is_empty() => Err("`trace_level` needs a value".into()),
            None if values.len() > LEVELS.len() => Err("`trace_level` names a level twice".into()),
            None => Ok(()),
        };
    }
    let [value] = values else { return Err(format!("`{name}` takes one value, and {} are given", values.len())) };
    let fits = match name {
        "trace_count" => value.parse::<i64>().is_ok_and(|count| count >= -1),
        "trace_rate" => value.parse::<u32>().is_ok_and(|rate| rate > 0),
        _ => value.parse::<u32>().is_ok(),
    };
    if fits { Ok(()) } else { Err(format!("`{name}` is `{value}`, which is not a number it can take")) }
}

fn check_log(name: &str, present: Option<&LogValue>, value: &LogValue) -> Result<(), String> {
    match (name, present, value) {
        (_, None, _) => Err(format!("`{name}` is not a setting of logging")),
        ("log_file", ..) => Err("`log_file` cannot be changed by a client".into()),
        ("log_format", _, LogValue::Text(format)) if !FORMATS.contains(&format.as_str()) => {
            Err(format!("`log_format` is `{format}`; it can be {}", FORMATS.join(", ")))
        }
        (_, Some(LogValue::Flag(_)), LogValue::Flag(_))
        | (_, Some(LogValue::Number(_)), LogValue::Number(_))
        | (_, Some(LogValue::Text(_)), LogValue::Text(_)) => Ok(()),
        (_, Some(LogValue::Flag(_)), _) => Err(format!("`{name}` is true or false")),
        (_, Some(LogValue::Number(_)), _) => Err(format!("`{name}` is a number from 0 on")),
        (_, Some(LogValue::Text(_)), _) => Err(format!("`{name}` is a text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(changes: &[(&str, Option<&[&str]>)]) -> BTreeMap<String, Option<Vec<String>>> {
        let owned = |values: &[&str]| values.iter().map(|value| value.to_string()).collect();
        changes.iter().map(|(name, values)| (name.to_string(), values.map(owned))).collect()
    }

    #[test]
    fn a_models_own_settings_come_before_those_of_all() {
        let settings = Settings::default();
        assert_eq!(settings.trace(None)["trace_rate"], ["1000"]);
        settings.set_trace(None, changes(&[("trace_rate", Some(&["10"]))])).unwrap();
        settings.set_trace(Some("m"), changes(&[("trace_level", Some(&["TIMESTAMPS", "TENSORS"]))])).unwrap();
        assert_eq!(settings.trace(Some("m"))["trace_rate"], ["10"]);
        assert_eq!(settings.trace(Some("m"))["trace_level"], ["TIMESTAMPS", "TENSORS"]);
        assert_eq!(settings.trace(Some("other"))["trace_level"], ["OFF"]);
        settings.set_trace(Some("m"), changes(&[("trace_level", None)])).unwrap();
        settings.set_trace(None, changes(&[("trace_rate", None)])).unwrap();
        assert_eq!(settings.trace(Some("m")), Settings::default().trace(None));
    }

    #[test]
    fn nonsense_changes_nothing() {
        let settings = Settings::default();
        let check = |name: &str, values: &[&str], expected: &str| {
            let given = changes(&[("log_frequency", Some(&["5"])), (name, Some(values))]);
            let message = settings.set_trace(None, given).unwrap_err();
            assert!(message.contains(expected), "{message}");
            assert_eq!(settings.trace(None)["log_frequency"], ["0"]);
        };
        check("trace_speed", &["1"], "`trace_speed` is not a setting of tracing");
        check("trace_file", &["/etc/passwd"], "cannot be changed by a client");
        check("trace_level", &["SOME"], "`trace_level` is `SOME`");
        check("trace_level", &[], "needs a value");
        check("trace_rate", &["1", "2"], "takes one value, and 2 are given");
        check("trace_rate", &["0"], "not a number it can take");
        check("trace_count", &["-2"], "not a number it can take");
    }

    #[test]
    fn settings_of_logging_keep_their_types() {
        let settings = Settings::default();
        let set = |name: &str, value: LogValue| settings.set_log([(name.to_string(), value)].into());
        set("log_verbose_level", LogValue::Number(2)).unwrap();
        set("log_info", LogValue::Flag(false)).unwrap();
        set("log_format", LogValue::Text("ISO8601".into())).unwrap();
        assert_eq!(settings.log()["log_verbose_level"], LogValue::Number(2));
        assert!(set("log_info", LogValue::Number(1)).unwrap_err().contains("is true or false"));
        assert!(set("log_verbose_level", LogValue::Flag(true)).unwrap_err().contains("is a number"));
        assert!(set("log_format", LogValue::Text("xml".into())).unwrap_err().contains("`xml`"));
        assert!(set("log_file", LogValue::Text("x".into())).unwrap_err().contains("cannot be changed"));
        assert!(set("log_colour", LogValue::Flag(true)).unwrap_err().contains("is not a setting"));
    }
}
