//! The lines of a store's file.
//!
//! ```text
//! weft deployments 1
//! 1c291ca3 magika:1 {"format":1,"loaded":true,"spec":{...}}
//! 9d0e5a54 end 1
//! ```
//!
//! A line begins with the CRC-32 of what follows in it. The last says how many records there are, so that a file that
//! lost its end, or a line, is not taken for a whole one. A record that cannot be read is one model's trouble; a file
//! without its first or last line is everybody's.

use super::{Record, Stored};
use config::ModelSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const HEADER: &str = "weft deployments ";
/// Of the file, and of a record.
const FORMAT: u32 = 1;

/// A line that holds a record, or was meant to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// As it is in the file.
    pub(super) raw: Vec<u8>,
    pub(super) record: Record,
}

/// What is in a file.
pub(super) struct Contents {
    pub(super) lines: Vec<Line>,
    /// Why it is not a whole file.
    pub(super) damage: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    format: u32,
    loaded: bool,
    spec: ModelSpec,
}

impl Line {
    pub(super) fn of(stored: &Stored) -> serde_json::Result<Line> {
        let Stored { spec, loaded } = stored.clone();
        let json = serde_json::to_string(&Written { format: FORMAT, loaded, spec })?;
        let (name, version) = (stored.spec.name.clone(), stored.spec.version);
        let raw = sealed(&format!("{name}:{version} {json}"));
        Ok(Line { raw, record: Record { name, version, content: Ok(stored.clone()) } })
    }

    pub(super) fn is_of(&self, name: &str, version: u32) -> bool {
        self.record.name == name && self.record.version == version
    }
}

/// The bytes of a file with these lines.
pub(super) fn write(lines: &[Line]) -> Vec<u8> {
    let mut bytes = format!("{HEADER}{FORMAT}\n").into_bytes();
    for line in lines {
        bytes.extend(&line.raw);
        bytes.push(b'\n');
    }
    bytes.extend(sealed(&format!("end {}", lines.len())));
    bytes.push(b'\n');
    bytes
}

/// Reads a file, whatever it holds.
pub(super) fn read(bytes: &[u8]) -> Contents {
    if bytes.is_empty() {
        return Contents { lines: Vec::new(), damage: Some("it is empty, which Weft never leaves behind".into()) };
    }
    let mut damage = None;
    let whole = bytes.ends_with(b"\n");
    let mut raw: Vec<&[u8]> = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n').collect();
    match std::str::from_utf8(raw[0]).ok().and_then(|line| line.strip_prefix(HEADER)).map(str::parse::<u32>) {
        Some(Ok(FORMAT)) => drop(raw.remove(0)),
        Some(Ok(other)) => {
            raw.remove(0);
            damage = Some(format!("it was written by a newer Weft, in format {other}; this one reads {FORMAT}"));
        }
        Some(Err(_)) | None => damage = Some("it does not begin as a store of deployments does".into()),
    }
    let count = raw.last().filter(|_| whole).and_then(|line| read_end(line));
    match count {
        Some(_) => drop(raw.pop()),
        None => {
            let cut = || format!("its end is missing after {} lines", raw.len());
            damage.get_or_insert_with(cut);
        }
    }
    if let Some(count) = count.filter(|count| *count > raw.len()) {
        damage.get_or_insert_with(|| format!("{} of its {count} records are there", raw.len()));
    }
    Contents { lines: read_lines(&raw), damage }
}

fn read_lines(raw: &[&[u8]]) -> Vec<Line> {
    let read: Vec<_> = raw.iter().map(|raw| read_line(raw)).collect();
    // Readable ones keep their names, whatever names can be made out in those that are damaged.
    let mut taken = BTreeSet::new();
    let good = read.iter().map(|(key, content)| content.is_ok() && taken.insert(key.clone()));
    let good: Vec<bool> = good.collect();
    let named = read.into_iter().zip(good).zip(raw).enumerate();
    let line = |(index, (((key, content), good), raw)): (usize, ((_, bool), &&[u8]))| {
        let content: Result<Stored, String> = match content {
            Ok(_) if !good => Err("there is another record of this model and version".into()),
            content => content,
        };
        let key: Option<(String, u32)> = key;
        let (name, version) = match key.filter(|key| good || taken.insert(Some(key.clone()))) {
            Some(key) => key,
            None => (format!("unreadable-line-{}", index + 2), 1),
        };
        Line { raw: raw.to_vec(), record: Record { name, version, content } }
    };
    named.map(line).collect()
}

/// Whose record it is, as far as that can be made out, and the record.
fn read_line(raw: &[u8]) -> (Option<(String, u32)>, Result<Stored, String>) {
    let Ok(text) = std::str::from_utf8(raw) else { return (None, Err("the line is not text".into())) };
    let (checksum, rest) = text.split_once(' ').unwrap_or(("", text));
    let (key, json) = rest.split_once(' ').unwrap_or((rest, ""));
    let key = key.rsplit_once(':').and_then(|(name, version)| Some((name.to_string(), version.parse().ok()?)));
    let key = key.filter(|(name, version)| config::model::check_name(name).is_ok() && *version > 0);
    if u32::from_str_radix(checksum, 16).ok() != Some(crc32(rest.as_bytes())) {
        return (key, Err("its checksum is wrong: the file was damaged, or changed by hand".into()));
    }
    let content = read_record(json).and_then(|stored| match &key {
        Some((name, version)) if (name, *version) == (&stored.spec.name, stored.spec.version) => Ok(stored),
        _ => Err(format!("it holds model `{}` version {}", stored.spec.name, stored.spec.version)),
    });
    (key, content)
}

fn read_record(json: &str) -> Result<Stored, String> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let words = |error: serde_json::Error| error.to_string();
    let Format { format } = serde_json::from_str(json).map_err(words)?;
    if format != FORMAT {
        return Err(format!("it was written by a newer Weft, in format {format}; this one reads {FORMAT}"));
    }
    let Written { loaded, spec, .. } = serde_json::from_str(json).map_err(words)?;
    Ok(Stored { spec, loaded })
}

/// How many records there are, where this is a last line.
fn read_end(raw: &[u8]) -> Option<usize> {
    let (checksum, rest) = std::str::from_utf8(raw).ok()?.split_once(' ')?;
    let count = rest.strip_prefix("end ")?.parse().ok()?;
    (u32::from_str_radix(checksum, 16).ok()? == crc32(rest.as_bytes())).then_some(count)
}

/// A record of an older Weft: the line that says the same.
pub(super) fn adopt(key: &str, json: &str) -> Vec<u8> {
    use serde_json::{Value, json};
    let (name, version) = key.rsplit_once(':').unwrap_or((key, "1"));
    let mut record = serde_json::from_str(json).unwrap_or_else(|_| json!({ "unreadable": json }));
    if let Value::Object(fields) = &mut record {
        fields.insert("format".into(), json!(FORMAT));
    }
    sealed(&format!("{name}:{} {record}", version.parse().unwrap_or(1)))
}

/// The lines of records as they are in a file.
pub(super) fn lines(raw: &[Vec<u8>]) -> Vec<Line> {
    read_lines(&raw.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// A line with its checksum.
pub(super) fn sealed(text: &str) -> Vec<u8> {
    format!("{:08x} {text}", crc32(text.as_bytes())).into_bytes()
}

/// The checksum of zip and Ethernet.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1));
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_the_known_one() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
