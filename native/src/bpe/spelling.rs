//! From the strings of a vocabulary to the bytes of the text they stand for.

/// What the symbols are that merging starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbols {
    /// Bytes; the vocabulary writes them in the alphabet of byte-level BPE.
    Bytes,
    /// Unicode characters; one that has no symbol is the tokens `<0xXX>` of its bytes.
    Characters,
}

/// The mark that stands for a space in vocabularies of the SentencePiece family.
pub const SPACE_MARK: char = '\u{2581}';

/// How one vocabulary is written.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    pub symbols: Symbols,
    pub mark_spaces: bool,
}

impl Spelling {
    /// Appends to `out` the text that `token` stands for; false, with `out` as it was, if no text has it.
    pub fn spell(self, token: &str, out: &mut Vec<u8>) -> bool {
        match self.symbols {
            Symbols::Bytes => spell_bytes(token, out),
            Symbols::Characters if self.mark_spaces => spell_marked(token, out),
            Symbols::Characters => {
                out.extend_from_slice(token.as_bytes());
                true
            }
        }
    }
}

fn spell_bytes(token: &str, out: &mut Vec<u8>) -> bool {
    let before = out.len();
    for character in token.chars() {
        match alphabet_byte(character) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(before);
                return false;
            }
        }
    }
    true
}

/// A space in the text was made the mark before it came here, so a token with a real space never occurs.
fn spell_marked(token: &str, out: &mut Vec<u8>) -> bool {
    if token.as_bytes().contains(&b' ') {
        return false;
    }
    let mut rest = token;
    while let Some(at) = rest.find(SPACE_MARK) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        out.push(b' ');
        rest = &rest[at + SPACE_MARK.len_utf8()..];
    }
    out.extend_from_slice(rest.as_bytes());
    true
}

/// The byte a character stands for in the alphabet of byte-level BPE: printable Latin-1 is itself, and the other 68
/// bytes follow from U+0100 on, in their order.
pub fn alphabet_byte(character: char) -> Option<u8> {
    match u32::from(character) {
        own @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(own as u8),
        shifted @ 0x100..=0x120 => Some((shifted - 0x100) as u8),
        shifted @ 0x121..=0x142 => Some((shifted - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The byte of a token `<0xXX>`, as byte fallback writes it: two upper-case digits.
pub fn fallback_byte(token: &[u8]) -> Option<u8> {
    let &[b'<', b'0', b'x', high, low, b'>'] = token else { return None };
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    Some(digit(high)? << 4 | digit(low)?)
}

/// Whether valid UTF-8 can hold this byte.
pub fn occurs_in_utf8(byte: u8) -> bool {
    !matches!(byte, 0xC0 | 0xC1 | 0xF5..=0xFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_covers_every_byte_once() {
        let mut bytes: Vec<u8> = ('\0'..'\u{200}').filter_map(alphabet_byte).collect();
        assert_eq!(bytes.len(), 256);
        bytes.sort_unstable();
        bytes.dedup();
        assert_eq!(bytes.len(), 256);
        assert_eq!(alphabet_byte('\u{120}'), Some(b' '));
        assert_eq!(alphabet_byte('\u{10A}'), Some(b'\n'));
        assert_eq!(alphabet_byte(' '), None);
    }

    #[test]
    fn fallback_tokens_are_spelled_one_way() {
        assert_eq!(fallback_byte(b"<0x0A>"), Some(10));
        assert_eq!(fallback_byte(b"<0x0a>"), None);
        assert_eq!(fallback_byte(b"<0x+A>"), None);
        assert_eq!(fallback_byte(b"<0xA>"), None);
    }

    #[test]
    fn marks_become_spaces_and_spaces_are_unreachable() {
        let marked = Spelling { symbols: Symbols::Characters, mark_spaces: true };
        let mut out = b"x".to_vec();
        assert!(marked.spell("▁a▁▁é", &mut out));
        assert_eq!(out, "x a  é".as_bytes());
        assert!(!marked.spell("a b", &mut out));
        assert_eq!(out, "x a  é".as_bytes());
    }
}
