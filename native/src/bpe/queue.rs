//! Merging long pieces: candidates wait in a bucket for each merge, the buckets in a heap by rank.
//!
//! Long pieces repeat themselves, so there are few buckets. In a bucket the places come from left to right by
//! themselves: the two sides of a merge are made by the same merges in the same order wherever they stand, and of two
//! places where the same merge is next the left one is served first, so that the right one never overtakes it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::merges::{product, Merge, Merges, NO_MERGE};
use super::NONE;

/// The places where one merge can be done, and how many of them were taken.
#[derive(Default)]
struct Bucket {
    places: Vec<u32>,
    taken: usize,
}

impl Bucket {
    fn push(&mut self, place: u32) {
        debug_assert!(self.places.last().is_none_or(|&last| last <= place), "places come from left to right");
        self.places.push(place);
    }

    fn pop(&mut self) -> Option<u32> {
        let place = self.places.get(self.taken).copied();
        self.taken += 1;
        place
    }

    fn clear(&mut self) {
        self.places.clear();
        self.taken = 0;
    }
}

/// Candidates of all merges, and the neighbours of each symbol.
#[derive(Default)]
pub struct Queue {
    order: BinaryHeap<Reverse<Merge>>,
    bucket_of: FxHashMap<Merge, usize>,
    buckets: Vec<Bucket>,
    free: Vec<usize>,
    before: Vec<u32>,
    after: Vec<u32>,
}

impl Queue {
    /// Merges until no pair merges. At most 2^32 - 1 tokens.
    pub fn merge(&mut self, merges: &Merges, tokens: &mut Vec<u32>) {
        let count = tokens.len() as u32;
        self.before.clear();
        self.before.extend((0..count).map(|at| at.wrapping_sub(1)));
        self.after.clear();
        self.after.extend(1..=count);
        for at in 1..tokens.len() {
            self.push(merges.get(tokens[at - 1], tokens[at]), at as u32 - 1);
        }
        while let Some(&Reverse(merge)) = self.order.peek() {
            let bucket = self.bucket_of[&merge];
            match self.buckets[bucket].pop() {
                Some(place) => self.apply(merges, tokens, merge, place as usize),
                None => self.retire(merge, bucket),
            }
        }
        tokens.retain(|&token| token != NONE);
    }

    /// Does one merge, unless one of its sides has gone into another since it was found.
    fn apply(&mut self, merges: &Merges, tokens: &mut [u32], merge: Merge, place: usize) {
        let right = self.after[place] as usize;
        if tokens[place] == NONE || right >= tokens.len() || merges.get(tokens[place], tokens[right]) != merge {
            return;
        }
        tokens[place] = product(merge);
        tokens[right] = NONE;
        let after = self.after[right];
        self.after[place] = after;
        if let Some(&next) = tokens.get(after as usize) {
            self.before[after as usize] = place as u32;
            self.push(merges.get(tokens[place], next), place as u32);
        }
        let before = self.before[place];
        if let Some(&last) = tokens.get(before as usize) {
            self.push(merges.get(last, tokens[place]), before);
        }
    }

    fn push(&mut self, merge: Merge, place: u32) {
        if merge == NO_MERGE {
            return;
        }
        let Queue { order, bucket_of, buckets, free, .. } = self;
        let bucket = *bucket_of.entry(merge).or_insert_with(|| {
            order.push(Reverse(merge));
            free.pop().unwrap_or_else(|| {
                buckets.push(Bucket::default());
                buckets.len() - 1
            })
        });
        buckets[bucket].push(place);
    }

    /// Ends the smallest merge, whose bucket is empty.
    fn retire(&mut self, merge: Merge, bucket: usize) {
        self.order.pop();
        self.bucket_of.remove(&merge);
        self.buckets[bucket].clear();
        self.free.push(bucket);
    }
}
