//! From two neighbouring tokens to the merge of them.
//!
//! Merging waits for memory more than for anything else, so a slot is four bytes: the rank of a merge and some bits of
//! its hash. The pairs themselves lie in the order of their ranks, where those that are needed most come first.

use super::NONE;

/// A merge as one number: its rank above, the token it makes below, so that the smaller number merges first.
pub type Merge = u64;

/// No merge; larger than any.
pub const NO_MERGE: Merge = u64::MAX;

/// Ranks end here, so that a rank and a place in a short piece fit a number of 32 bits.
pub const RANK_LIMIT: usize = 1 << 25;

/// A slot that is free.
const FREE: u32 = u32::MAX;

/// The token that a merge makes.
#[inline]
pub fn product(merge: Merge) -> u32 {
    merge as u32
}

#[inline]
pub fn rank(merge: Merge) -> u32 {
    (merge >> 32) as u32
}

/// A merge with its pair.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub left: u32,
    pub right: u32,
    pub product: u32,
}

/// In place of a rule that another one with the same pair replaced.
const VOID: Rule = Rule { left: NONE, right: NONE, product: NONE };

/// The merges of a model, by pair.
pub struct Merges {
    rules: Vec<Rule>,
    /// Open addressing, at most two thirds full.
    slots: Vec<u32>,
    shift: u32,
    rank_bits: u32,
    /// A bit for each hash that some pair has: nearly all pairs that are asked for never merge.
    filter: Vec<u64>,
    filter_shift: u32,
    of_bytes: Vec<Merge>,
}

#[inline]
fn hash(left: u32, right: u32) -> u64 {
    let mixed = (u64::from(left) << 32 | u64::from(right)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

impl Merges {
    /// For ranks below `count`, which is at most `RANK_LIMIT`.
    pub fn new(count: usize) -> Merges {
        let size = (count.max(64) * 3 / 2).next_power_of_two();
        let bits = (count.max(64) * 8).next_power_of_two();
        Merges {
            rules: vec![VOID; count],
            slots: vec![FREE; size],
            shift: 64 - size.trailing_zeros(),
            rank_bits: 32 - (count as u32).leading_zeros(),
            filter: vec![0; bits / 64],
            filter_shift: 64 - bits.trailing_zeros(),
            of_bytes: Vec::new(),
        }
    }

    /// Sets the merge of a pair; the last one set counts.
    pub fn insert(&mut self, left: u32, right: u32, rank: u32, product: u32) {
        let hash = hash(left, right);
        let bit = hash >> self.filter_shift;
        self.filter[(bit >> 6) as usize] |= 1 << (bit & 63);
        let at = self.find(left, right, hash);
        if self.slots[at] != FREE {
            let replaced = self.rank(self.slots[at]);
            self.rules[replaced as usize] = VOID;
        }
        self.rules[rank as usize] = Rule { left, right, product };
        self.slots[at] = self.tag(hash) | rank;
    }

    /// The merges with their ranks, in that order.
    pub fn rules(&self) -> impl Iterator<Item = (u32, Rule)> + '_ {
        (0..).zip(self.rules.iter().copied()).filter(|(_, rule)| rule.product != NONE)
    }

    /// The merge of two neighbours, or `NO_MERGE`.
    #[inline]
    pub fn get(&self, left: u32, right: u32) -> Merge {
        let hash = hash(left, right);
        let bit = hash >> self.filter_shift;
        if self.filter[(bit >> 6) as usize] >> (bit & 63) & 1 == 0 {
            return NO_MERGE;
        }
        match self.slots[self.find(left, right, hash)] {
            FREE => NO_MERGE,
            slot => u64::from(self.rank(slot)) << 32 | u64::from(self.rules[self.rank(slot) as usize].product),
        }
    }

    /// The slot that holds the pair, or the free one where it would go.
    #[inline]
    fn find(&self, left: u32, right: u32, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == FREE {
                return at;
            }
            if slot ^ self.rank(slot) == self.tag(hash) {
                let rule = self.rules[self.rank(slot) as usize];
                if rule.left == left && rule.right == right {
                    return at;
                }
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn rank(&self, slot: u32) -> u32 {
        slot & ((1 << self.rank_bits) - 1)
    }

    /// Low bits of a hash, in the place that ranks leave free.
    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        (hash as u32) << self.rank_bits
    }

    /// Keeps the merges of single bytes in a table of their own. `ids`: the token of each byte.
    pub fn index_bytes(&mut self, ids: &[u32; 256]) {
        let pairs = ids.iter().flat_map(|&left| ids.iter().map(move |&right| (left, right)));
        self.of_bytes = pairs.map(|(left, right)| self.get(left, right)).collect();
    }

    /// The merge of two bytes, after `index_bytes`.
    #[inline]
    pub fn get_of_bytes(&self, left: u8, right: u8) -> Merge {
        self.of_bytes[usize::from(left) << 8 | usize::from(right)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_and_the_last_one_counts() {
        let mut merges = Merges::new(9001);
        for n in 0..9000 {
            merges.insert(n, n * 7 % 31, n, n + 5);
        }
        merges.insert(0, 0, 9000, 1);
        assert_eq!(merges.get(0, 0), 9000 << 32 | 1);
        for n in 1..9000 {
            assert_eq!(merges.get(n, n * 7 % 31), u64::from(n) << 32 | u64::from(n + 5));
            assert_eq!(merges.get(n, 31), NO_MERGE);
        }
        assert_eq!(merges.rules().map(|(rank, _)| rank).collect::<Vec<_>>(), (1..9001).collect::<Vec<_>>());
        assert_eq!((rank(merges.get(7, 18)), product(merges.get(7, 18))), (7, 12));
    }

    #[test]
    fn pairs_with_the_same_slot_and_bits_are_told_apart() {
        let mut merges = Merges::new(64);
        let place = |right: u32| (hash(3, right) >> merges.shift, merges.tag(hash(3, right)));
        let mut seen = std::collections::HashMap::new();
        let same = (0..).find_map(|right| seen.insert(place(right), right).map(|other| (other, right)));
        let (other, right) = same.expect("two pairs");
        merges.insert(3, other, 7, 70);
        assert_eq!(merges.get(3, right), NO_MERGE);
        merges.insert(3, right, 8, 80);
        assert_eq!([merges.get(3, other), merges.get(3, right)].map(product), [70, 80]);
    }

    #[test]
    fn bytes_have_the_merges_of_their_tokens() {
        let ids: [u32; 256] = std::array::from_fn(|byte| 255 - byte as u32);
        let mut merges = Merges::new(1);
        merges.insert(0, 1, 0, 300);
        merges.index_bytes(&ids);
        assert_eq!(merges.get_of_bytes(255, 254), 300);
        assert_eq!(merges.get_of_bytes(0, 1), NO_MERGE);
    }
}
