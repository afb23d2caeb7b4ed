//! Where no token crosses, so that both sides can be encoded alone.
//!
//! A merge across a boundary would make a token that holds both sides of it. Where no token that a merge makes holds
//! the two characters there next to each other, the merges left of the boundary and right of it do not meet.

use rustc_hash::FxHashSet;

/// The pairs of neighbouring characters that some token holds.
pub struct Joins {
    /// Of ASCII, as bits.
    ascii: Box<[u64; 256]>,
    wide: FxHashSet<u64>,
    /// Pairs of bytes, as bits: here some token crosses from one character to the next and holds only a part of one.
    broken: Box<[u64; 1024]>,
}

impl Default for Joins {
    fn default() -> Joins {
        Joins { ascii: Box::new([0; 256]), wide: FxHashSet::default(), broken: Box::new([0; 1024]) }
    }
}

impl Joins {
    /// Takes in the text of a token that a merge makes.
    pub fn insert(&mut self, token: &[u8]) {
        for at in 1..token.len() {
            let (before, after) = (token[at - 1], token[at]);
            if before.is_ascii() && after.is_ascii() {
                let (word, bit) = ascii_bit(before, after);
                self.ascii[word] |= 1 << bit;
            } else if !is_continuation(after) {
                match (character_before(token, at), character_at(token, at)) {
                    (Some(x), Some(y)) => _ = self.wide.insert(u64::from(x) << 32 | u64::from(y)),
                    _ => self.broken[broken_word(before, after)] |= 1 << (after & 63),
                }
            }
        }
    }

    /// Whether a token can hold the characters `x` and `y` in this order next to each other.
    #[inline]
    pub fn can_join(&self, x: u32, y: u32) -> bool {
        if (x | y) < 128 {
            return self.ascii_join(x as u8, y as u8);
        }
        self.wide.contains(&(u64::from(x) << 32 | u64::from(y)))
    }

    #[inline(always)]
    fn ascii_join(&self, x: u8, y: u8) -> bool {
        let (word, bit) = ascii_bit(x, y);
        self.ascii[word] >> bit & 1 == 1
    }

    /// The first place after `from` where the text can be cut, or its end.
    pub fn next_cut(&self, text: &[u8], from: usize) -> usize {
        let mut at = from + 1;
        while at < text.len() && !self.can_cut(text, at) {
            at += 1;
        }
        at.min(text.len())
    }

    fn can_cut(&self, text: &[u8], at: usize) -> bool {
        let (before, after) = (text[at - 1], text[at]);
        if before.is_ascii() && after.is_ascii() {
            return !self.ascii_join(before, after);
        }
        if is_continuation(after) || self.broken[broken_word(before, after)] >> (after & 63) & 1 == 1 {
            return false;
        }
        match (character_before(text, at), character_at(text, at)) {
            (Some(x), Some(y)) => !self.wide.contains(&(u64::from(x) << 32 | u64::from(y))),
            _ => false,
        }
    }
}

#[inline(always)]
fn ascii_bit(before: u8, after: u8) -> (usize, u32) {
    (usize::from(before & 127) << 1 | usize::from(after >> 6 & 1), u32::from(after & 63))
}

fn broken_word(before: u8, after: u8) -> usize {
    usize::from(before) << 2 | usize::from(after) >> 6
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// The character that starts at a place, if the text holds all of it.
fn character_at(text: &[u8], at: usize) -> Option<u32> {
    let lead = u32::from(text[at]);
    let (length, bits) = match lead {
        0..=0x7F => return Some(lead),
        0xC2..=0xDF => (2, lead & 0x1F),
        0xE0..=0xEF => (3, lead & 0x0F),
        0xF0..=0xF4 => (4, lead & 0x07),
        _ => return None,
    };
    let rest = text.get(at + 1..at + length)?;
    rest.iter().try_fold(bits, |code, &byte| is_continuation(byte).then_some(code << 6 | u32::from(byte & 0x3F)))
}

/// The character that ends before a place, if the text holds all of it.
fn character_before(text: &[u8], at: usize) -> Option<u32> {
    let start = (at.saturating_sub(4)..at).rev().find(|&start| !is_continuation(text[start]))?;
    character_at(&text[..at], start).filter(|&code| char::from_u32(code).is_some_and(|c| c.len_utf8() == at - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joins(tokens: &[&[u8]]) -> Joins {
        let mut joins = Joins::default();
        tokens.iter().for_each(|token| joins.insert(token));
        joins
    }

    fn cuts(joins: &Joins, text: &[u8]) -> Vec<usize> {
        let mut cuts = vec![0];
        while cuts[cuts.len() - 1] < text.len() {
            cuts.push(joins.next_cut(text, cuts[cuts.len() - 1]));
        }
        cuts
    }

    #[test]
    fn cuts_are_where_no_token_has_the_pair() {
        let joins = joins(&[b"ab", "你好".as_bytes(), "a你".as_bytes()]);
        assert_eq!(cuts(&joins, b"abab"), [0, 2, 4]);
        assert_eq!(cuts(&joins, "ab你好好你".as_bytes()), [0, 2, 8, 11, 14]);
        assert!(joins.can_join('你'.into(), '好'.into()) && !joins.can_join('好'.into(), '你'.into()));
        assert!(joins.can_join('a'.into(), 'b'.into()) && !joins.can_join('b'.into(), 'a'.into()));
    }

    #[test]
    fn a_token_with_a_part_of_a_character_keeps_all_it_may_touch() {
        let joins = joins(&[b"a\xE4", b"\xBD\xA0\xE5"]);
        assert_eq!(cuts(&joins, "a你b".as_bytes()), [0, 4, 5]);
        assert_eq!(cuts(&joins, "a好你好".as_bytes()), [0, 1, 4, 10]);
    }

    #[test]
    fn broken_text_is_cut_only_between_whole_characters() {
        assert_eq!(cuts(&joins(&[]), b"\x80a\xE4\xBDb\xF0"), [0, 6]);
        assert_eq!(cuts(&joins(&[]), b"a\xE4\xBD\xA0\xA0b"), [0, 1, 6]);
    }
}
