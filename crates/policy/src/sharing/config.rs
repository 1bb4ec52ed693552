//! Everything about sharing that could be another number, each with its unit and its reason. What is not here is derived
//! from it. A file can set them by their names: `[sharing]` in `weft.toml`.
//!
//! What each is worth is shown by `cargo run --release --example sharing_sweep`, which runs families of programs with the
//! parameter at half and at twice of what it is (docs/benchmarks/sharing-sweep.md).

use super::WHOLE;
use crate::Span;
use share_core::Patience;

/// The parameters. `SharingConfig::default()` is what programs get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingConfig {
    /// How often the controller ticks when nothing happens. Below a millisecond it costs a percent of a core; above ten,
    /// whoever comes back waits for it.
    pub tick: Span,
    /// Shares are kept over this long: short enough that nobody notices turns, long enough for several kernels.
    pub window: Span,
    /// Nobody waits longer than this for what it used: one wrong reading stops nobody for good.
    pub debt_most: Span,
    /// What nobody who wants it is denied, in thousandths of the GPU: a program that waits for ever ticks like one that hangs.
    pub share_least: u32,
    /// What tenants can use in all is never thought to be less, in thousandths: switching after every millisecond loses a
    /// fifth of an H200.
    pub capacity_least: u32,
    /// How much later than alone the slowest in a hundred requests may be answered, in thousandths of what it takes alone.
    pub tail_slack: u32,
    /// The same for programs that never pause, whose requests are not answered later but fewer: of the time they take.
    pub rate_slack: u32,
    /// So many thousandths of requests may be later than that: what a 99th percentile means.
    pub late: u32,
    /// How often chance may decide wrongly whether it is half of that or nearly twice, in thousandths: between the two is
    /// where nobody is sure for long.
    pub error: u32,
    /// A latency program without work for this long leaves the GPU to others until it is back.
    pub idle_after: Span,
    /// The part of the time in which best-effort work is held to see what the others take without it, in thousandths.
    pub isolation: u32,
    /// Throttle levels; 0 holds best-effort work.
    pub levels: usize,
    /// A level that was bad is not tried again for this long, doubled each time it is again.
    pub retry_first: Span,
    /// And for this long at most.
    pub retry_most: Span,
    /// What was launched before a level was left is in the way for this long.
    pub settle: Span,
    /// The shortest time slice of best-effort work; shorter ones are all switching.
    pub slice_least: Span,
    /// The longest: what the driver itself gives.
    pub slice_most: Span,
    /// The least part of the SMs for best-effort work, in thousandths: with less, its kernels take so long that nothing is won.
    pub space_least: u32,
    /// As much best-effort work as may be in flight where nothing but the launch gate holds it.
    pub budget_most: Span,
}

impl Default for SharingConfig {
    fn default() -> SharingConfig {
        SharingConfig {
            tick: Span::from_millis(2),
            window: Span::from_millis(100),
            debt_most: Span::from_secs(10),
            share_least: 10,
            capacity_least: 600,
            tail_slack: 100,
            rate_slack: 30,
            late: 10,
            error: 50,
            idle_after: Span::from_secs(1),
            isolation: 20,
            levels: 8,
            retry_first: Span::from_secs(5),
            retry_most: Span::from_secs(320),
            settle: Span::from_millis(60),
            slice_least: Span::from_micros(150),
            slice_most: Span::from_millis(2),
            space_least: 250,
            budget_most: Span::from_micros(200),
        }
    }
}

/// What nobody is denied comes to no more than a quarter of the GPU for all tenants together, in thousandths: it is there to
/// keep programs alive, not to divide the GPU.
pub(super) const SHARE_LEAST_MAX: u32 = WHOLE / 4;

/// By how much an M/D/1 queue at half load gets less likely to be one longer: the solution of `(e^x - 1) / 2 = x`.
const QUEUE_DECAY: f64 = 1.256_431_208_626_17;
/// The same for how many requests its busy period has: `1/2 e^(1/2)` for each, as a logarithm.
const PERIOD_DECAY: f64 = 0.193_147_180_559_945;

/// A parameter as files, journals and sweeps know it.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The field of [`SharingConfig`].
    pub name: &'static str,
    /// The least and the most that it can be, in nanoseconds, thousandths or as a count.
    pub range: (u64, u64),
    is_time: bool,
    get: fn(&SharingConfig) -> u64,
    set: fn(&mut SharingConfig, u64),
}

macro_rules! parameters {
    (times { $($time:ident: $time_least:expr, $time_most:expr;)* } numbers { $($number:ident: $least:expr, $most:expr;)* }) => {
        [
            $(Parameter {
                name: stringify!($time),
                range: ($time_least.nanos(), $time_most.nanos()),
                is_time: true,
                get: |config| config.$time.nanos(),
                set: |config, value| config.$time = Span::from_nanos(value),
            },)*
            $(Parameter {
                name: stringify!($number),
                range: ($least, $most),
                is_time: false,
                get: |config| config.$number as u64,
                set: |config, value| config.$number = value as _,
            },)*
        ]
    };
}

