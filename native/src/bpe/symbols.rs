//! The tokens that merging starts from.

use super::spelling::{fallback_byte, occurs_in_utf8, Symbols};
use std::ops::RangeInclusive;

use super::merge::Scratch;
use super::merges::Merges;
use super::NONE;

const PAGE: usize = 256;

/// From the units of a piece to their tokens.
pub enum Alphabet {
    /// The token of each byte. A byte without one leaves no token behind.
    Bytes(Box<[u32; 256]>),
    Characters(Characters),
}

/// The token of each character, in pages of those that have any, and the tokens of bytes for the rest.
pub struct Characters {
    page_of: Vec<u16>,
    pages: Vec<[u32; PAGE]>,
    fallback: Box<[u32; 256]>,
    /// From the smallest to the largest id of `fallback`.
    fallback_ids: RangeInclusive<u32>,
}

impl Characters {
    fn new() -> Characters {
        let fallback = Box::new([NONE; 256]);
        let fallback_ids = RangeInclusive::new(NONE, 0);
        Characters { page_of: vec![0; 0x11_0000 / PAGE], pages: vec![[NONE; PAGE]], fallback, fallback_ids }
    }

    fn insert_token(&mut self, text: &[u8], id: u32) -> Option<u32> {
        if let Some(byte) = fallback_byte(text) {
            self.fallback[usize::from(byte)] = id;
            self.fallback_ids = id.min(*self.fallback_ids.start())..=id.max(*self.fallback_ids.end());
            return Some(1);
        }
        let mut characters = std::str::from_utf8(text).unwrap_or_default().chars();
        if let (Some(character), None) = (characters.next(), characters.next()) {
            self.insert(character, id);
        }
        None
    }

    fn insert(&mut self, character: char, id: u32) {
        let (page, at) = (character as usize / PAGE, character as usize % PAGE);
        if self.page_of[page] == 0 {
            self.page_of[page] = self.pages.len() as u16;
            self.pages.push([NONE; PAGE]);
        }
        self.pages[usize::from(self.page_of[page])][at] = id;
    }

    #[inline]
    fn get(&self, character: char) -> u32 {
        self.pages[usize::from(self.page_of[character as usize / PAGE])][character as usize % PAGE]
    }

    fn append_fallback(&self, bytes: &[u8], out: &mut Vec<u32>) {
        out.extend(bytes.iter().map(|&byte| self.fallback[usize::from(byte)]).filter(|&id| id != NONE));
    }

    fn append(&self, text: &str, out: &mut Vec<u32>) {
        for (at, character) in text.char_indices() {
            match self.get(character) {
                NONE => self.append_fallback(&text.as_bytes()[at..at + character.len_utf8()], out),
                id => out.push(id),
            }
        }
    }
}

impl Alphabet {
    pub fn new(symbols: Symbols) -> Alphabet {
        match symbols {
            Symbols::Bytes => Alphabet::Bytes(Box::new([NONE; 256])),
            Symbols::Characters => Alphabet::Characters(Characters::new()),
        }
    }

    /// Takes in a token of the vocabulary, if merging can start from it. Gives the length of the text it covers
    /// where that is not its own: a token of byte fallback covers a byte.
    pub fn insert(&mut self, text: &[u8], id: u32) -> Option<u32> {
        match self {
            Alphabet::Bytes(ids) => {
                if let &[byte] = text {
                    ids[usize::from(byte)] = id;
                }
                None
            }
            Alphabet::Characters(characters) => characters.insert_token(text, id),
        }
    }

    /// The tokens of the symbols, those of byte fallback left out.
    pub fn tokens(&self) -> impl Iterator<Item = u32> + '_ {
        let ids = match self {
            Alphabet::Bytes(ids) => ids.as_slice(),
            Alphabet::Characters(characters) => characters.pages.as_flattened(),
        };
        ids.iter().copied().filter(|&id| id != NONE)
    }

    /// Whether this is a token of byte fallback.
    pub fn is_fallback(&self, id: u32) -> bool {
        let Alphabet::Characters(characters) = self else { return false };
        characters.fallback_ids.contains(&id) && characters.fallback.contains(&id)
    }

    /// Puts the tokens of a piece into `scratch.tokens`.
    pub fn encode(&self, piece: &[u8], merges: &Merges, scratch: &mut Scratch) {
        scratch.tokens.clear();
        self.append(piece, &mut scratch.tokens);
        if matches!(self, Alphabet::Bytes(_)) && scratch.tokens.len() == piece.len() {
            scratch.merge_bytes(merges, piece);
        } else {
            scratch.merge(merges);
        }
    }

    /// Appends the tokens of a piece before any merge.
    pub fn append(&self, piece: &[u8], out: &mut Vec<u32>) {
        match self {
            Alphabet::Bytes(ids) => {
                out.extend(piece.iter().map(|&byte| ids[usize::from(byte)]).filter(|&id| id != NONE));
            }
            Alphabet::Characters(characters) => {
                for chunk in piece.utf8_chunks() {
                    characters.append(chunk.valid(), out);
                    characters.append_fallback(chunk.invalid(), out);
                }
            }
        }
    }

    /// The units of some text that would leave nothing behind: bytes that UTF-8 can hold, in order.
    pub fn missing(&self) -> Vec<u8> {
        let missing = |byte: u8| match self {
            Alphabet::Bytes(ids) => ids[usize::from(byte)] == NONE,
            Alphabet::Characters(characters) => {
                characters.fallback[usize::from(byte)] == NONE
                    && !(byte.is_ascii() && characters.get(char::from(byte)) != NONE)
            }
        };
        (0..=255).filter(|&byte| occurs_in_utf8(byte) && missing(byte)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_without_a_token_are_the_tokens_of_their_bytes() {
        let mut alphabet = Alphabet::new(Symbols::Characters);
        for (token, id) in [("<0xC3>", 1), ("<0xA9>", 2), ("a", 7), ("\u{10FFFF}", 8), ("aa", 9)] {
            alphabet.insert(token.as_bytes(), id);
        }
        let mut ids = Vec::new();
        alphabet.append("aé\u{10FFFF}".as_bytes(), &mut ids);
        assert_eq!(ids, [7, 1, 2, 8]);
        ids.clear();
        alphabet.append(b"a\xC3a", &mut ids);
        assert_eq!(ids, [7, 1, 7]);
        assert!(!alphabet.missing().contains(&b'a') && alphabet.missing().contains(&b'b'));
    }
}
