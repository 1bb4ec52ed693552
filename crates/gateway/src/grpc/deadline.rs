//! How long a client waits, as the header `grpc-timeout` says.

use policy::Span;
use tonic::metadata::MetadataMap;

/// How long after the call began its client gives up; `None` where it does not say, or not in the protocol's words.
pub(super) fn of(metadata: &MetadataMap) -> Option<Span> {
    parse(metadata.get("grpc-timeout")?.to_str().ok()?)
}

/// Up to eight digits and a letter for the unit.
fn parse(text: &str) -> Option<Span> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let nanos: u64 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return None,
    };
    Some(Span::from_nanos(digits.parse::<u64>().ok()?.saturating_mul(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_protocols() {
        let check = |text: &str, expected: Option<Span>| assert_eq!(parse(text), expected, "{text}");
        check("250m", Some(Span::from_millis(250)));
        check("7S", Some(Span::from_secs(7)));
        check("12345678u", Some(Span::from_micros(12_345_678)));
        check("1H", Some(Span::from_secs(3600)));
        check("99999999H", Some(Span::MAX));
        check("123456789n", None);
        check("", None);
        check("m", None);
        check("+5m", None);
        check("5é", None);
    }
}
