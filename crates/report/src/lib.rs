//! What commands print and the pages they write: numbers as text, aligned columns, and HTML reports with charts.
//!
//! Pure: data in, text out. Running a simulation or a benchmark and writing the file belong to the caller.
//!
//! Invariants of every page: one HTML file without scripts and without links to other files, so that it can be mailed,
//! archived and opened offline; text that came from a user is escaped; the same data gives the same bytes; a number that
//! is not finite is shown as a dash, never as `NaN`.
//!
//! Suggested reading order is the order of the modules below.

#![forbid(unsafe_code)]

pub mod numbers;
pub mod columns;
mod data;
mod document;
pub mod sweep;
mod finding;
mod table;
pub mod ratios;
mod chart;

pub use data::{Estimate, Point, PolicyData, RatioRow, SweepPage};
