//! Which setting serves best, tried out: all of them see the same requests in the shadow, and the refusals are compared.
//!
//! A trial runs while requests are refused, and while another setting than the first is in use. It is told of arrivals
//! and of nothing else. Each arrival costs a bounded amount of work: shadows are set up piece by piece, do a bounded
//! number of things per arrival, and rest when they were told of more requests than [`Trial::new`]'s parameters allow.
//!
//! What is compared is the number of requests refused lately, and the part that the worst model lost. Of two settings
//! whose refusals differ by less than chance explains, the one in use stays.

use super::prices::Prices;
use super::setting::Setting;
use super::shadow::Shadow;
use crate::{Cluster, Request, Span, Time};

/// A request, in the units of scores.
const ONE: i64 = 1 << 10;

/// How settings are tried and judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    /// How often settings are judged.
    pub(super) period: Span,
    /// Refusals fade by this part each period: 20 periods of 250 ms are five seconds, the memory of rates.
    pub(super) memory: i64,
    /// The worst model's refused part counts for all requests, divided by this.
    pub(super) worst: i64,
    /// A model that lost more than this part, in thousandths, is lost, and more of it counts no further: twice what is
    /// promised.
    pub(super) lost: i64,
    /// How many requests a model must be offered before a refusal of all it lost counts for half: those of which one in
    /// a hundred may fail once.
    pub(super) few: i64,
    /// Requests of ten thousand that must be refused for a trial to begin, unless a model has used up its error budget.
    pub(super) trouble: i64,
    /// Requests a second that shadows are told of in the long run.
    pub(super) told: u64,
    /// How long a stretch lasts at least before shadows rest.
    pub(super) stretch: Span,
    /// Things that a shadow does per arrival at most.
    pub(super) steps: usize,
}

pub(super) const PARAMETERS: Parameters = Parameters {
    period: Span::from_millis(250),
    memory: 20,
    worst: 3,
    lost: 20,
    few: 100,
    trouble: 10,
    told: 20_000,
    stretch: Span::from_secs(2),
    steps: 8,
};

/// What a trial is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing, until then at least.
    Rests(Time),
    /// Copying the cluster into this shadow.
    Copies(usize),
    /// Letting this shadow know what was learned.
    Learns(usize),
    /// Telling shadows of arrivals since then. What happens before `judged` does not count the first time, because
    /// shadows begin with nobody waiting.
    Runs { since: Time, settled: bool },
    /// Letting shadows finish, until then at least.
    Ends(Time),
}

/// Refusals of one setting lately, in [`ONE`], fading: over all models and by model.
#[derive(Debug, Default)]
struct Score {
    all: Tally,
    models: Vec<Tally>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    offered: i64,
    refused: i64,
    /// Counts in the shadow's books when they were last looked at.
    counted: (u64, u64),
}

impl Tally {
    fn fade(&mut self, memory: i64) {
        self.offered -= self.offered / memory;
        self.refused -= self.refused / memory;
    }
}

impl Score {
    /// Reads a shadow's books. What happened since they were last read counts, unless they are only to be read.
    fn read(&mut self, cluster: &Cluster, parameters: &Parameters, counts: bool) {
        self.models.resize(cluster.models.len(), Tally::default());
        if counts {
            self.all.fade(parameters.memory);
        }
        for (tally, counted) in self.models.iter_mut().zip(cluster.offered.iter().zip(&cluster.refused)) {
            let came = (counted.0 - tally.counted.0) as i64 * ONE;
            let went = (counted.1 - tally.counted.1) as i64 * ONE;
            tally.counted = (*counted.0, *counted.1);
            if counts {
                tally.fade(parameters.memory);
                tally.offered += came;
                tally.refused += went;
                self.all.offered += came;
                self.all.refused += went;
            }
        }
    }

    /// What it cost: requests refused, and those that would be if all fared like the worst model, in part.
    fn cost(&self, parameters: &Parameters) -> i64 {
        // In millionths: a hundredth must be told from two.
        let part = |tally: &Tally| tally.refused * 1_000_000 / (tally.offered + parameters.few * ONE);
        let worst = self.models.iter().map(part).max().unwrap_or(0).min(parameters.lost * 1_000);
        self.all.refused + self.all.offered * worst / (1_000_000 * parameters.worst)
    }
}

/// The settings that are tried, and how they do.
pub(super) struct Trial {
    parameters: Parameters,
    settings: Vec<Setting>,
    shadows: Vec<Shadow>,
    scores: Vec<Score>,
    phase: Phase,
    /// When settings are judged next.
    judged: Time,
    /// Requests told of in this stretch.
    told: u64,
    /// The cluster's count of changes when shadows were made.
    changes: u64,
}

