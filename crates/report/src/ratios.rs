//! A page of ratios: sections of charts, with one row for each way to do a thing.

use crate::chart::ratios::Ratios;
use crate::data::RatioRow;
use crate::document::{document, figure, summary};
use crate::numbers::escape;

/// All that the page shows.
#[derive(Clone, Debug)]
pub struct RatioPage {
    /// The command.
    pub kicker: String,
    /// The heading.
    pub title: String,
    /// What the page answers.
    pub question: String,
    /// What was measured, as pairs of a name and a value.
    pub summary: Vec<(String, String)>,
    /// In the order in which they are shown.
    pub sections: Vec<RatioSection>,
}

/// Charts that belong together.
#[derive(Clone, Debug)]
pub struct RatioSection {
    /// The heading.
    pub heading: String,
    /// A sentence below it.
    pub text: String,
    /// In the order in which they are shown.
    pub charts: Vec<RatioChart>,
}

/// One chart.
#[derive(Clone, Debug)]
pub struct RatioChart {
    /// The heading.
    pub heading: String,
    /// A sentence below it.
    pub caption: String,
    /// Whether the axis is logarithmic.
    pub logarithmic: bool,
    /// From top to bottom.
    pub rows: Vec<RatioRow>,
}

/// The page, as a whole HTML document.
pub fn render(page: &RatioPage) -> String {
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
    use crate::data::Estimate;

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
