//! Measurements towards a choice: what is lacking is measured, and what others make doubtful is measured again.

use anyhow::Result;
use harness::Misuse;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use policy::Span;
use policy::search::Probe;
use policy::search::known::Known;
use policy::surface::{Point, Surface};
use std::collections::BTreeMap;
use std::io::IsTerminal;

/// How often one measurement is made again because others make it doubtful.
const AGAIN_MAX: usize = 3;
/// About how many measurements a search takes, for the eye. More are made where they are needed.
const ABOUT: u64 = 12;

/// What was seen at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    pub(super) latency: Span,
    pub(super) throughput: f64,
}

/// Something that can be measured.
pub(super) trait Meter {
    /// Measures a point. `None`: it cannot be run there.
    fn measure(&mut self, probe: Probe) -> Result<Option<Figures>>;
}

/// A search under way.
pub(super) struct Campaign<'a> {
    pub(super) known: Known,
    /// Measurements that were made, those that were made again included.
    pub(super) measured: usize,
    /// How often those were made again that were.
    again: BTreeMap<Probe, usize>,
    meter: &'a mut dyn Meter,
    bar: ProgressBar,
}

impl<'a> Campaign<'a> {
    /// One that knows these points already.
    pub(super) fn new(known: &[Point], meter: &'a mut dyn Meter) -> Campaign<'a> {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(ABOUT), target);
        let style = ProgressStyle::with_template("{bar:24} {pos} of about {len} measurements, {elapsed}  {msg}");
        bar.set_style(style.expect("the template is well formed"));
        Campaign { known: Known::new(known), measured: 0, again: BTreeMap::new(), meter, bar }
    }

    /// Measures until `search` has all it asks for.
    pub(super) fn drive<T>(&mut self, search: impl Fn(&Known) -> Result<T, Probe>) -> Result<T> {
        loop {
            match search(&self.known) {
                Ok(found) => return Ok(found),
                Err(probe) => self.look(probe)?,
            }
        }
    }

    fn look(&mut self, probe: Probe) -> Result<()> {
        self.measure(probe)?;
        while let Some(doubtful) = self.known.doubtful().into_iter().find(|probe| self.again(*probe) < AGAIN_MAX) {
            *self.again.entry(doubtful).or_default() += 1;
            self.measure(doubtful)?;
        }
        // What is left may be noise, which surfaces allow for.
        let contradiction = Surface::new(&self.known.points()).err().filter(|_| !self.known.points().is_empty());
        match contradiction {
            Some(wrong) => Err(Misuse(format!("believe what was measured: {wrong}")).into()),
            None => Ok(()),
        }
    }

    fn again(&self, probe: Probe) -> usize {
        self.again.get(&probe).copied().unwrap_or(0)
    }

    fn measure(&mut self, probe: Probe) -> Result<()> {
        let Probe { batch, share } = probe;
        self.bar.set_message(format!("batch {batch} at {share}"));
        match self.meter.measure(probe)? {
            Some(Figures { latency, throughput }) => {
                self.known.learn(Point { batch, share, latency, throughput });
            }
            None => self.known.cannot_run(probe),
        }
        self.measured += 1;
        self.bar.set_length(ABOUT.max(self.measured as u64 + 1));
        self.bar.set_position(self.measured as u64);
        Ok(())
    }
}

impl Drop for Campaign<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The one in the middle. `None` of none.
pub(super) fn median<T: Copy + PartialOrd>(values: &[T]) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|left, right| left.partial_cmp(right).unwrap_or(std::cmp::Ordering::Equal));
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::search::Space;
    use policy::search::known::inference;

    /// Takes a time for each batch and share, and is disturbed at some measurements.
    struct Table {
        disturbed: Vec<usize>,
        made: Vec<Probe>,
    }

    impl Meter for Table {
        fn measure(&mut self, probe: Probe) -> Result<Option<Figures>> {
            let disturbed = self.disturbed.contains(&self.made.len());
            self.made.push(probe);
            let millis = (probe.batch as f64 * 100.0 / probe.share.percent()).max(2.0);
            let millis = if disturbed { millis * 5.0 } else { millis };
            let throughput = probe.batch as f64 / millis * 1e3;
            Ok(Some(Figures { latency: Span::from_millis_f64(millis), throughput }))
        }
    }

    fn check(disturbed: &[usize]) -> Result<(usize, String, Vec<Probe>)> {
        let mut table = Table { disturbed: disturbed.to_vec(), made: Vec::new() };
        let space = Space::doubling(4);
        let mut campaign = Campaign::new(&[], &mut table);
        let found = campaign.drive(|known| inference(known, &space, Span::from_millis(20)))?.expect("20 ms are enough");
        drop(campaign);
        Ok((found.point.batch, found.point.share.to_string(), table.made))
    }

    #[test]
    fn a_measurement_that_was_disturbed_is_made_again() {
        let (batch, share, made) = check(&[]).unwrap();
        for disturbed in 1..made.len() {
            let (same_batch, same_share, _) = check(&[disturbed]).unwrap();
            // One that is believed may cost a step, but is no reason to fail.
            assert!(same_batch <= batch && !same_share.is_empty(), "{same_batch} {batch} {share}");
        }
    }

    #[test]
    fn a_machine_that_is_always_disturbed_is_not_believed() {
        // From the second measurement of a batch on, a larger share is slower and stays so.
        struct Worse;
        impl Meter for Worse {
            fn measure(&mut self, probe: Probe) -> Result<Option<Figures>> {
                let millis = 10.0 + probe.share.percent();
                Ok(Some(Figures { latency: Span::from_millis_f64(millis), throughput: 1e3 / millis }))
            }
        }
        let mut worse = Worse;
        let space = Space::doubling(1);
        let mut campaign = Campaign::new(&[], &mut worse);
        let failed = campaign.drive(|known| inference(known, &space, Span::from_millis(5))).unwrap_err().to_string();
        assert!(failed.starts_with("believe what was measured: batch 1 takes"), "{failed}");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median::<u64>(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    }
}
