//! From the bytes of a piece to the one token that it is.
//!
//! Three tables by length. Most pieces are short, and the table of the short ones is small enough to stay in the
//! processor's cache.

use rustc_hash::FxHashMap;

use super::NONE;

/// The lengths of pieces that are looked up by one comparison, of 8 bytes and of 16.
pub const SHORT: usize = 7;
pub const MIDDLE: usize = 15;

/// A piece of at most `SHORT` bytes: its bytes, and its length in the last of eight.
#[inline]
pub fn short_key(piece: &[u8]) -> u64 {
    let length = piece.len();
    let text = if length >= 4 {
        u64::from(four(piece, 0)) | u64::from(four(piece, length - 4)) << (8 * (length - 4))
    } else if length > 0 {
        let byte = |at: usize| u64::from(piece[at]) << (8 * at);
        byte(0) | byte(length / 2) | byte(length - 1)
    } else {
        0
    };
    text | (length as u64) << 56
}

/// The key of the first `length` bytes of a window, at most `SHORT`, without a branch on the length.
#[inline]
pub fn short_key_within(window: [u8; 8], length: usize) -> u64 {
    u64::from_le_bytes(window) & !(u64::MAX << (8 * length)) | (length as u64) << 56
}

/// A piece of `SHORT + 1` to `MIDDLE` bytes: its bytes, and its length in the last of sixteen.
#[inline]
pub fn middle_key(piece: &[u8]) -> u128 {
    let length = piece.len();
    let text = u128::from(eight(piece, 0)) | u128::from(eight(piece, length - 8)) << (8 * (length - 8));
    text | (length as u128) << 120
}

#[inline]
fn four(piece: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(piece[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn eight(piece: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(piece[at..at + 8].try_into().expect("eight bytes"))
}

/// A fixed-size key; 0 is none, as the length in a real one is not 0.
pub trait Key: Copy + PartialEq + Default {
    /// A hash whose high bits are good.
    fn hash(self) -> u64;
}

const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

impl Key for u64 {
    #[inline]
    fn hash(self) -> u64 {
        self.wrapping_mul(MIX)
    }
}

impl Key for u128 {
    #[inline]
    fn hash(self) -> u64 {
        let (low, high) = (self as u64, (self >> 64) as u64);
        let mixed = low.wrapping_mul(MIX) ^ high.rotate_left(23);
        (mixed ^ (mixed >> 32)).wrapping_mul(MIX)
    }
}

/// Open addressing, at most two thirds full.
struct Pinned<K> {
    slots: Vec<Slot<K>>,
    shift: u32,
}

#[derive(Clone, Copy, Default)]
struct Slot<K> {
    key: K,
    id: u32,
}

impl<K: Key> Pinned<K> {
    fn new(entries: usize) -> Pinned<K> {
        let size = (entries.max(8) * 3 / 2).next_power_of_two();
        let slots = vec![Slot { key: K::default(), id: NONE }; size];
        Pinned { slots, shift: 64 - size.trailing_zeros() }
    }

    #[inline]
    fn get(&self, key: K) -> u32 {
        self.slots[self.find(key)].id
    }

    fn insert(&mut self, key: K, id: u32) -> u32 {
        let at = self.find(key);
        self.slots[at].key = key;
        std::mem::replace(&mut self.slots[at].id, id)
    }

    /// The slot that holds the key, or the free one where it would go.
    #[inline]
    fn find(&self, key: K) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (key.hash() >> self.shift) as usize & mask;
        while self.slots[at].key != key && self.slots[at].key != K::default() {
            at = (at + 1) & mask;
        }
        at
    }
}

impl<K: Key> Default for Pinned<K> {
    fn default() -> Pinned<K> {
        Pinned::new(0)
    }
}

/// The tokens by their texts. Read-only once the model is loaded.
#[derive(Default)]
pub struct Table {
    short: Pinned<u64>,
    middle: Pinned<u128>,
    long: FxHashMap<Box<[u8]>, u32>,
    longest: usize,
}

impl Table {
    /// A table for pieces of these lengths.
    pub fn new(lengths: impl Iterator<Item = usize>) -> Table {
        let (mut short, mut middle) = (0, 0);
        for length in lengths {
            short += usize::from(length <= SHORT);
            middle += usize::from(length > SHORT && length <= MIDDLE);
        }
        Table { short: Pinned::new(short), middle: Pinned::new(middle), long: FxHashMap::default(), longest: 0 }
    }

    /// Sets the id of a piece that is not empty, and gives the id it had, or `NONE`.
    pub fn insert(&mut self, piece: &[u8], id: u32) -> u32 {
        self.longest = self.longest.max(piece.len());
        if piece.len() <= SHORT {
            self.short.insert(short_key(piece), id)
        } else if piece.len() <= MIDDLE {
            self.middle.insert(middle_key(piece), id)
        } else {
            self.long.insert(piece.into(), id).unwrap_or(NONE)
        }
    }

    /// The id of a piece, or `NONE`.
    #[inline]
    pub fn get(&self, piece: &[u8]) -> u32 {
        if piece.len() <= SHORT {
            self.get_short(short_key(piece))
        } else if piece.len() <= MIDDLE {
            self.middle.get(middle_key(piece))
        } else {
            self.get_long(piece)
        }
    }

    #[inline]
    pub fn get_short(&self, key: u64) -> u32 {
        self.short.get(key)
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
    fn keys_are_the_bytes_and_the_length() {
        let text = b"abcdefghijklmnopqrstuvwxyz";
        for length in 1..=MIDDLE {
            let mut plain = [0; 16];
            plain[..length].copy_from_slice(&text[..length]);
            if length <= SHORT {
                plain[7] = length as u8;
                let key = u64::from_le_bytes(plain[..8].try_into().unwrap());
                assert_eq!(short_key(&text[..length]), key);
                assert_eq!(short_key_within(text[..8].try_into().unwrap(), length), key);
            } else {
                plain[15] = length as u8;
                assert_eq!(middle_key(&text[..length]), u128::from_le_bytes(plain));
            }
        }
        assert_ne!(short_key(b"a"), short_key(b"a\0"));
        assert_ne!(middle_key(b"abcdefgh"), middle_key(b"abcdefgh\0"));
    }

    #[test]
    fn every_piece_is_found_and_no_other() {
        let pieces: Vec<String> = (0..3000).map(|n| "x".repeat(n % 40) + &n.to_string()).collect();
        let mut table = Table::new(pieces.iter().map(String::len));
        for (id, piece) in (0..).zip(&pieces) {
            assert_eq!(table.insert(piece.as_bytes(), id), NONE);
        }
        for (id, piece) in (0..).zip(&pieces) {
            assert_eq!(table.get(piece.as_bytes()), id);
            assert_eq!(table.get(format!("{piece}y").as_bytes()), NONE);
        }
        assert_eq!(table.get(b""), NONE);
        assert_eq!(table.insert(b"0", 77), 0);
        assert_eq!(table.get(b"0"), 77);
    }
}
