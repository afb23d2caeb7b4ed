//! From the bytes of a piece to the one token that it is.
//!
//! Looking pieces up waits for memory more than for anything else, so a slot holds a short piece and its token in 16
//! bytes, and all short pieces take the same steps: look-ups one after the other overlap.

use rustc_hash::FxHashMap;

use super::pack::{packed, packed_within};
use super::NONE;

/// Pieces of up to this many bytes are short.
const SHORT: usize = 12;

/// A short piece and its token in 16 bytes.
#[derive(Clone, Copy, Default)]
#[repr(align(16))]
struct Slot {
    /// The first 8 bytes of the piece.
    first: u64,
    /// The other 4, its length in 4 bits, and its token and 1. 0 in a free slot, as no piece is empty.
    rest: u64,
}
const LENGTH_AT: u32 = 8 * (SHORT as u32 - 8);
const TOKEN_AT: u32 = LENGTH_AT + 4;

/// A short piece as slots have it.
#[derive(Clone, Copy)]
struct Key {
    first: u64,
    rest: u64,
}

impl Key {
    /// `packed`: the bytes of the piece.
    #[inline(always)]
    fn new(packed: u128, length: usize) -> Self {
        Self { first: packed as u64, rest: (packed >> 64) as u64 | (length as u64) << LENGTH_AT }
    }
}

impl Slot {
    fn new(key: Key, id: u32) -> Self {
        Self { first: key.first, rest: key.rest | u64::from(id.wrapping_add(1)) << TOKEN_AT }
    }

    #[inline(always)]
    fn holds(self, key: Key) -> bool {
        (self.first ^ key.first) | (self.rest ^ key.rest) << (64 - TOKEN_AT) == 0
    }

    /// Its token, or `NONE`.
    #[inline(always)]
    fn token(self) -> u32 {
        ((self.rest >> TOKEN_AT) as u32).wrapping_sub(1)
    }
}

/// Ids from here on are refused: tables by id would be too large, and they would not fit a slot.
pub const ID_LIMIT: u32 = 1 << 24;

/// The tokens by their texts. Read-only once the model is loaded.
pub struct Table {
    /// Open addressing, at most two fifths full: mostly the first place holds the piece, or nothing.
    slots: Vec<Slot>,
    shift: u32,
    long: FxHashMap<Box<[u8]>, u32>,
    longest: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table::new(std::iter::empty())
    }
}

impl Table {
    /// A table for pieces of these lengths.
    pub fn new(lengths: impl Iterator<Item = usize>) -> Table {
        let short = lengths.filter(|&length| length <= SHORT).count();
        let size = (short.max(8) * 5 / 2).next_power_of_two();
        Table {
            slots: vec![Slot::default(); size],
            shift: 64 - size.trailing_zeros(),
            long: FxHashMap::default(),
            longest: 0,
        }
    }

    /// Sets the id, less than `ID_LIMIT` or `NONE`, of a piece that is not empty, and gives the id it had, or `NONE`.
    pub fn insert(&mut self, piece: &[u8], id: u32) -> u32 {
        self.longest = self.longest.max(piece.len());
        if piece.len() > SHORT {
            return self.long.insert(piece.into(), id).unwrap_or(NONE);
        }
        let key = Key::new(packed(piece), piece.len());
        let (at, slot) = self.find(key);
        self.slots[at] = Slot::new(key, id);
        slot.token()
    }

    /// The id of a piece, or `NONE`.
    #[inline]
    pub fn get(&self, piece: &[u8]) -> u32 {
        if piece.len() > SHORT {
            return self.get_long(piece);
        }
        self.find(Key::new(packed(piece), piece.len())).1.token()
    }

    /// The id of the piece `text[start..end]`, or `NONE`.
    #[inline(always)]
    pub fn get_in(&self, text: &[u8], start: usize, end: usize) -> u32 {
        let length = end - start;
        match text.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
            Some(window) if length <= SHORT => self.find(Key::new(packed_within(*window, length), length)).1.token(),
            _ => self.get(&text[start..end]),
        }
    }

    /// Where a key is looked for first.
    #[inline(always)]
    fn place(&self, key: Key) -> usize {
        let (first, rest) = (0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93);
        (key.first.wrapping_mul(first).wrapping_add(key.rest.wrapping_mul(rest)) >> self.shift) as usize
    }

    /// The place and content of the slot that holds the key, or of the free one where it would go.
    #[inline(always)]
    fn find(&self, key: Key) -> (usize, Slot) {
        let mut at = self.place(key);
        loop {
            let slot = self.slots[at];
            if slot.holds(key) || slot.rest == 0 {
                return (at, slot);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[inline(never)]
    fn get_long(&self, piece: &[u8]) -> u32 {
        if piece.len() > self.longest {
            return NONE;
        }
        self.long.get(piece).copied().unwrap_or(NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_found_and_no_other() {
        let pieces: Vec<String> = (0..3000).map(|n| "x".repeat(n % 40) + &n.to_string()).collect();
        let mut table = Table::new(pieces.iter().map(String::len));
        for (id, piece) in (0..).zip(&pieces) {
            assert_eq!(table.insert(piece.as_bytes(), id), NONE);
        }
        for (id, piece) in (0..).zip(&pieces) {
            assert_eq!(table.get(piece.as_bytes()), id);
            let text = format!("-{piece}and what follows it");
            assert_eq!(table.get_in(text.as_bytes(), 1, 1 + piece.len()), id);
            assert_eq!(table.get_in(piece.as_bytes(), 0, piece.len()), id);
            assert_eq!(table.get(format!("{piece}y").as_bytes()), NONE);
            assert_eq!(table.get(format!("{piece}\0").as_bytes()), NONE);
        }
        assert_eq!(table.get(b""), NONE);
        assert_eq!(table.insert(b"0", ID_LIMIT - 1), 0);
        assert_eq!(table.get(b"0"), ID_LIMIT - 1);
        assert_eq!(table.insert(b"0", NONE), ID_LIMIT - 1);
        assert_eq!(table.get(b"0"), NONE);
    }
}
