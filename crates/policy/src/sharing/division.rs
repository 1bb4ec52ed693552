//! Who gets how much of a GPU: requests first, then what is left by importance and, among equals, fairly.
//!
//! 1. Nobody is given more than its limit.
//! 2. Whoever wants something has a hundredth of the GPU, whoever else wants it all: a program that waits for ever ticks
//!    like one that hangs.
//! 3. Whoever wants its request has it, as long as the requests of the more important leave room.
//! 4. A tenant whose load asks for more than its request gets that next, up to its boost.
//! 5. What nobody guaranteed goes to whoever wants it, the most important first, in equal parts among equals.
//! 6. What nobody wants is everybody's headroom, up to the limit: a tenant that starts to want more is not held back
//!    until the next division.
//!
//! Best-effort tenants give way launch by launch, so theirs is all that the others did not *use*. The others give way
//! to each other only through this division, so theirs is what the others do not *want*.

use super::config::SHARE_LEAST_MAX;
use super::{Class, WHOLE};

/// What a tenant may have, and what it could use. All in thousandths of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its class.
    pub class: Class,
    /// Class and priority; less is more important.
    pub rank: u32,
    /// Guaranteed.
    pub request: u32,
    /// What its load asks for at present, after everybody's guarantees; no more than its request means nothing.
    pub boost: u32,
    /// Never exceeded.
    pub limit: u32,
    /// The part of the time in which it had work or waited to launch some.
    pub demand: u32,
    /// What it used.
    pub used: u32,
}

impl Claim {
    fn wants(&self) -> u32 {
        self.demand.min(self.limit)
    }
}

/// The most that each tenant may use, in the order of the claims, when `capacity` can be used in all and nobody is denied
/// `least`.
pub fn divide(capacity: u32, least: u32, claims: &[Claim]) -> Vec<u32> {
    let hungry = claims.iter().filter(|claim| claim.wants() > 0).count().max(1) as u32;
    let least = least.min(SHARE_LEAST_MAX / hungry);
    let mut given: Vec<u32> = claims.iter().map(|claim| claim.wants().min(least)).collect();
    let gives_way = |index: usize| claims[index].class == Class::BestEffort;
    let firm_least: u32 = (0..claims.len()).filter(|index| !gives_way(*index)).map(|index| given[index]).sum();
    let mut left = capacity.saturating_sub(firm_least);
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by_key(|index| claims[*index].rank);
    let ranks: Vec<&[usize]> = order.chunk_by(|one, other| claims[*one].rank == claims[*other].rank).collect();
    raise(&mut left, &ranks, claims, &mut given, |claim| claim.request);
    raise(&mut left, &ranks, claims, &mut given, |claim| claim.boost);
    let (firm, yielding): (Vec<&[usize]>, Vec<&[usize]>) = ranks.iter().partition(|equals| !gives_way(equals[0]));
    fill(&mut left, &firm, claims, &mut given);
    if !yielding.is_empty() {
        let used: u32 = firm.concat().iter().map(|index| claims[*index].used).sum();
        let guaranteed: u32 = yielding.concat().iter().map(|index| given[*index]).sum();
        let mut rest = WHOLE.saturating_sub(used + guaranteed);
        fill(&mut rest, &yielding, claims, &mut given);
    }
    given
}

/// Gives everybody so much, if it wants it, rank after rank. Equals that ask for more than there is get parts of it in
/// proportion.
fn raise(left: &mut u32, ranks: &[&[usize]], claims: &[Claim], given: &mut [u32], to: impl Fn(&Claim) -> u32) {
    for equals in ranks {
        let lacks = |index: usize| to(&claims[index]).min(claims[index].wants()).saturating_sub(given[index]);
        let lacking: Vec<(usize, u32)> = equals.iter().map(|index| (*index, lacks(*index))).collect();
        let asked: u32 = lacking.iter().map(|(_, lacking)| lacking).sum();
        for (index, lacking) in lacking {
            given[index] += if asked <= *left { lacking } else { lacking * *left / asked };
        }
        *left -= asked.min(*left);
    }
}

