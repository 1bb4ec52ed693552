//! A set of small numbers that finds its lowest member fast: two levels of words.

/// Numbers from zero up to the largest ever inserted.
#[derive(Clone, Debug, Default)]
pub struct BitSet {
    words: Vec<u64>,
    /// Bit `i` is set where word `i` is not zero.
    summary: Vec<u64>,
    len: usize,
}

impl BitSet {
    /// How many members there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `member` is in the set.
    pub fn contains(&self, member: usize) -> bool {
        self.words.get(member / 64).is_some_and(|word| word >> (member % 64) & 1 == 1)
    }

    /// Adds or removes a member; whether that changed anything.
    pub fn set(&mut self, member: usize, present: bool) -> bool {
        if self.contains(member) == present {
            return false;
        }
        let (word, top) = (member / 64, member / 4096);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
            self.summary.resize(top + 1, 0);
        }
        self.words[word] ^= 1 << (member % 64);
        let bit = 1 << (word % 64);
        if present {
            self.summary[top] |= bit;
            self.len += 1;
        } else {
            if self.words[word] == 0 {
                self.summary[top] &= !bit;
            }
            self.len -= 1;
        }
        true
    }

    /// How many members are below `limit`.
    pub fn count_below(&self, limit: usize) -> usize {
        let whole = self.words.iter().take(limit / 64).map(|word| word.count_ones()).sum::<u32>();
        let part = self.words.get(limit / 64).map_or(0, |word| (word & ((1 << (limit % 64)) - 1)).count_ones());
        (whole + part) as usize
    }

    /// The lowest member.
    pub fn first(&self) -> Option<usize> {
        let top = self.summary.iter().position(|word| *word != 0)?;
        let word = top * 64 + self.summary[top].trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// All members, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(changes in prop::collection::vec((0..10_000usize, any::<bool>()), 1..100)) {
            let mut set = BitSet::default();
            let mut plain = BTreeSet::new();
            for (member, present) in changes {
                let changed = if present { plain.insert(member) } else { plain.remove(&member) };
                prop_assert_eq!(set.set(member, present), changed);
                prop_assert_eq!(set.first(), plain.first().copied());
                prop_assert_eq!(set.len(), plain.len());
                prop_assert_eq!(set.count_below(member), plain.range(..member).count());
            }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), plain.into_iter().collect::<Vec<_>>());
        }
    }
}
