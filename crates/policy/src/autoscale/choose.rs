//! Which sizes to add for a gap in throughput: as many of the most efficient as it holds, then the smallest that covers
//! the rest (FaST-GShare, ICPP 2023, heuristic scaling by throughput per resource).

use super::Size;
use std::cmp::Reverse;

/// Indices of sizes that together do `gap` requests a second, half stretched, `most` at most.
pub(super) fn choose(sizes: &[Size], mut gap: f64, most: usize) -> Vec<usize> {
    let mut chosen = Vec::new();
    let efficient = |(_, left): &(usize, &Size), (_, right): &(usize, &Size)| {
        left.efficiency().total_cmp(&right.efficiency()).then(right.request.cmp(&left.request))
    };
    let Some((best, size)) = sizes.iter().enumerate().max_by(|left, right| efficient(left, right)) else {
        return chosen;
    };
    while gap >= size.planned() && chosen.len() < most {
        chosen.push(best);
        gap -= size.planned();
    }
    if gap > 0.0 && chosen.len() < most {
        let covers = sizes.iter().enumerate().filter(|(_, size)| size.planned() >= gap);
        let least = covers.min_by_key(|(_, size)| (size.request, Reverse(size.limit))).map_or(best, |(index, _)| index);
        chosen.push(least);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::Share;

    #[test]
    fn the_most_efficient_and_then_the_smallest_that_covers_the_rest() {
        let size = |percent, throughput| Size::fixed(Share::from_percent(percent).unwrap(), throughput);
        let sizes = [size(10.0, 54.0), size(20.0, 209.0), size(30.0, 400.0), size(60.0, 560.0)];
        let check = |gap, expected: &[usize]| {
            assert_eq!(choose(&sizes, gap, 9), expected, "{gap}");
        };
        check(50.0, &[0]);
        check(100.0, &[1]);
        check(300.0, &[2]);
        check(900.0, &[2, 2, 1]);
        check(800.0, &[2, 2]);
        check(0.0, &[]);
        assert_eq!(choose(&sizes, 900.0, 2), [2, 2]);
        assert_eq!(choose(&[], 900.0, 2), []);
    }
}
