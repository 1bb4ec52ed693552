//! Everything that is made of results: the file, tables for a terminal, tables for a page, charts.

use crate::figures::{PairFigures, figures};
use crate::results::Results;
use crate::{markdown, plot, settings, text};
use serde::Serialize;
use serde_json::Error;

/// Figures of results, and the texts that show them.
#[derive(Debug)]
pub struct Report<'a> {
    results: &'a Results,
    figures: Vec<PairFigures>,
}

/// What a file of results holds: what was measured and, for whoever reads the file, what comes of it.
#[derive(Debug, Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    results: &'a Results,
    figures: &'a [PairFigures],
}

impl<'a> Report<'a> {
    /// Computes the figures.
    pub fn new(results: &'a Results) -> Report<'a> {
        Report { results, figures: figures(results) }
    }

    /// The text of a file from which [`Results::read`] has the results again.
    pub fn file(&self) -> Result<String, Error> {
        let written = Written { results: self.results, figures: &self.figures };
        Ok(serde_json::to_string_pretty(&written)? + "\n")
    }

    /// The figures as JSON.
    pub fn json(&self) -> Result<String, Error> {
        Ok(serde_json::to_string_pretty(&self.figures)? + "\n")
    }

    /// Tables for a terminal.
    pub fn text(&self) -> String {
        text::text(self.results, &self.figures)
    }

    /// Tables as a page of Markdown.
    pub fn markdown(&self) -> String {
        markdown::page(self.results, &self.figures, settings::meaning)
    }

    /// Charts as an HTML page.
    pub fn page(&self) -> String {
        plot::page(self.results, &self.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::sample;
    use policy::Span;

    #[test]
    fn what_was_written_can_be_read_again() {
        let results = sample();
        let text = Report::new(&results).file().unwrap();
        let mut again = Results::read(&text).unwrap();
        assert_eq!(Report::new(&again).markdown(), Report::new(&results).markdown());
        again.set_objective(None);
        assert_eq!(Report::new(&again).markdown(), Report::new(&results).markdown());
        again.set_objective(Some(Span::from_millis(40)));
        assert!(Report::new(&again).markdown().contains("at most 40 ms"));
        assert!(Results::read("{}").is_err());
    }
}
