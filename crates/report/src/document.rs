//! What every page is made of: the document around its parts, the summary at its top, and figures.

use crate::chart::Size;
use crate::numbers::escape;
use std::fmt::Write;

/// A whole document with this title, which is escaped, and body, which is not.
pub(crate) fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        include_str!("style.css")
    )
}

/// Pairs of a name and a value.
pub(crate) fn summary(pairs: &[(String, String)], label: &str) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut out = format!("<dl class=\"summary\" aria-label=\"{label}\">");
    for (name, value) in pairs {
        // A value that is too long for a column of the grid gets a row of its own.
        let class = if value.chars().count() > 30 { " class=\"long\"" } else { "" };
        let _ = write!(out, "<div{class}><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    out.push_str("</dl>");
    out
}

/// A heading, a sentence, a key and a chart. The chart is drawn twice, for wide windows and paper and for narrow
/// windows, and the style sheet shows one: text in a drawing scaled down to a phone could not be read.
pub(crate) fn figure(heading: &str, caption: &str, key: &str, draw: impl Fn(Size) -> String) -> String {
    let (wide, narrow) = (draw(Size::Wide), draw(Size::Narrow));
    format!(
        "<figure><figcaption><h2>{heading}</h2><p>{caption}</p></figcaption>\n{key}\n\
         <div class=\"wide\">{wide}</div>\n<div class=\"narrow\">{narrow}</div></figure>"
    )
}
