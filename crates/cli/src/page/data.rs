//! What pages show.

/// All that the page shows.
#[derive(Clone, Debug)]
pub(crate) struct PageData {
    /// Name of the scenario.
    pub(crate) title: String,
    /// What was simulated, as pairs of a name and a value.
    pub(crate) summary: Vec<(String, String)>,
    /// By policy. The first is the one the page is about.
    pub(crate) policies: Vec<PolicyData>,
    /// No policy could have a higher goodput, in requests a second.
    pub(crate) bound: f64,
    /// The fraction of bad requests that goodput allows.
    pub(crate) limit: f64,
}

/// What one policy did.
#[derive(Clone, Debug)]
pub(crate) struct PolicyData {
    /// Its name.
    pub(crate) name: String,
    /// Highest rate at which the bad fraction over all requests is within the limit.
    pub(crate) goodput_average: Estimate,
    /// Highest rate at which the bad fraction of every model is within the limit.
    pub(crate) goodput_worst: Estimate,
    /// Behaviour by offered rate, in rising order of rate.
    pub(crate) points: Vec<Point>,
}

/// A number and its spread over seeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    /// Mean over seeds.
    pub(crate) mean: f64,
    /// Lowest.
    pub(crate) low: f64,
    /// Highest.
    pub(crate) high: f64,
}

/// A policy at one offered rate.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// Offered requests a second.
    pub(crate) rate: f64,
    /// Fraction of requests that were late, refused or lost.
    pub(crate) bad_average: f64,
    /// The same for the model that fared worst.
    pub(crate) bad_worst: f64,
    /// Requests per batch.
    pub(crate) mean_batch: f64,
    /// Fraction of the time each GPU was busy, by id.
    pub(crate) gpu_busy: Vec<f64>,
}

/// One row of a chart of ratios.
#[derive(Clone, Debug)]
pub(crate) struct RatioRow {
    pub(crate) name: String,
    pub(crate) value: Option<Estimate>,
    /// Why there is no value, or not all of it.
    pub(crate) note: Option<String>,
    /// Whether it is what the page is about.
    pub(crate) strong: bool,
}
