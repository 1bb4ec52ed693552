//! Which models there are, for all that is known: the list that a scheduler gave, and what of it is bridged while the
//! next scheduler finds out who has workers.

use crate::flights::Session;
use crate::statistics::Statistics;
use rpc::{Catalog, Entry, State};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The models there are, each with its counters.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) catalog: Arc<Catalog>,
    /// The session in which the scheduler said so: in another one, models have other numbers.
    pub(crate) session: Option<Session>,
    /// Of each entry, in order.
    pub(crate) statistics: Vec<Arc<Statistics>>,
    /// Models that could be asked under the last scheduler, and whose workers this one, which has just begun, may be
    /// about to hear of. Their requests wait here.
    pub(crate) expected: BTreeSet<u32>,
}

impl Shelf {
    /// The counters of one of the entries.
    pub(crate) fn statistics_of(&self, entry: &Entry) -> Option<&Arc<Statistics>> {
        let place = self.catalog.entries.iter().position(|other| std::ptr::eq(other, entry))?;
        self.statistics.get(place)
    }
}

/// Keeps what is known of models from the last scheduler while the next one finds out who has workers: which of them
/// must still wait.
pub(crate) fn bridge(before: &Catalog, now: &mut Catalog) -> BTreeSet<u32> {
    let mut expected = BTreeSet::new();
    for entry in now.entries.iter_mut().filter(|entry| !entry.is_ready()) {
        let was_ready = |other: &&Entry| other.spec == entry.spec && other.is_ready();
        let Some(known) = before.versions(&entry.spec.name).iter().find(was_ready) else { continue };
        match entry.state {
            State::Loading => {
                (entry.state, entry.info) = (State::Ready, known.info.clone());
                entry.health = known.health.clone();
                expected.insert(entry.model);
            }
            State::Ready => entry.health.trouble = None,
            State::Unavailable(_) => {}
        }
    }
    expected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::entry;

    fn catalog(entries: Vec<Entry>, settling: bool) -> Catalog {
        Catalog { entries, known: true, settling }
    }

    #[test]
    fn models_that_were_ready_stay_so_under_another_number_until_their_workers_are_heard_of() {
        let before = catalog(vec![entry(1, "broken", 1), entry(2, "changed", 1), entry(3, "kept", 1)], false);
        let mut now = vec![entry(11, "broken", 1), entry(12, "changed", 2), entry(13, "kept", 1), entry(14, "new", 1)];
        now.iter_mut().for_each(|entry| entry.state = State::Loading);
        now[0].state = State::Unavailable("its file is gone".into());
        let mut now = catalog(now, true);
        assert_eq!(bridge(&before, &mut now), BTreeSet::from([13]));
        let ready: Vec<_> = now.entries.iter().map(Entry::is_ready).collect();
        assert_eq!(ready, [false, false, true, false]);
        // The list comes again with every change.
        let mut again = now.clone();
        again.entries[2].state = State::Loading;
        assert_eq!(bridge(&now, &mut again), BTreeSet::from([13]));
        // And its workers came.
        let mut came = now.clone();
        assert_eq!(bridge(&now, &mut came), BTreeSet::new());
    }
}
