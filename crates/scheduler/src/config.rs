//! How the scheduler is set up.

use config::ModelSpec;
use policy::{Network, Span};
use rpc::Term;
use std::path::PathBuf;

/// How the scheduler is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The policy of every pool.
    pub policy: String,
    /// What lies between a decision and its effect.
    pub network: Network,
    /// Where journals are kept, if anywhere.
    pub journal: Option<PathBuf>,
    /// Only say how models would be scaled.
    pub dry_run: bool,
    /// What to serve from the start.
    pub models: Vec<ModelSpec>,
    /// What the ids of this scheduler's workers begin with: another one at every start where nodes outlive it.
    pub epoch: u32,
    /// Since when it leads, where others may take its place.
    pub term: Term,
    /// How long nodes that bring workers along are waited for before others are started.
    pub settle: Span,
}

impl Default for Config {
    fn default() -> Config {
        let network =
            Network { response: Span::from_micros(500), jitter: Span::from_micros(500), ..Network::default() };
        let (policy, journal, dry_run, models) = ("weft".into(), None, false, Vec::new());
        Config { policy, network, journal, dry_run, models, epoch: 0, term: Term::default(), settle: Span::ZERO }
    }
}
