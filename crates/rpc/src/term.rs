//! When a scheduler began to lead, as a number that rises from leader to leader.

/// The time in which one scheduler leads. A later leader has a later term.
///
/// It is the wall clock in nanoseconds at the moment when the scheduler began to lead, or one more than the term of its
/// predecessor where the clock went back. So the terms of a cluster whose state folder was lost go on rising.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl Term {
    /// The term after `last`, if the clock says that it is `clock_ns`.
    pub fn after(last: Term, clock_ns: u64) -> Term {
        Term(clock_ns.max(last.0.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_rise_whatever_the_clock_does() {
        assert_eq!(Term::after(Term(5), 100), Term(100));
        assert_eq!(Term::after(Term(100), 7), Term(101));
    }
}
