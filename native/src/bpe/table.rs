//! From the bytes of a piece to the one token that it is.
//!
//! Looking pieces up waits for memory more than for anything else, so a slot holds a short piece and its token in 16
//! bytes, and all short pieces take the same steps: look-ups one after the other overlap.

use rustc_hash::FxHashMap;

use super::pack::{packed, packed_within};
use super::NONE;

/// Pieces of up to this many bytes are short.
pub const SHORT: usize = 12;

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

/// Bytes that are read of a text for a short piece.
const WINDOW: usize = 16;

/// What makes a key of 16 bytes that begin with a short piece.
struct Mask {
    first: u64,
    rest: u64,
    length: u64,
}

/// By length.
static MASKS: [Mask; SHORT + 1] = {
    let mut masks = [const { Mask { first: 0, rest: 0, length: 0 } }; SHORT + 1];
    let mut length = 0;
    while length <= SHORT {
        let bytes = (1u128 << (8 * length)) - 1;
        masks[length] = Mask { first: bytes as u64, rest: (bytes >> 64) as u64, length: (length as u64) << LENGTH_AT };
        length += 1;
    }
    masks
};

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

    /// Appends the tokens of pieces, up to one that is no token, or too long or too close to the end of the text to be
    /// looked at so. The pieces of `text` end at `ends`, in order, and the first one begins at `start`. Gives how many there
    /// were, and whether the next one is known to be no token.
    #[inline(never)] // In its caller the loop has too few registers.
    #[allow(unsafe_code)] // Checks of what is certain are a third of the instructions here, where most of all are spent.
    pub fn append_run(&self, text: &[u8], start: usize, ends: &[u16], out: &mut Vec<u32>) -> (usize, bool) {
        // What follows on a short piece is read with it, up to `WINDOW` bytes.
        let Some(safe) = text.len().checked_sub(WINDOW) else { return (0, false) };
        let first = out.len();
        out.reserve(ends.len());
        let tokens = &mut out.spare_capacity_mut()[..ends.len()];
        let mut at = start;
        let mut count = 0;
        let mut is_apart = false;
        for (&end, place) in ends.iter().zip(tokens) {
            let end = usize::from(end);
            let Some(mask) = MASKS.get(end.wrapping_sub(at)).filter(|_| at <= safe) else { break };
            // SAFETY: there are `WINDOW` bytes from `at` on, as it is not above `safe`.
            let [low, high] = unsafe { text.as_ptr().add(at).cast::<[u64; 2]>().read_unaligned() };
            let key = Key { first: u64::from_le(low) & mask.first, rest: u64::from_le(high) & mask.rest | mask.length };
            // SAFETY: a place has fewer bits than the number of slots, which is a power of two.
            let slot = unsafe { self.slots.get_unchecked(self.place(key)) };
            let slot = if slot.holds(key) { slot } else { &self.slots[self.find(key).0] };
            is_apart = slot.token() == NONE;
            if is_apart {
                break;
            }
            place.write(slot.token());
            at = end;
            count += 1;
        }
        // SAFETY: so many were written.
        unsafe { out.set_len(first + count) };
        (count, is_apart)
    }

    /// Where a key is looked for first.
    #[inline(always)]
    fn place(&self, key: Key) -> usize {
        // A multiplication carries what differs upwards only.
        ((key.first ^ key.rest.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
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

    #[test]
    fn runs_end_at_the_first_piece_that_is_no_short_token() {
        let known = ["a", "bc", " the", "twelve bytes", "thirteen byte"];
        let mut table = Table::new(known.iter().map(|piece| piece.len()));
        (0..).zip(known).for_each(|(id, piece)| _ = table.insert(piece.as_bytes(), id));
        let run = |pieces: &[&str], behind: &str, start: usize| {
            let text = ["-".repeat(start), pieces.concat(), behind.into()].concat();
            let mut end = start;
            let ends: Vec<u16> = pieces.iter().map(|piece| (end += piece.len(), end as u16).1).collect();
            let mut ids = vec![99];
            let found = table.append_run(text.as_bytes(), start, &ends, &mut ids);
            assert_eq!(ids.len(), 1 + found.0);
            (ids.split_off(1), found.1)
        };
        let enough = "something behind it";
        assert_eq!(run(&["a", " the", "twelve bytes", "bc"], enough, 3), (vec![0, 2, 3, 1], false));
        assert_eq!(run(&["a", "x", "a"], enough, 0), (vec![0], true));
        assert_eq!(run(&["bc", "thirteen byte", "a"], enough, 1), (vec![1], false));
        assert_eq!(run(&["a", "bc", "bc"], "0123456789abc", 0), (vec![0, 1], false)); // the last one has no 16 bytes
        assert_eq!(run(&["a"], "", 2), (vec![], false));
        // Ends that are out of order, or behind the text, read nothing that is not there.
        let text = b"abcabcabcabcabcabc";
        assert_eq!(table.append_run(text, 0, &[1, 3, 2], &mut Vec::new()), (2, false));
        assert_eq!(table.append_run(text, 900, &[901, 3], &mut Vec::new()), (0, false));
    }
}
