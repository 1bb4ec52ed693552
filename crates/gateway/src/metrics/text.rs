//! Metrics as text, in the two ways of writing them: Prometheus' own, and OpenMetrics.
//!
//! They differ in little: in OpenMetrics a counter's family is named without `_total`, a counter whose name does not end
//! so cannot be one, units have a line of their own, and the text says where it ends.

use std::fmt::{Display, Write};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text format 0.0.4, which everything reads.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The content type of such a text.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a family's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts by upper end, and a sum.
    Histogram,
}

impl Type {
    const fn name(self) -> &'static str {
        match self {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        }
    }
}

/// Labels of a sample, written and escaped once for all samples that share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(String);

impl Labels {
    /// No labels.
    pub(crate) fn none() -> Labels {
        Labels::default()
    }

    /// These and one more.
    pub(crate) fn with(&self, name: &str, value: impl Display) -> Labels {
        let mut labels = self.0.clone();
        if !labels.is_empty() {
            labels.push(',');
        }
        labels.push_str(name);
        labels.push_str("=\"");
        // Formatted first: what a value looks like inside is its own affair, what it must not contain is ours.
        for letter in value.to_string().chars() {
            match letter {
                '\\' => labels.push_str("\\\\"),
                '"' => labels.push_str("\\\""),
                '\n' => labels.push_str("\\n"),
                other => labels.push(other),
            }
        }
        labels.push('"');
        Labels(labels)
    }
}

/// A text of metrics in the making.
pub(crate) struct Exposition {
    format: Format,
    text: String,
}

/// A family, to add samples to.
pub(crate) struct Family<'text> {
    text: &'text mut String,
    name: &'static str,
}

impl Exposition {
    /// An empty one.
    pub(crate) fn new(format: Format) -> Exposition {
        Exposition { format, text: String::with_capacity(64 << 10) }
    }

    /// Begins a family. Its name is that of its samples, `_total` included; `help` is plain words without line ends,
    /// quotes and backslashes.
    pub(crate) fn family(&mut self, name: &'static str, kind: Type, help: &'static str) -> Family<'_> {
        debug_assert!(!help.contains(['\n', '"', '\\']));
        let text = &mut self.text;
        let (family, kind) = match (self.format, kind, name.strip_suffix("_total")) {
            (Format::OpenMetrics, Type::Counter, Some(family)) => (family, "counter"),
            (Format::OpenMetrics, Type::Counter, None) => (name, "unknown"),
            _ => (name, kind.name()),
        };
        let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} {kind}");
        if self.format == Format::OpenMetrics
            && let Some(unit) = ["seconds", "bytes"].into_iter().find(|unit| family.ends_with(unit))
        {
            let _ = writeln!(text, "# UNIT {family} {unit}");
        }
        Family { text, name }
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

impl Family<'_> {
    /// Adds a sample.
    pub(crate) fn add(&mut self, labels: &Labels, value: impl Display) {
        self.line("", &labels.0, value);
    }

    /// Adds a histogram: how many there are up to each upper end and not to the one before, those above the last, and
    /// the sum of all.
    pub(crate) fn add_histogram(&mut self, labels: &Labels, counts: &[(f64, u64)], above: u64, sum: impl Display) {
        let mut so_far = 0;
        for (end, count) in counts {
            so_far += count;
            // With a decimal point even where it is whole, as OpenMetrics wants it.
            self.line("_bucket", &labels.with("le", format_args!("{end:?}")).0, so_far);
        }
        so_far += above;
        self.line("_bucket", &labels.with("le", "+Inf").0, so_far);
        self.line("_sum", &labels.0, sum);
        self.line("_count", &labels.0, so_far);
    }

    fn line(&mut self, suffix: &str, labels: &str, value: impl Display) {
        let name = self.name;
        let _ = match labels {
            "" => writeln!(self.text, "{name}{suffix} {value}"),
            labels => writeln!(self.text, "{name}{suffix}{{{labels}}} {value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format) -> String {
        let mut out = Exposition::new(format);
        let labels = Labels::none().with("model", "a\\b\"c\nd}").with("version", 1);
        out.family("weft_rows_total", Type::Counter, "Rows.").add(&labels, 5);
        out.family("nv_inference_count", Type::Counter, "Rows.").add(&Labels::none(), 5);
        out.family("weft_wait_seconds", Type::Histogram, "Waits.").add_histogram(
            &Labels::none(),
            &[(0.5, 1), (2.0, 0)],
            2,
            7.25,
        );
        out.finish()
    }

    #[test]
    fn text_for_prometheus() {
        let expected = r##"# HELP weft_rows_total Rows.
# TYPE weft_rows_total counter
weft_rows_total{model="a\\b\"c\nd}",version="1"} 5
# HELP nv_inference_count Rows.
# TYPE nv_inference_count counter
nv_inference_count 5
# HELP weft_wait_seconds Waits.
# TYPE weft_wait_seconds histogram
weft_wait_seconds_bucket{le="0.5"} 1
weft_wait_seconds_bucket{le="2.0"} 1
weft_wait_seconds_bucket{le="+Inf"} 3
weft_wait_seconds_sum 7.25
weft_wait_seconds_count 3
"##;
        assert_eq!(written(Format::Prometheus), expected);
    }

    #[test]
    fn text_for_open_metrics() {
        let text = written(Format::OpenMetrics);
        assert!(text.starts_with("# HELP weft_rows Rows.\n# TYPE weft_rows counter\nweft_rows_total{"));
        assert!(text.contains("# TYPE nv_inference_count unknown\nnv_inference_count 5\n"));
        assert!(text.contains("# TYPE weft_wait_seconds histogram\n# UNIT weft_wait_seconds seconds\n"));
        assert!(text.ends_with("\n# EOF\n"));
    }
}
