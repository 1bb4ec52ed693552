//! A page of ratios: sections of charts, one row for each way to do a thing.
//!
//! What holds for the other page holds for this one: see the top of `page.rs`.

use super::chart::ratios::Ratios;
use super::text::escape;
use super::{RatioRow, document, figure, summary};

/// All that the page shows.
#[derive(Clone, Debug)]
pub(crate) struct RatioPage {
    /// The command.
    pub(crate) kicker: String,
    pub(crate) title: String,
    /// What the page answers.
    pub(crate) question: String,
    /// What was measured, as pairs of a name and a value.
    pub(crate) summary: Vec<(String, String)>,
    pub(crate) sections: Vec<RatioSection>,
}

/// Charts that belong together.
#[derive(Clone, Debug)]
pub(crate) struct RatioSection {
    pub(crate) heading: String,
    pub(crate) text: String,
    pub(crate) charts: Vec<RatioChart>,
}

/// One chart.
#[derive(Clone, Debug)]
pub(crate) struct RatioChart {
    pub(crate) heading: String,
    pub(crate) caption: String,
    pub(crate) logarithmic: bool,
    pub(crate) rows: Vec<RatioRow>,
}

/// The page, as a whole HTML document.
pub(crate) fn render(page: &RatioPage) -> String {
    let mut body = format!(
        "<header><p class=\"kicker\">{}</p><h1>{}</h1><p class=\"question\">{}</p></header>\n{}\n",
        escape(&page.kicker),
        escape(&page.title),
        escape(&page.question),
        summary(&page.summary, "What was measured")
    );
    for section in &page.sections {
        let (heading, text) = (escape(&section.heading), escape(&section.text));
        body += &format!("<section><h1>{heading}</h1><p class=\"question\">{text}</p></section>\n");
        for chart in &section.charts {
            let draw =
                |size| Ratios { rows: &chart.rows, logarithmic: chart.logarithmic, name: &chart.heading }.draw(size);
            body += &figure(&escape(&chart.heading), &escape(&chart.caption), "", draw);
            body.push('\n');
        }
    }
    document(&format!("{}: {}", page.title, page.kicker), &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Estimate;

    #[test]
    fn odd_numbers_and_names_make_a_whole_page() {
        let row = |name: &str, value| RatioRow { name: name.into(), value, note: None, strong: false };
        let estimate = |mean: f64| Some(Estimate { mean, low: mean * 0.9, high: mean * 1.2 });
        let rows = vec![
            row("<script>", estimate(18.6)),
            row("nothing", None),
            row("zero", estimate(0.0)),
            row("odd", estimate(f64::NAN)),
            row("endless", estimate(f64::INFINITY)),
            RatioRow { name: "refused".into(), value: None, note: Some("there is & was no MPS".into()), strong: true },
        ];
        for logarithmic in [false, true] {
            for rows in [rows.clone(), vec![], vec![row("zero", estimate(0.0))]] {
                let chart = RatioChart { heading: "p99".into(), caption: "Lower.".into(), logarithmic, rows };
                let page = render(&RatioPage {
                    kicker: "weft bench".into(),
                    title: "Sharing".into(),
                    question: "How?".into(),
                    summary: vec![],
                    sections: vec![RatioSection { heading: "a".into(), text: "b".into(), charts: vec![chart] }],
                });
                for banned in ["NaN", "inf", "http://", "https://", "<script"] {
                    assert!(!page.contains(banned), "{banned} in the page");
                }
                for element in ["figure", "section", "svg", "g", "text", "title"] {
                    let opened =
                        page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
                    assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element} opened and closed");
                }
            }
        }
    }
}
