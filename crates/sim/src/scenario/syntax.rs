//! A scenario file as typed. Every value keeps its place, for messages; what the values mean, and which may
//! stand together, is decided by the modules that use them.

use super::source::{ScenarioError, Source, unknown};
use super::trace::TraceFormat;
use policy::Span;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use toml::Spanned;

/// A whole scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) seed: Option<Spanned<i64>>,
    pub(super) warmup: Option<Spanned<Length>>,
    pub(super) duration: Option<Spanned<Length>>,
    pub(super) policy: Option<Spanned<String>>,
    pub(super) rate: Option<Spanned<f64>>,
    pub(super) noise: Option<Spanned<f64>>,
    pub(super) popularity: Option<Spanned<Popularity>>,
    pub(super) models: Option<Spanned<WorkloadFile>>,
    pub(super) cluster: Option<Table<Cluster>>,
    pub(super) network: Option<Table<NetworkDelays>>,
    pub(super) arrivals: Option<Table<Arrivals>>,
    pub(super) model: Option<Vec<Table<Model>>>,
}

/// A table of known keys, and its place. Only a table: what reads keys would also take a list of values in
/// the order of the keys, which nobody means.
#[derive(Debug)]
pub(crate) struct Table<T> {
    pub(crate) place: Range<usize>,
    pub(crate) keys: T,
}

/// A length of time like `"25ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Length(pub(crate) Span);

/// No length of time in a scenario is longer, and neither is the whole run.
pub(super) const LONGEST: Length = Length(Span::from_secs(24 * 3600));

/// A part of something like `"30%"`, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Percent(pub(crate) u32);

/// How requests are spread over the models, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Popularity {
    Equal,
    Zipf(f64),
}

/// `models = "FILE.txt"`, or the same with profiles.
#[derive(Debug)]
pub(super) struct WorkloadFile {
    pub(super) path: String,
    pub(super) profiles: Option<Vec<Spanned<String>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cluster {
    pub(super) gpus: Option<Spanned<i64>>,
    pub(super) gpu: Option<Vec<Table<Gpu>>>,
    pub(super) failure: Option<Vec<Table<Failure>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gpu {
    #[serde(rename = "type")]
    pub(super) kind: Spanned<String>,
    pub(super) count: Option<Spanned<i64>>,
    pub(super) speed: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failure {
    pub(super) gpu: Spanned<i64>,
    pub(super) at: Spanned<Length>,
    pub(super) down_for: Option<Spanned<Length>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkDelays {
    pub(super) control: Option<Spanned<Length>>,
    pub(super) data_per_request: Option<Spanned<Length>>,
    pub(super) response: Option<Spanned<Length>>,
    pub(super) jitter: Option<Spanned<Length>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arrivals {
    pub(super) kind: ArrivalKind,
    pub(super) shape: Option<Spanned<f64>>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) format: Option<TraceFormat>,
    pub(super) speedup: Option<Spanned<f64>>,
    pub(super) slot: Option<Spanned<Length>>,
    pub(super) rows: Option<Spanned<Vec<Vec<f64>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ArrivalKind {
    Poisson,
    Gamma,
    Constant,
    Trace,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub(super) name: Spanned<String>,
    pub(super) count: Option<Spanned<i64>>,
    pub(super) slo: Spanned<Length>,
    pub(super) weight: Option<Spanned<f64>>,
    pub(super) max_batch: Option<Spanned<i64>>,
    pub(super) latency: Option<Table<Latency>>,
    #[serde(default)]
    pub(super) latency_on: BTreeMap<Spanned<String>, Table<Latency>>,
}

/// One of three forms: a line (`alpha`, `beta`), a `table`, or a `profile` and what to take from it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Latency {
    pub(super) alpha: Option<Spanned<Length>>,
    pub(super) beta: Option<Spanned<Length>>,
    pub(super) table: Option<Vec<Spanned<Point>>>,
    pub(super) profile: Option<Spanned<String>>,
    pub(super) instance: Option<u32>,
    pub(super) processes: Option<u32>,
    pub(super) share: Option<u32>,
    pub(super) model: Option<String>,
    pub(super) gpu: Option<String>,
    pub(super) fit: Option<Fit>,
}

/// `[batch size, latency]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point(pub(super) i64, pub(super) Length);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fit {
    Line,
    Hinge,
}

/// Reads a scenario file as typed.
pub(super) fn read(source: &Source) -> Result<File, ScenarioError> {
    typed(source)
}

/// Reads any kind of scenario file as typed.
pub(crate) fn typed<T: for<'de> Deserialize<'de>>(source: &Source) -> Result<T, ScenarioError> {
    toml::from_str(source.text).map_err(|error: toml::de::Error| match error.span() {
        Some(place) => source.error(place, plain(error.message())),
        None => source.error_on(0, plain(error.message())),
    })
}

/// The parser's message in the words of the file's author, who knows keys and numbers, not fields and `f64`.
fn plain(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match quoted.split_first() {
        Some((name, known)) if message.starts_with("unknown field") => unknown("key", name, known),
        Some((name, known)) if message.starts_with("unknown variant") => unknown("value", name, known),
        Some((name, _)) if message.starts_with("missing field") => format!("missing key `{name}`"),
        _ => message
            .replace("expected f64", "expected a number")
            .replace(" as i128, expected i64", ", expected a smaller whole number")
            .replace(" as u128, expected i64", ", expected a smaller whole number")
            .replace("expected i64", "expected a whole number")
            .replace("expected u32", "expected a whole number, 0 or more")
            .replace("expected a string", "expected text in quotes")
            .replace("expected a sequence", "expected a list, [[...]] or [...]")
            .replace("invalid type: map", "invalid type: table")
            .replace("invalid type: sequence", "invalid type: list"),
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Table<T>, D::Error> {
        struct Keys<T>(T);
        impl<'de, T: Deserialize<'de>> Deserialize<'de> for Keys<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Keys<T>, D::Error> {
                deserializer.deserialize_map(OnlyMap(PhantomData)).map(Keys)
            }
        }
        struct OnlyMap<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMap<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of keys")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        let spanned = Spanned::<Keys<T>>::deserialize(deserializer)?;
        Ok(Table { place: spanned.span(), keys: spanned.into_inner().0 })
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Length;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time in quotes, like \"25ms\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Length, E> {
                let problem =
                    |syntax: policy::SpanSyntax| E::custom(format!("\"{text}\" is no length of time: {syntax}"));
                text.parse().map(Length).map_err(problem)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}%\"", f64::from(self.0) / 10.0)
    }
}