/// Gives out what is left, rank after rank, and then all of what nobody wanted to everybody.
fn fill(left: &mut u32, ranks: &[&[usize]], claims: &[Claim], given: &mut [u32]) {
    for equals in ranks {
        let mut hungry: Vec<usize> = equals.to_vec();
        // Who wants the least more goes first, so that what it leaves is the others'.
        hungry.sort_by_key(|index| claims[*index].wants().saturating_sub(given[*index]));
        for (place, &index) in hungry.iter().enumerate() {
            let part = *left / (hungry.len() - place) as u32;
            let more = claims[index].wants().saturating_sub(given[index]).min(part);
            given[index] += more;
            *left -= more;
        }
    }
    for &index in ranks.concat().iter() {
        given[index] = (given[index] + *left).min(claims[index].limit).max(given[index]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `class priority request limit demand used`, and its boost, one tenant a line, and what each is given.
    #[track_caller]
    fn check(capacity: u32, claims: &str, expected: &[u32]) {
        let claim = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| words[index].parse().expect("a number");
            let class = match words[0] {
                "latency" => Class::Latency,
                "standard" => Class::Standard,
                _ => Class::BestEffort,
            };
            Claim {
                class,
                rank: class as u32 * 16 + number(1),
                request: number(2),
                boost: words.get(6).map_or(0, |word| word.parse().expect("a number")),
                limit: number(3),
                demand: number(4),
                used: number(5),
            }
        };
        let claims: Vec<Claim> = claims.lines().map(str::trim).filter(|line| !line.is_empty()).map(claim).collect();
        assert_eq!(divide(capacity, 10, &claims), expected);
    }

    #[test]
    fn a_request_is_taken_from_the_neighbour() {
        check(1000, "standard 5 300 300 1000 300\n standard 5 0 1000 1000 700", &[300, 700]);
        check(1000, "standard 5 900 900 1000 500\n standard 5 0 1000 1000 500", &[900, 100]);
        check(970, "standard 5 900 900 1000 870\n standard 5 0 1000 1000 100", &[900, 70]);
    }

    #[test]
    fn what_one_does_not_want_is_the_others() {
        check(1000, "standard 5 900 900 200 200\n standard 5 0 1000 1000 800", &[200, 800]);
        check(1000, "standard 5 900 900 0 0\n standard 5 0 1000 300 300", &[700, 1000]);
    }

    #[test]
    fn equals_share_fairly_and_the_more_important_come_first() {
        let three = "standard 5 0 1000 1000 0\n standard 5 0 1000 1000 0\n standard 5 0 200 1000 0";
        check(1000, three, &[400, 400, 200]);
        check(1000, "standard 2 0 1000 600 0\n standard 3 0 1000 1000 0", &[600, 400]);
        check(1000, "standard 3 600 1000 1000 0\n standard 3 600 1000 1000 0", &[500, 500]);
        check(1000, "standard 3 600 1000 1000 0\n latency 3 600 1000 1000 0", &[400, 600]);
    }

    #[test]
    fn a_boost_is_given_after_every_promise() {
        // Without it, equals have the same.
        check(1000, "latency 5 200 800 1000 0\n latency 5 200 800 1000 0", &[500, 500]);
        check(1000, "latency 5 200 800 1000 0 700\n latency 5 200 800 1000 0", &[750, 250]);
        check(1000, "latency 5 200 800 1000 0 600\n latency 5 200 800 1000 0 300", &[650, 350]);
        // More than there is: in proportion to what each lacks.
        check(1000, "latency 5 200 800 1000 0 800\n latency 5 200 800 1000 0 500", &[600, 400]);
        check(1000, "latency 5 200 800 1000 0 800\n standard 5 600 800 1000 0", &[400, 600]);
        check(1000, "latency 5 200 400 1000 0 800\n latency 5 200 800 300 0 300", &[400, 600]);
        check(1000, "latency 5 300 800 100 100 800\n latency 5 200 800 1000 0", &[200, 800]);
    }

    #[test]
    fn nobody_starves() {
        check(1000, "latency 0 0 1000 1000 900\n standard 5 0 1000 1000 0", &[990, 10]);
        check(1000, "latency 0 1000 1000 1000 990\n standard 5 500 1000 1000 0", &[990, 10]);
        check(1000, "latency 0 0 1000 1000 1000\n best-effort 5 0 1000 1000 0", &[1000, 10]);
        check(1000, "latency 0 0 1000 1000 1000\n best-effort 5 0 5 1000 0", &[1000, 5]);
        let many = "latency 0 1000 1000 1000 0\n".to_owned() + &"standard 5 0 1000 1000 0\n".repeat(49);
        let expected: Vec<u32> = std::iter::once(755).chain(std::iter::repeat_n(5, 49)).collect();
        check(1000, &many, &expected);
    }

    #[test]
    fn best_effort_has_what_is_not_used() {
        check(1000, "latency 0 0 1000 900 400\n best-effort 5 0 1000 1000 600", &[1000, 600]);
        check(1000, "latency 0 500 1000 900 400\n best-effort 5 0 300 1000 600", &[1000, 300]);
    }
}