impl Trial {
    /// Tries these settings.
    pub(super) fn new(settings: &[Setting], parameters: Parameters) -> Trial {
        Trial {
            parameters,
            settings: settings.to_vec(),
            shadows: Vec::new(),
            scores: Vec::new(),
            phase: Phase::Rests(Time::ZERO),
            judged: Time::ZERO,
            told: 0,
            changes: 0,
        }
    }

    /// The settings that are tried.
    pub(super) fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// GPUs came or went: what was made of them is worth nothing.
    pub(super) fn forget_cluster(&mut self, now: Time) {
        self.shadows.clear();
        if let Phase::Copies(_) | Phase::Learns(_) | Phase::Runs { .. } | Phase::Ends(_) = self.phase {
            self.phase = Phase::Rests(now);
        }
    }

    /// A request comes. Returns the number of the setting to turn to, when that is another than the one in use.
    pub(super) fn on_arrival(
        &mut self,
        live: &Prices,
        used: usize,
        cluster: &Cluster,
        now: Time,
        request: &Request,
    ) -> Option<usize> {
        let parameters = self.parameters;
        if self.changes != cluster.changes {
            self.changes = cluster.changes;
            self.forget_cluster(now);
        }
        let wanted = used != 0 || live.bad() >= parameters.trouble || live.in_debt();
        match self.phase {
            Phase::Rests(until) => {
                if wanted && now >= until {
                    let new = self.settings.iter().map(|setting| Shadow::new(*setting, cluster.network));
                    if self.shadows.is_empty() {
                        self.shadows = new.collect();
                        self.scores.resize_with(self.settings.len(), Score::default);
                        for score in &mut self.scores {
                            score.models.iter_mut().for_each(|tally| tally.counted = (0, 0));
                        }
                    }
                    self.phase = Phase::Copies(0);
                }
                None
            }
            Phase::Copies(index) => {
                if self.shadows[index].copy(now, cluster) {
                    self.phase =
                        if index + 1 < self.shadows.len() { Phase::Copies(index + 1) } else { Phase::Learns(0) };
                }
                None
            }
            Phase::Learns(index) => {
                self.shadows[index].learn(cluster, live);
                let next = index + 1;
                if next < self.shadows.len() {
                    self.phase = Phase::Learns(next);
                } else {
                    let longest = cluster.models.iter().map(|model| model.objective).max().unwrap_or(Span::ZERO);
                    self.judged = now + (longest * 2).max(parameters.period);
                    self.told = 0;
                    self.phase = Phase::Runs { since: now, settled: false };
                }
                None
            }
            Phase::Runs { since, settled } => {
                self.told += 1;
                for shadow in &mut self.shadows {
                    shadow.tell(now, *request);
                    shadow.catch_up(now, parameters.steps);
                }
                if now < self.judged {
                    return None;
                }
                self.judged = now + parameters.period;
                self.read(settled);
                if !settled {
                    self.phase = Phase::Runs { since, settled: true };
                    return None;
                }
                let ran = now - since;
                // For how long shadows may be told of so many.
                let earned = Span::from_secs(1).scale(self.told, parameters.told);
                if !wanted {
                    self.phase = Phase::Ends(now);
                } else if ran >= parameters.stretch && earned > ran {
                    self.phase = Phase::Ends(since + earned);
                }
                self.choose(used)
            }
            Phase::Ends(until) => {
                for shadow in &mut self.shadows {
                    shadow.catch_up(now, parameters.steps);
                }
                if self.shadows.iter().all(Shadow::is_idle) {
                    self.phase = Phase::Rests(until);
                }
                None
            }
        }
    }

    fn read(&mut self, counts: bool) {
        for (score, shadow) in self.scores.iter_mut().zip(&self.shadows) {
            score.read(shadow.cluster(), &self.parameters, counts);
        }
    }

    /// The setting to turn to, if any is clearly better than the one in use.
    fn choose(&self, used: usize) -> Option<usize> {
        let costs: Vec<i64> = self.scores.iter().map(|score| score.cost(&self.parameters)).collect();
        let best = (0..costs.len()).min_by_key(|index| costs[*index])?;
        // Refusals are counts: two of them differ by the root of their sum by chance.
        let chance = ((costs[best] + costs[used]) * ONE).isqrt();
        if costs[best] + chance < costs[used] {
            return Some(best);
        }
        // Once trouble is over the first setting, which leaves GPUs idle, serves again.
        let calm = costs[0] * 10_000 <= self.scores[0].all.offered * self.parameters.trouble;
        (used != 0 && calm).then_some(0)
    }
}
