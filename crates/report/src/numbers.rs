//! Numbers and names as text.

/// What stands for a number that there is not.
pub(crate) const NONE: &str = "–";

/// Text for HTML, in an element or in a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML has no way to write the other control characters.
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// At most `most` letters of a name, escaped.
pub(crate) fn shorten(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return escape(name);
    }
    let kept: String = name.chars().take(most.saturating_sub(1)).collect();
    escape(kept.trim_end()) + "…"
}

/// A number of three digits or so: `5,458`, `42.7`, `1.08`.
pub fn rate(value: f64) -> String {
    let decimals = match value.abs() {
        size if size == 0.0 || size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    decimal(value, decimals)
}

/// A number on an axis, without needless zeros.
pub(crate) fn tick(value: f64) -> String {
    let text = rate(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// How many.
pub fn count(number: usize) -> String {
    decimal(number as f64, 0)
}

/// A fraction as a percentage of two or three digits: `0%`, `0.012%`, `1.00%`, `12.3%`.
pub fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    let decimals = match value.abs() {
        size if size == 0.0 || size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        size if size >= 0.00995 => 3,
        _ => 4,
    };
    with_sign(decimal(value, decimals))
}

/// The same without needless zeros, for axes and sentences.
pub fn percent_tick(fraction: f64) -> String {
    let text = percent(fraction);
    match text.strip_suffix('%') {
        Some(number) if number.contains('.') => with_sign(number.trim_end_matches('0').trim_end_matches('.').into()),
        _ => text,
    }
}

/// A fraction as a percentage with one decimal, for columns of them.
pub fn share(fraction: f64) -> String {
    with_sign(decimal(fraction * 100.0, 1))
}

fn with_sign(number: String) -> String {
    if number == NONE { number } else { number + "%" }
}

/// A number with thousands separators.
pub fn decimal(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return NONE.into();
    }
    let digits = format!("{:.decimals$}", value.abs());
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut out = String::new();
    if value < 0.0 && digits.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        out.push('−');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// The mean, or nothing that is a number.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { values.iter().sum::<f64>() / values.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let rates: Vec<String> = [0.0, 1.083, 42.66, 99.96, 5458.2, 1_234_567.0].map(rate).into();
        assert_eq!(rates, ["0", "1.08", "42.7", "100", "5,458", "1,234,567"]);
        let fractions: Vec<String> =
            [0.0, 0.000_001, 0.000_123, 0.001_2, 0.01, 0.0123, 0.1234, 1.0].map(percent).into();
        assert_eq!(fractions, ["0%", "0.0001%", "0.012%", "0.12%", "1.00%", "1.23%", "12.3%", "100%"]);
        assert_eq!([0.0, 0.0001, 0.01, 0.2, 1.0].map(percent_tick), ["0%", "0.01%", "1%", "20%", "100%"]);
        assert_eq!([0.2, 0.0, f64::NAN].map(share), ["20.0%", "0.0%", NONE]);
        assert_eq!([rate(f64::NAN), percent(f64::INFINITY)], [NONE, NONE]);
        assert_eq!([decimal(-1234.5, 1), decimal(-0.01, 1)], ["−1,234.5", "0.0"]);
    }

    #[test]
    fn names_are_escaped_after_they_are_cut() {
        assert_eq!(escape("<a href=\"x\">&'\u{7}"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39; ");
        assert_eq!(shorten("a<b", 3), "a&lt;b");
        assert_eq!(shorten("eager-timeout-long", 8), "eager-t…");
    }
}
