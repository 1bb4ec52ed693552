//! What a counter did over the last while: a ring of what it read, tick by tick.

use crate::{Span, Time};
use std::collections::VecDeque;

/// Readings of one counter, a window's worth and one older.
#[derive(Clone, Debug)]
pub(super) struct Window {
    readings: VecDeque<(Time, Span)>,
}

impl Window {
    /// A counter that is first seen now.
    pub(super) fn new(now: Time, value: Span) -> Window {
        Window { readings: VecDeque::from([(now, value)]) }
    }

    /// A reading. Times do not go back.
    pub(super) fn read(&mut self, now: Time, value: Span, window: Span) {
        match self.readings.back_mut() {
            Some(last) if last.0 == now => last.1 = value,
            _ => self.readings.push_back((now, value)),
        }
        // One reading at or before the start of the window stays: it is the value there.
        while self.readings.get(1).is_some_and(|(at, _)| *at + window <= now) {
            self.readings.pop_front();
        }
    }

    /// The last reading.
    pub(super) fn last(&self) -> (Time, Span) {
        *self.readings.back().expect("there is always a reading")
    }

    /// The latest reading that is at least this old, or the first there is.
    pub(super) fn before(&self, age: Span) -> (Time, Span) {
        let (now, _) = self.last();
        let old = self.readings.iter().rev().find(|(at, _)| *at + age <= now);
        *old.unwrap_or_else(|| self.readings.front().expect("there is always a reading"))
    }

    /// How fast it grew over the last `age`, in thousandths; `None` before it was read twice.
    pub(super) fn rate(&self, age: Span) -> Option<u32> {
        let (now, value) = self.last();
        let (then, before) = self.before(age);
        let passed = (now - then).nanos();
        (passed > 0).then(|| ((value - before).scale(1_000, passed).nanos()).min(1_000_000) as u32)
    }
}
