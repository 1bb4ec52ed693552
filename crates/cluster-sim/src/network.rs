//! Connections: messages arrive in the order in which they were sent on one of them, each after a delay of its own, and
//! are lost with the connection. Between connections there is no order.

use crate::message::Message;
use crate::plan::{Random, Who, between};
use policy::{Span, Time};

/// One end of a connection: a start of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) who: Who,
    pub(crate) life: u64,
}

/// A connection by its number.
pub(crate) type Line = usize;

pub(crate) struct Connection {
    /// Who opened it, and who was there.
    pub(crate) ends: [End; 2],
    pub(crate) open: bool,
    /// When the last message to each end arrives.
    last: [Time; 2],
    stalled: Time,
    /// Messages on their way to each end.
    pub(crate) under_way: [usize; 2],
}

#[derive(Default)]
pub(crate) struct Network {
    pub(crate) lines: Vec<Connection>,
}

impl Network {
    pub(crate) fn connect(&mut self, now: Time, from: End, to: End) -> Line {
        self.lines.push(Connection { ends: [from, to], open: true, last: [now; 2], stalled: now, under_way: [0; 2] });
        self.lines.len() - 1
    }

    /// The end of a connection that a part is at: 0 or 1.
    pub(crate) fn side(&self, line: Line, who: Who) -> usize {
        usize::from(self.lines[line].ends[0].who != who)
    }

    /// When a message to this end arrives; never where the connection is broken.
    pub(crate) fn arrival(&mut self, now: Time, line: Line, to: usize, random: &mut Random) -> Option<Time> {
        let connection = &mut self.lines[line];
        if !connection.open {
            return None;
        }
        // Mostly a local network, sometimes a bad moment.
        let delay = match rand::RngExt::random_range(random, 0..20) {
            0 => between(random, Span::from_millis(1), Span::from_millis(40)),
            _ => between(random, Span::from_micros(20), Span::from_micros(500)),
        };
        let at = (now + delay).max(connection.last[to] + Span::from_nanos(1)).max(connection.stalled);
        connection.last[to] = at;
        connection.under_way[to] += 1;
        Some(at)
    }

    pub(crate) fn stall(&mut self, line: Line, until: Time) {
        self.lines[line].stalled = self.lines[line].stalled.max(until);
    }

    /// Open connections of a start of a part.
    pub(crate) fn of(&self, end: End) -> Vec<Line> {
        let its = |connection: &Connection| connection.open && connection.ends.contains(&end);
        (0..self.lines.len()).filter(|line| its(&self.lines[*line])).collect()
    }
}

/// A message that is on its way.
pub(crate) struct Letter {
    pub(crate) line: Line,
    pub(crate) to: usize,
    pub(crate) message: Message,
}
