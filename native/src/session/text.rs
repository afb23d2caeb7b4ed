//! Reading a session: its text, ids and spans.

use super::Session;
use crate::engine::Engine;
use crate::scan::utf8;

impl Session {
    /// Append the bytes [from, to) of the text to `out`.
    pub fn copy_text(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        self.for_text(from, to, |text| out.extend_from_slice(text));
    }

    /// Hand out the bytes [from, to) of the text, stretch by stretch.
    pub fn for_text(&self, from: usize, to: usize, mut each: impl FnMut(&[u8])) {
        if from >= to {
            return;
        }
        for entry in &self.entries()[self.entry_of(from)..] {
            if entry.byte >= to {
                break;
            }
            let text = &entry.chunk.text;
            each(&text[from.saturating_sub(entry.byte)..(to - entry.byte).min(text.len())]);
        }
    }

    /// Whether bytes [from, to) of the text are `other`.
    pub fn holds(&self, from: usize, to: usize, other: &[u8]) -> bool {
        if to - from != other.len() {
            return false;
        }
        let mut rest = other;
        for entry in &self.entries()[self.entry_of(from).min(self.entries().len())..] {
            if rest.is_empty() {
                break;
            }
            let text = &entry.chunk.text;
            let begin = (to - rest.len()) - entry.byte;
            let size = rest.len().min(text.len() - begin);
            if text[begin..begin + size] != rest[..size] {
                return false;
            }
            rest = &rest[size..];
        }
        true
    }

    /// Whether a character begins at `byte`, or the text ends there.
    pub fn is_char_boundary(&self, byte: usize) -> bool {
        if byte >= self.bytes() {
            return byte == self.bytes();
        }
        let entry = &self.entries()[self.entry_of(byte)];
        utf8::is_boundary(&entry.chunk.text, byte - entry.byte)
    }

    /// UTF-8 bytes that the text and `other` share at their beginnings, down to a character boundary of both.
    pub fn common_prefix(&self, other: &[u8]) -> usize {
        let mut common = 0;
        for entry in self.entries() {
            let text = &entry.chunk.text;
            let rest = &other[common..];
            let same = same_length(text, rest);
            common += same;
            if same < text.len() {
                break;
            }
        }
        while common > 0 && !(self.is_char_boundary(common) && utf8::is_boundary(other, common)) {
            common -= 1;
        }
        common
    }

    /// UTF-8 bytes shared at the ends, left of which at least `left` bytes remain on both sides.
    pub fn common_suffix(&self, other: &[u8], left: usize) -> usize {
        let most = self.bytes().min(other.len()) - left;
        let mut common = 0;
        for entry in self.entries().iter().rev() {
            let text = &entry.chunk.text;
            let rest = &other[other.len() - most..other.len() - common];
            let same = same_end(text, rest);
            common += same;
            if same < text.len() {
                break;
            }
        }
        while !(self.is_char_boundary(self.bytes() - common) && utf8::is_boundary(other, other.len() - common)) {
            common -= 1;
        }
        common
    }

    /// Byte spans of the tokens [from, to) as the reference gives them.
    pub fn spans(&self, engine: &Engine, from: usize, to: usize) -> Vec<[u32; 2]> {
        let mut spans = Vec::with_capacity(to - from);
        let entries = self.entries();
        let mut at = self.entry_of_token(from);
        while let Some(entry) = entries.get(at).filter(|entry| entry.token < to) {
            let chunk = &entry.chunk;
            let first = from.saturating_sub(entry.token);
            let last = (to - entry.token).min(chunk.ids.len());
            chunk.for_each_token(first, last, engine, |id, start, end| {
                let (start, end) = engine.reference_span(&chunk.text, id, start, end);
                spans.push([(entry.byte + start) as u32, (entry.byte + end) as u32]);
            });
            at += 1;
        }
        spans
    }
}

/// Bytes that are compared at once.
const BLOCK: usize = 64;

/// Trailing bytes that two slices share.
fn same_end(a: &[u8], b: &[u8]) -> usize {
    let size = a.len().min(b.len());
    let (a, b) = (&a[a.len() - size..], &b[b.len() - size..]);
    let mut at = size;
    while at >= BLOCK && a[at - BLOCK..at] == b[at - BLOCK..at] {
        at -= BLOCK;
    }
    size - at + a[..at].iter().rev().zip(b[..at].iter().rev()).take_while(|(a, b)| a == b).count()
}

/// Leading bytes that two slices share.
fn same_length(a: &[u8], b: &[u8]) -> usize {
    let size = a.len().min(b.len());
    let mut at = 0;
    while at + BLOCK <= size && a[at..at + BLOCK] == b[at..at + BLOCK] {
        at += BLOCK;
    }
    at + a[at..size].iter().zip(&b[at..size]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_slices_share_is_found_to_the_byte() {
        let text: Vec<u8> = (0..200).collect();
        for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 200] {
            let (start, end) = (&text[..size], &text[200 - size..]);
            assert_eq!((same_length(&text, start), same_end(&text, end)), (size, size));
            for differing in 0..size {
                let (mut left, mut right) = (start.to_vec(), end.to_vec());
                left[differing] ^= 1;
                right[differing] ^= 1;
                assert_eq!((same_length(&left, &text), same_length(&text, &left)), (differing, differing));
                assert_eq!(same_end(&right, &text), size - 1 - differing);
                assert_eq!(same_end(&text, &right), size - 1 - differing);
            }
        }
    }
}