impl SharingConfig {
    /// All of them, and between what they make sense.
    pub const PARAMETERS: [Parameter; 19] = parameters! {
        times {
            tick: Span::from_micros(100), Span::from_millis(50);
            window: Span::from_millis(5), Span::from_secs(10);
            debt_most: Span::from_millis(1), Span::from_secs(600);
            idle_after: Span::from_millis(1), Span::from_secs(600);
            retry_first: Span::from_millis(10), Span::from_secs(600);
            retry_most: Span::from_millis(10), Span::from_secs(86_400);
            settle: Span::ZERO, Span::from_secs(10);
            slice_least: Span::from_micros(10), Span::from_millis(100);
            slice_most: Span::from_micros(10), Span::from_millis(100);
            budget_most: Span::from_micros(1), Span::from_secs(1);
        }
        numbers {
            share_least: 0, SHARE_LEAST_MAX as u64;
            capacity_least: 1, 1_000;
            tail_slack: 0, 10_000;
            rate_slack: 0, 10_000;
            late: 1, 500;
            error: 1, 400;
            isolation: 1, 1_000;
            levels: 3, 64;
            space_least: 1, 1_000;
        }
    };

    /// Sets a parameter by its name, as a file has it. Or why not: one sentence for people.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(parameter) = SharingConfig::PARAMETERS.iter().find(|parameter| parameter.name == name) else {
            let names: Vec<&str> = SharingConfig::PARAMETERS.iter().map(|parameter| parameter.name).collect();
            return Err(format!("`{name}` is not a parameter of sharing, which are {}", names.join(", ")));
        };
        let number = parameter.read(value).map_err(|why| format!("`{name}` cannot be `{value}`: {why}"))?;
        (parameter.set)(self, number);
        Ok(())
    }

    /// Whether they fit each other, once all are set.
    pub fn check(&self) -> Result<(), String> {
        if self.slice_least > self.slice_most {
            return Err("`slice_least` is more than `slice_most`".into());
        }
        if self.retry_first > self.retry_most {
            return Err("`retry_first` is more than `retry_most`".into());
        }
        if self.tick > self.window {
            return Err("`tick` is more than `window`".into());
        }
        Ok(())
    }
}

impl Parameter {
    /// What it is.
    pub fn get(&self, config: &SharingConfig) -> u64 {
        (self.get)(config)
    }

    /// The same as [`SharingConfig::set`] reads it.
    pub fn text(&self, config: &SharingConfig) -> String {
        self.show((self.get)(config))
    }

    /// Sets it to so much, or to the next that makes sense.
    pub fn set(&self, config: &mut SharingConfig, value: u64) {
        (self.set)(config, value.clamp(self.range.0, self.range.1));
    }

    fn show(&self, number: u64) -> String {
        if self.is_time { Span::from_nanos(number).to_string() } else { number.to_string() }
    }

    fn read(&self, text: &str) -> Result<u64, String> {
        let number = if self.is_time {
            text.parse().map(Span::nanos).map_err(|error: crate::SpanSyntax| error.to_string())?
        } else {
            text.parse().map_err(|_| "expected a whole number".to_owned())?
        };
        let (least, most) = self.range;
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        Err(format!("it is between {} and {}", self.show(least), self.show(most)))
    }
}

/// The lowest throttle level: best-effort work is held, but for a moment now and then.
pub(super) const HELD: usize = 0;
/// The one above: best-effort work is off the GPU during busy periods of latency programs, or fills gaps where it cannot be
/// taken off.
pub(super) const GAPS: usize = 1;

impl SharingConfig {
    /// Best-effort work in flight that keeps the GPU from being out of work until the next look, and no more.
    pub(super) fn feed(&self) -> Span {
        self.tick.scale(2, 1)
    }

    /// Best-effort work in flight while no latency program works: it lasts until a daemon that does not tick counts as late.
    pub(super) fn free_budget(&self) -> Span {
        self.tick + Span::from_nanos(Patience::USUAL.late_ns)
    }

    /// The part of requests that may be late.
    pub(super) fn allowed(&self) -> f64 {
        f64::from(self.late.clamp(1, 500)) / 1_000.0
    }

    /// The part of requests that may be late for what best-effort work is always given: a fifth of all that may.
    fn allowed_always(&self) -> f64 {
        self.allowed() / 5.0
    }

    /// Whether a chance is `fine`, and whether it is `bad`, before what is late by itself is added.
    pub(super) fn chances(&self) -> (f64, f64) {
        (self.allowed() / 2.0, self.allowed() * 1.8)
    }

    /// The score at which the sequential test ends: as often wrong one way as the other.
    pub(super) fn bound(&self) -> f64 {
        let error = f64::from(self.error.clamp(1, 400)) / 1_000.0;
        ((1.0 - error) / error).ln()
    }

    /// So many busy periods that are surely late decide the test.
    pub(super) fn decisive(&self) -> u64 {
        let (fine, bad) = self.chances();
        (self.bound() / (bad / fine).ln()).ceil() as u64
    }

