//! What pages show.

/// All that the page of a sweep over offered rates shows.
#[derive(Clone, Debug)]
pub struct SweepPage {
    /// The command that writes the page.
    pub command: &'static str,
    /// Name of the scenario.
    pub title: String,
    /// What was simulated, as pairs of a name and a value.
    pub summary: Vec<(String, String)>,
    /// By policy. The first is the one the page is about.
    pub policies: Vec<PolicyData>,
    /// No policy could have a higher goodput, in requests a second.
    pub bound: f64,
    /// The fraction of bad requests that goodput allows.
    pub limit: f64,
}

/// What one policy did.
#[derive(Clone, Debug)]
pub struct PolicyData {
    /// Its name.
    pub name: String,
    /// Highest rate at which the bad fraction over all requests is within the limit.
    pub goodput_average: Estimate,
    /// Highest rate at which the bad fraction of every model is within the limit.
    pub goodput_worst: Estimate,
    /// Behaviour by offered rate, in rising order of rate.
    pub points: Vec<Point>,
}

/// A number and its spread over seeds.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// Mean over seeds.
    pub mean: f64,
    /// Lowest.
    pub low: f64,
    /// Highest.
    pub high: f64,
}

/// A policy at one offered rate.
#[derive(Clone, Debug)]
pub struct Point {
    /// Offered requests a second.
    pub rate: f64,
    /// Fraction of requests that were late, refused or lost.
    pub bad_average: f64,
    /// The same for the model that fared worst.
    pub bad_worst: f64,
    /// Requests per batch.
    pub mean_batch: f64,
    /// Fraction of the time each GPU was busy, by id.
    pub gpu_busy: Vec<f64>,
}

/// One row of a chart of ratios.
#[derive(Clone, Debug)]
pub struct RatioRow {
    /// What was measured.
    pub name: String,
    /// The ratio.
    pub value: Option<Estimate>,
    /// Why there is no value, or not all of it.
    pub note: Option<String>,
    /// Whether it is what the page is about.
    pub strong: bool,
}
