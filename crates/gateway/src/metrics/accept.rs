//! What a client says it can read: `Accept` and `Accept-Encoding`.

use super::text::Format;
use hyper::HeaderMap;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderName};

/// Whether an answer may be compressed with gzip.
pub(crate) fn gzip(headers: &HeaderMap) -> bool {
    let named = weight(headers, &ACCEPT_ENCODING, "gzip");
    named.or_else(|| weight(headers, &ACCEPT_ENCODING, "*")).is_some_and(|weight| weight > 0.0)
}

/// How metrics are to be written: OpenMetrics where it is asked for by name and no less than plain text is.
pub(crate) fn format(headers: &HeaderMap) -> Format {
    let plain = weight(headers, &ACCEPT, "text/plain").unwrap_or(0.0);
    match weight(headers, &ACCEPT, "application/openmetrics-text") {
        Some(open) if open > 0.0 && open >= plain => Format::OpenMetrics,
        _ => Format::Prometheus,
    }
}

/// The highest weight a name is given in a list such as `a;q=0.5, b`; none when it is not in it.
fn weight(headers: &HeaderMap, header: &HeaderName, wanted: &str) -> Option<f32> {
    let lists = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    let weigh = |part: &str| {
        let mut parameters = part.split(';').map(str::trim);
        let name = parameters.next()?;
        let weight = parameters.find_map(|parameter| parameter.strip_prefix("q=")).unwrap_or("1");
        name.eq_ignore_ascii_case(wanted).then(|| weight.parse::<f32>().unwrap_or(0.0))
    };
    lists.flat_map(|list| list.split(',')).filter_map(weigh).reduce(f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn gzip_is_sent_to_those_who_can_read_it() {
        for (value, expected) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("*", true),
            ("gzip;q=0, *", false),
            ("identity", false),
            ("gzippy", false),
            ("", false),
        ] {
            assert_eq!(gzip(&headers(ACCEPT_ENCODING, value)), expected, "{value}");
        }
        assert!(!gzip(&HeaderMap::new()));
    }

    #[test]
    fn open_metrics_are_sent_to_those_who_ask() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        for (value, expected) in [
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.9", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("*/*", Format::Prometheus),
        ] {
            assert_eq!(format(&headers(ACCEPT, value)), expected, "{value}");
        }
    }
}
