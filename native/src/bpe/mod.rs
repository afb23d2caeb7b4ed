//! Byte-pair encoding of one piece, exactly as the reference's BPE model does it.
//!
//! Most pieces are one token, found by one look-up. The rest is cut where no token crosses, and merged.

mod cache;
mod document;
mod joins;
mod load;
mod merge;
mod merges;
mod pack;
mod queue;
mod spelling;
mod symbols;
mod table;
mod texts;
mod whole;

#[cfg(test)]
mod tests;

pub use cache::PieceCache;
pub use joins::Joins;
pub use spelling::Symbols;

use spelling::Spelling;
use symbols::Alphabet;
use table::Table;
pub use table::SHORT;

/// In place of an id: there is none.
const NONE: u32 = u32::MAX;

/// Pieces longer than this are cut before they are merged.
const UNCUT: usize = 8;

/// A BPE model. It does not change once it is loaded.
pub struct Bpe {
    /// The pieces that are one token.
    table: Table,
    /// By id: whether the token's own text merges to something else. Only pieces that are looked up whole can be it.
    apart: Vec<bool>,
    alphabet: Alphabet,
    merges: merges::Merges,
    joins: Joins,
    lengths: Vec<u32>,
    trims: Vec<(u8, u8)>,
    /// Whether some byte of UTF-8 has no token, and leaves none.
    drops: bool,
    cache_entries: usize,
}

impl Bpe {
    /// Reads the model of a tokenizer.json.
    ///
    /// `mark_spaces`: the vocabulary writes spaces as U+2581. Pieces are then given with a space for each of them, and
    /// `cache_entries` is about how many pieces of several tokens a `PieceCache` keeps, at 64 bytes each.
    ///
    /// # Errors
    /// What is wrong with the file, or what in the model is not supported.
    pub fn from_json(
        tokenizer_json: &[u8],
        symbols: Symbols,
        mark_spaces: bool,
        cache_entries: usize,
    ) -> Result<Bpe, String> {
        load::load(tokenizer_json, Spelling { symbols, mark_spaces }, cache_entries)
    }

    /// Appends the ids of one piece, which has less than 2^32 bytes.
    #[inline]
    pub fn encode(&self, cache: &mut PieceCache, piece: &[u8], out: &mut Vec<u32>) {
        match self.table.get(piece) {
            NONE => self.encode_apart(cache, piece, (0, piece.len()), out),
            id => out.push(id),
        }
    }

    /// The token that the piece `text[start..end]` is, if it is one. Faster than `encode`, as it looks past the end of
    /// the piece.
    #[inline(always)]
    pub fn whole(&self, text: &[u8], start: usize, end: usize) -> Option<u32> {
        Some(self.table.get_in(text, start, end)).filter(|&id| id != NONE)
    }

    /// Appends the tokens of pieces, each of which is one, as far as that is told in few steps: the pieces of `text` that end
    /// at `ends`, the first of which begins at `start`. Gives how many there were, and whether the next one is known to be
    /// no token.
    #[inline(always)]
    pub fn append_run(&self, text: &[u8], start: usize, ends: &[u16], out: &mut Vec<u32>) -> (usize, bool) {
        self.table.append_run(text, start, ends, out)
    }

    /// The same as `encode` for the piece `text[start..end]`.
    #[inline(never)]
    pub fn encode_in(&self, cache: &mut PieceCache, text: &[u8], (start, end): (usize, usize), out: &mut Vec<u32>) {
        match self.whole(text, start, end) {
            Some(id) => out.push(id),
            None => self.encode_apart(cache, text, (start, end), out),
        }
    }

    /// Memory for `encode`, one for each thread. What it holds changes no ids.
    pub fn new_cache(&self) -> PieceCache {
        PieceCache::new(self.cache_entries)
    }

    /// How many bytes of text a token covers: one for a space written as U+2581; 0 for unknown ids.
    #[inline]
    pub fn token_len(&self, id: u32) -> u32 {
        self.lengths.get(id as usize).copied().unwrap_or(0)
    }

    /// One more than the largest id of the vocabulary and of added tokens.
    pub fn vocabulary_size(&self) -> usize {
        self.lengths.len()
    }

    /// How many characters at the start and at the end of a token's string are white space or stand for the space; at
    /// most 255, and (0, 0) for unknown ids.
    pub fn trim(&self, id: u32) -> (u8, u8) {
        self.trims.get(id as usize).copied().unwrap_or((0, 0))
    }

    /// Whether the lengths of a piece's tokens always add up to the piece.
    pub fn tiles(&self) -> bool {
        !self.drops
    }

    /// Which characters tokens hold next to each other.
    pub fn joins(&self) -> &Joins {
        &self.joins
    }

    /// Appends the ids of the piece `text[start..end]`, which is not one token.
    #[inline(never)]
    pub fn encode_apart(&self, cache: &mut PieceCache, text: &[u8], (start, end): (usize, usize), out: &mut Vec<u32>) {
        let key = cache.key(text, start, end);
        if key.is_some_and(|key| cache.append(key, out)) {
            return;
        }
        let before = out.len();
        self.encode_fresh(cache, &text[start..end], out);
        if let Some(key) = key {
            cache.insert(key, &out[before..]);
        }
    }

    fn encode_fresh(&self, cache: &mut PieceCache, piece: &[u8], out: &mut Vec<u32>) {
        if self.drops || piece.len() <= UNCUT {
            return self.merge(cache, piece, out);
        }
        let mut start = 0;
        while start < piece.len() {
            let end = self.joins.next_cut(piece, start);
            self.encode_part(cache, piece, (start, end), out);
            start = end;
        }
    }

    /// A part of a piece. The model looks up whole pieces only, and merges the rest.
    fn encode_part(&self, cache: &mut PieceCache, piece: &[u8], (start, end): (usize, usize), out: &mut Vec<u32>) {
        let part = &piece[start..end];
        if part.len() == piece.len() {
            return self.merge(cache, part, out);
        }
        match self.table.get(part) {
            id if id != NONE && !self.apart[id as usize] => out.push(id),
            _ => match cache.key(piece, start, end) {
                Some(key) if cache.append(key, out) => {}
                Some(key) => {
                    let before = out.len();
                    self.merge(cache, part, out);
                    cache.insert(key, &out[before..]);
                }
                None => self.merge(cache, part, out),
            },
        }
    }

    fn merge(&self, cache: &mut PieceCache, piece: &[u8], out: &mut Vec<u32>) {
        self.alphabet.encode(piece, &self.merges, &mut cache.scratch);
        out.extend_from_slice(&cache.scratch.tokens);
    }
}