    /// How many others the slowest requests wait for when they come at random at half load, the slowest being as many as may
    /// be late. Above half load the same is assumed, which is less slack than there is.
    pub(super) fn queue_at_half(&self) -> u64 {
        ((0.5 / self.allowed()).ln().max(0.0) / QUEUE_DECAY) as u64
    }

    /// A busy period with so many bursts counts as one that never ends: at half load, fewer are as long than may always be
    /// late.
    pub(super) fn endless(&self) -> u32 {
        (-self.allowed_always().ln() / PERIOD_DECAY) as u32
    }

    /// Means are over about so many bursts: twice those of the longest busy period, which so cannot move them alone.
    pub(super) fn mean_over(&self) -> u64 {
        2 * u64::from(self.endless()).max(1)
    }

    /// Means of intervals are over about so many, so that an odd one moves them by no more than the slack.
    pub(super) fn intervals(&self) -> u64 {
        u64::from(WHOLE / self.tail_slack.clamp(1, WHOLE))
    }

    /// A part of a time that is no more than the slack.
    pub(super) fn slack_of(&self, time: Span) -> Span {
        time.scale(self.tail_slack.into(), WHOLE.into())
    }

    /// Where a level is between the one above [`GAPS`] and the highest: from 0 to 1.
    fn height(&self, level: usize) -> f64 {
        let steps = self.levels.saturating_sub(GAPS + 2).max(1);
        (level.saturating_sub(GAPS + 1) as f64 / steps as f64).min(1.0)
    }

    /// The time slice of best-effort work on a level: the least up to where it is beside others, and from there to the longest
    /// in equal proportions.
    pub(super) fn slice(&self, level: usize) -> Span {
        let (least, most) = (self.slice_least.nanos().max(1) as f64, self.slice_most.nanos().max(1) as f64);
        let micros = least * (most / least).powf(self.height(level)) / 1_000.0;
        Span::from_micros(micros.round() as u64)
    }

    /// The part of the SMs of best-effort work on a level, in thousandths: the least up to where it is beside others, and
    /// from there to all in equal steps.
    pub(super) fn sm_cap(&self, level: usize) -> u32 {
        let least = self.space_least.min(WHOLE);
        least + (f64::from(WHOLE - least) * self.height(level)).round() as u32
    }

    /// Best-effort work in flight on a level where nothing but the launch gate holds it, in equal steps.
    pub(super) fn budget(&self, level: usize) -> Span {
        self.budget_most.scale(level.max(GAPS) as u64, self.levels.saturating_sub(1).max(1) as u64)
    }

    /// The time slice of a latency program that shares with best-effort work alone: most of its busy periods are over within
    /// one, and the GPU does not change hands in them.
    pub(super) fn latency_slice(&self) -> Span {
        self.slice_most.scale(8, 1)
    }

    /// How long before somebody is expected best-effort work has to be told to leave the GPU: as long as it took to
    /// leave, and as long to change hands as a slice is worth. Until that was seen, three times as long.
    pub(super) fn lead(&self, preempts_within: Span) -> Span {
        let preempts_within =
            if preempts_within == Span::ZERO { self.slice_least.scale(3, 1) } else { preempts_within };
        preempts_within + self.slice_least
    }

    /// For how long held work is let go now and then, so that it does not look as if it hung.
    pub(super) fn moment(&self) -> Span {
        self.tick.scale(10, 1)
    }

    /// How far apart such moments begin: they take a fifth of the part of requests that may be late anyway.
    pub(super) fn moment_every(&self) -> Span {
        Span::from_nanos((self.moment().nanos() as f64 / self.allowed_always()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_what_makes_no_sense_is_one_sentence() {
        let (config, mut read) = (SharingConfig::default(), SharingConfig::default());
        for parameter in SharingConfig::PARAMETERS {
            let (least, most) = parameter.range;
            assert!((least..=most).contains(&parameter.get(&config)), "{}", parameter.name);
            for value in [least, most] {
                parameter.set(&mut read, value);
                assert_eq!(parameter.get(&read), value, "{}", parameter.name);
                let mut again = SharingConfig::default();
                again.set(parameter.name, &parameter.text(&read)).unwrap();
                assert_eq!(parameter.get(&again), value, "{}", parameter.name);
            }
            read.set(parameter.name, &parameter.text(&config)).unwrap();
            for wrong in ["", "-1", "much", "99999999999999999999", "1e400s"] {
                let error = read.set(parameter.name, wrong).unwrap_err();
                assert!(error.contains(parameter.name) && error.lines().count() == 1, "{error}");
            }
        }
        assert_eq!(read, config);
        assert!(read.set("slcie_least", "1ms").unwrap_err().contains("slice_least"));
        read.set("slice_least", "3ms").unwrap();
        assert_eq!(read.check(), Err("`slice_least` is more than `slice_most`".to_owned()));
        assert_eq!(config.check(), Ok(()));
    }
}
