//! Merging: the pair of neighbours with the smallest rank, the leftmost of equals, until no pair merges.

use super::merges::{product, rank, Merge, Merges, NO_MERGE};
use super::queue::Queue;

/// Up to this many symbols a scan for the smallest rank is faster than a queue.
const SCANNED: usize = 64;

/// No pair merges here.
const DONE: u32 = u32::MAX;

/// Memory that merging uses again and again.
#[derive(Default)]
pub struct Scratch {
    pub tokens: Vec<u32>,
    scan: Scan,
    queue: Queue,
}

impl Scratch {
    /// Merges `tokens` until no pair merges.
    pub fn merge(&mut self, merges: &Merges) {
        match self.tokens.len() {
            0 | 1 => {}
            2..=SCANNED => {
                self.scan.start(&self.tokens, |at| merges.get(self.tokens[at], self.tokens[at + 1]));
                self.scan.merge(merges, &mut self.tokens);
            }
            _ => self.queue.merge(merges, &mut self.tokens),
        }
    }

    /// The same where `tokens` are those of the bytes of a piece, one for each.
    pub fn merge_bytes(&mut self, merges: &Merges, piece: &[u8]) {
        if !(2..=SCANNED).contains(&piece.len()) {
            return self.merge(merges);
        }
        self.scan.start(&self.tokens, |at| merges.get_of_bytes(piece[at], piece[at + 1]));
        self.scan.merge(merges, &mut self.tokens);
    }
}

/// Symbols by place. A merge keeps the place of its left side; places do not move.
struct Scan {
    tokens: [u32; SCANNED],
    /// The rank of the pair that starts at a place, and the place below it: the smallest is the next merge.
    order: [u32; SCANNED],
    products: [u32; SCANNED],
    before: [u8; SCANNED],
    after: [u8; SCANNED],
}

impl Default for Scan {
    fn default() -> Scan {
        Scan {
            tokens: [0; SCANNED],
            order: [DONE; SCANNED],
            products: [0; SCANNED],
            before: [0; SCANNED],
            after: [0; SCANNED],
        }
    }
}

impl Scan {
    fn merge(&mut self, merges: &Merges, tokens: &mut Vec<u32>) {
        let count = tokens.len();
        loop {
            let next = self.order[..count - 1].iter().fold(DONE, |least, &next| least.min(next));
            if next == DONE {
                break;
            }
            self.apply(merges, next as usize % SCANNED, count);
        }
        tokens.clear();
        let mut at = 0;
        while at < count {
            tokens.push(self.tokens[at]);
            at = usize::from(self.after[at % SCANNED]);
        }
    }

    fn start(&mut self, tokens: &[u32], merge: impl Fn(usize) -> Merge) {
        let count = tokens.len();
        self.tokens[..count].copy_from_slice(tokens);
        for at in 0..count {
            self.before[at] = (at as u8).wrapping_sub(1);
            self.after[at] = at as u8 + 1;
        }
        for at in 0..count - 1 {
            self.set(at, merge(at));
        }
    }

    fn set(&mut self, at: usize, merge: Merge) {
        self.order[at] = if merge == NO_MERGE { DONE } else { rank(merge) * SCANNED as u32 + at as u32 };
        self.products[at] = product(merge);
    }

    fn apply(&mut self, merges: &Merges, at: usize, count: usize) {
        let right = usize::from(self.after[at]) % SCANNED;
        let after = usize::from(self.after[right]);
        self.tokens[at] = self.products[at];
        self.after[at] = after as u8;
        self.order[right] = DONE;
        if after < count {
            self.before[after] = at as u8;
            self.set(at, merges.get(self.tokens[at], self.tokens[after]));
        } else {
            self.order[at] = DONE;
        }
        if at > 0 {
            let before = usize::from(self.before[at]) % SCANNED;
            self.set(before, merges.get(self.tokens[before], self.tokens[at]));
        }
    }
}