impl Percent {
    pub(crate) fn read(text: &str) -> Option<Percent> {
        let number = text.trim().strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        let number = number.filter(|number| (0.0..=1e6).contains(number));
        number.map(|number| Percent((number * 10.0).round() as u32))
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Percent, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Percent;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a percentage in quotes, like \"30%\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Percent, E> {
                let problem = || E::custom(format!("\"{text}\" is no percentage: expected one like \"30%\""));
                Percent::read(text).ok_or_else(problem)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Point, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = Point;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a batch size and its latency, like [8, \"9ms\"]")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut pair: A) -> Result<Point, A::Error> {
                let size = pair.next_element()?.ok_or_else(|| Error::invalid_length(0, &self))?;
                let latency = pair.next_element()?.ok_or_else(|| Error::invalid_length(1, &self))?;
                match pair.next_element::<serde::de::IgnoredAny>()? {
                    None => Ok(Point(size, latency)),
                    Some(_) => Err(Error::invalid_length(3, &self)),
                }
            }
        }
        deserializer.deserialize_seq(Pair)
    }
}

impl<'de> Deserialize<'de> for Popularity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Popularity, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Zipf {
            zipf: f64,
        }
        struct EqualOrZipf;
        impl<'de> Visitor<'de> for EqualOrZipf {
            type Value = Popularity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"equal\" or { zipf = 0.9 }")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Popularity, E> {
                match text {
                    "equal" => Ok(Popularity::Equal),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Popularity, A::Error> {
                Zipf::deserialize(MapAccessDeserializer::new(map)).map(|Zipf { zipf }| Popularity::Zipf(zipf))
            }
        }
        deserializer.deserialize_any(EqualOrZipf)
    }
}

impl<'de> Deserialize<'de> for WorkloadFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WorkloadFile, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Profiled {
            path: String,
            profiles: Option<Vec<Spanned<String>>>,
        }
        struct PathOrProfiled;
        impl<'de> Visitor<'de> for PathOrProfiled {
            type Value = WorkloadFile;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"FILE.txt\" or { path = \"FILE.txt\", profiles = [\"a.csv\", ...] }")
            }
            fn visit_str<E: Error>(self, path: &str) -> Result<WorkloadFile, E> {
                Ok(WorkloadFile { path: path.to_owned(), profiles: None })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WorkloadFile, A::Error> {
                let Profiled { path, profiles } = Profiled::deserialize(MapAccessDeserializer::new(map))?;
                Ok(WorkloadFile { path, profiles })
            }
        }
        deserializer.deserialize_any(PathOrProfiled)
    }
}
