//! What was found for pieces that are more than one token. It changes speed and never ids: a value depends on the bytes
//! of its piece alone, and the whole piece is compared.

use super::merge::Scratch;
use super::pack::{hash, packed as packed_bytes, packed_within};

const WAYS: usize = 2;
const LONGEST: usize = 31;
const MOST: usize = 7;

/// A piece and its tokens.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Entry {
    piece: [u128; 2],
    ids: [u32; MOST],
    count: u32,
}

/// The memory of one encoder: bounded, and not shared between threads.
pub struct PieceCache {
    entries: Vec<Entry>,
    pub(super) scratch: Scratch,
}

/// A piece that fits the cache, and its place in it.
#[derive(Clone, Copy)]
pub(super) struct CacheKey {
    piece: [u128; 2],
    set: usize,
}

/// The piece `text[start..end]` of at most `LONGEST` bytes: its bytes, and its length in the last of 32.
#[inline]
fn packed(text: &[u8], start: usize, end: usize) -> [u128; 2] {
    let length = end - start;
    let [first, rest] = match text[start..].first_chunk::<32>() {
        Some(window) => {
            let (first, rest) = window.split_at(16);
            let half = |bytes: &[u8], length| packed_within(bytes.try_into().expect("16 bytes"), length);
            [half(first, length.min(16)), half(rest, length.saturating_sub(16))]
        }
        None => {
            let (first, rest) = text[start..end].split_at(length.min(16));
            [packed_bytes(first), packed_bytes(rest)]
        }
    };
    [first, rest | (length as u128) << 120]
}

impl PieceCache {
    /// Room for about `entries` pieces, 64 bytes each.
    pub(super) fn new(entries: usize) -> PieceCache {
        let size = entries.clamp(WAYS, 1 << 24).next_power_of_two();
        PieceCache { entries: vec![Entry::default(); size], scratch: Scratch::default() }
    }

    /// The key of the piece `text[start..end]`, or none where the piece is too long to be kept.
    #[inline]
    pub(super) fn key(&self, text: &[u8], start: usize, end: usize) -> Option<CacheKey> {
        if end - start > LONGEST {
            return None;
        }
        let piece = packed(text, start, end);
        let sets = self.entries.len() / WAYS;
        let hash = hash(piece[0] ^ piece[1].rotate_left(57)) >> 32;
        Some(CacheKey { piece, set: (hash as usize & (sets - 1)) * WAYS })
    }

    /// Appends the tokens of a piece and says whether they were there.
    #[inline]
    pub(super) fn append(&mut self, key: CacheKey, out: &mut Vec<u32>) -> bool {
        let set = &mut self.entries[key.set..key.set + WAYS];
        if set[0].piece != key.piece {
            if set[1].piece != key.piece {
                return false;
            }
            set.swap(0, 1);
        }
        // All places are copied, as their number is fixed, and those that are not tokens dropped.
        let length = out.len() + set[0].count as usize;
        out.extend_from_slice(&set[0].ids);
        out.truncate(length);
        true
    }

    /// Keeps the tokens of a piece, in the place of the one used least recently of two.
    pub(super) fn insert(&mut self, key: CacheKey, tokens: &[u32]) {
        let mut entry = Entry { piece: key.piece, count: tokens.len() as u32, ..Entry::default() };
        if let Some(ids) = entry.ids.get_mut(..tokens.len()) {
            ids.copy_from_slice(tokens);
            self.entries[key.set + 1] = self.entries[key.set];
            self.entries[key.set] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cache: &PieceCache, piece: &[u8]) -> CacheKey {
        cache.key(piece, 0, piece.len()).unwrap()
    }

    fn get(cache: &mut PieceCache, piece: &[u8]) -> Option<Vec<u32>> {
        let mut out = vec![99];
        cache.append(key(cache, piece), &mut out).then(|| out.split_off(1))
    }

    #[test]
    fn pieces_are_compared_in_full() {
        let text: Vec<u8> = (0..31).map(|n| n % 3).collect();
        let alone = |piece: &[u8]| packed(piece, 0, piece.len());
        let mut keys: Vec<[u128; 2]> = (1..=31).flat_map(|end| [alone(&text[..end]), alone(&vec![0; end])]).collect();
        for end in 1..=31 {
            let within = [b"ab".as_slice(), &text[..end], &[255; 32]].concat();
            assert_eq!(packed(&within, 2, 2 + end), alone(&text[..end]));
        }
        keys.push(alone(b"x\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0"));
        keys.push(alone(b"x"));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 63); // of one byte, both are the same piece
    }

    #[test]
    fn the_piece_used_least_recently_goes() {
        let mut cache = PieceCache::new(2);
        cache.insert(key(&cache, b"abc"), &[1, 2]);
        cache.insert(key(&cache, &[b'x'; 31]), &[7; 7]);
        assert_eq!(get(&mut cache, &[b'x'; 31]), Some(vec![7; 7]));
        assert_eq!(get(&mut cache, b"abc"), Some(vec![1, 2]));
        cache.insert(key(&cache, b"abc\0"), &[]);
        assert_eq!(get(&mut cache, b"abc\0"), Some(vec![]));
        assert_eq!(get(&mut cache, b"abc"), Some(vec![1, 2]));
        assert_eq!(get(&mut cache, &[b'x'; 31]), None);
    }

    #[test]
    fn what_does_not_fit_is_not_kept() {
        let mut cache = PieceCache::new(1024);
        assert!(cache.key(&[b'x'; 32], 0, 32).is_none());
        cache.insert(key(&cache, b"abc"), &[1; 8]);
        assert_eq!(get(&mut cache, b"abc"), None);
    }
}
