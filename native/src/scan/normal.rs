//! Normalization, by units that it acts on independently (rule R6 of docs/exactness.md).
//!
//! A cut before character b is safe when the first character of b's full decomposition is a starter that is never
//! the second of a composition. A *unit* is a safe character with all that follow it up to the next safe one. The
//! tables are those of the crate that the reference itself uses; `toksplice/program.py` checks them against the
//! installed reference.

use std::sync::OnceLock;

use unicode_normalization_alignments::{char as tables, UnicodeNormalization};

use super::classes::CharSet;
use super::utf8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

impl Form {
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "NFC" => Some(Self::Nfc),
            "NFD" => Some(Self::Nfd),
            "NFKC" => Some(Self::Nfkc),
            "NFKD" => Some(Self::Nfkd),
            _ => None,
        }
    }

    /// The normal form of `text` as the reference makes it: characters, each with the change in their number
    /// (1: inserted, 0: in place of one character, -n: in place of one and n removed after it).
    pub fn characters(self, text: &str) -> Vec<(char, isize)> {
        match self {
            Self::Nfc => text.nfc().collect(),
            Self::Nfd => text.nfd().collect(),
            Self::Nfkc => text.nfkc().collect(),
            Self::Nfkd => text.nfkd().collect(),
        }
    }

    pub fn apply(self, text: &str) -> String {
        self.characters(text).into_iter().map(|(char, _)| char).collect()
    }
}

/// What a normal form does to single characters.
pub struct Tables {
    safe: CharSet,
    /// Safe, and left alone when alone.
    plain: CharSet,
}

#[derive(Clone, Copy)]
pub enum Normalizer {
    /// A Unicode normal form, with its tables, which all tokenizers share.
    Form(Form, &'static Tables),
    /// U+2581 is read as the space that it stands for; every position is safe.
    Mark,
}

/// The UTF-8 form of U+2581.
pub const MARK: &[u8] = "\u{2581}".as_bytes();

impl Tables {
    fn new(form: Form) -> Self {
        let seconds = seconds_of_compositions();
        let first = |char: char| -> char {
            let mut found = None;
            let mut keep = |part: char| {
                found.get_or_insert(part);
            };
            match form {
                Form::Nfc | Form::Nfd => tables::decompose_canonical(char, &mut keep),
                Form::Nfkc | Form::Nfkd => tables::decompose_compatible(char, &mut keep),
            }
            found.unwrap_or(char)
        };
        let is_safe = |char: char| {
            let first = first(char);
            tables::canonical_combining_class(first) == 0 && !seconds.contains(&first)
        };
        let safe = CharSet::from_fn(is_safe);
        let mut buffer = [0; 4];
        let plain = CharSet::from_fn(|char| {
            char.is_ascii() || (is_safe(char) && form.characters(char.encode_utf8(&mut buffer)) == [(char, 0)])
        });
        Self { safe, plain }
    }
}

impl Normalizer {
    pub fn form(form: Form) -> Self {
        static TABLES: [OnceLock<Tables>; 4] = [const { OnceLock::new() }; 4];
        Self::Form(form, TABLES[form as usize].get_or_init(|| Tables::new(form)))
    }

    /// Whether a cut before the character at `at` is safe; the end of the text is.
    #[inline]
    pub fn is_safe(&self, text: &[u8], at: usize) -> bool {
        match self {
            Self::Form(_, tables) if at < text.len() && text[at] >= 0x80 => {
                tables.safe.contains(utf8::decode(text, at).0)
            }
            _ => true,
        }
    }

    /// The first unit of text[from..to] that normalization may change, and where it ends.
    pub fn next_unit(&self, text: &[u8], from: usize, to: usize) -> Option<(usize, usize)> {
        match self {
            Self::Mark => {
                let at = from + memchr::memmem::find(&text[from..to], MARK)?;
                Some((at, at + MARK.len()))
            }
            Self::Form(_, Tables { safe, plain }) => {
                let mut at = from;
                loop {
                    at = utf8::skip_ascii(text, at, to);
                    if at == to {
                        return None;
                    }
                    let (point, width) = utf8::decode(text, at);
                    if !plain.contains(point) {
                        break;
                    }
                    at += width;
                }
                let (point, width) = utf8::decode(text, at);
                let start = if safe.contains(point) || at == from { at } else { utf8::before(text, at) };
                let mut end = at + width;
                while end < to && !self.is_safe(text, end) {
                    end += utf8::width(text[end]);
                }
                Some((start, end))
            }
        }
    }

    /// A unit in normal form, with the bytes [start, end) of the unit that each character comes from; `None` when it
    /// is in normal form already.
    pub fn rewrite(&self, unit: &[u8]) -> Option<Vec<(char, usize, usize)>> {
        match self {
            Self::Mark => Some(vec![(' ', 0, unit.len())]),
            Self::Form(form, _) => {
                let text = utf8::as_str(unit);
                let characters = form.characters(text);
                if characters.iter().map(|c| c.0).eq(text.chars()) && characters.iter().all(|c| c.1 == 0) {
                    return None;
                }
                Some(align(text, &characters))
            }
        }
    }
}

/// Which bytes of `text` each character of its normal form comes from, by the reference's rule: that of the character
/// whose place it takes, or, when it was inserted, that of the character before.
fn align(text: &str, characters: &[(char, isize)]) -> Vec<(char, usize, usize)> {
    let spans: Vec<(usize, usize)> = text.char_indices().map(|(at, char)| (at, at + char.len_utf8())).collect();
    let mut next = 0;
    characters
        .iter()
        .map(|&(char, change)| {
            let source = if change > 0 { spans[next.max(1) - 1] } else { spans[next.min(spans.len() - 1)] };
            if change <= 0 {
                next += 1 + change.unsigned_abs();
            }
            (char, source.0, source.1)
        })
        .collect()
}

/// Every character that is the second of some canonical composition.
fn seconds_of_compositions() -> std::collections::HashSet<char> {
    let mut seconds = std::collections::HashSet::new();
    for char in (0..0x11_0000).filter_map(char::from_u32) {
        let mut parts = Vec::new();
        tables::decompose_canonical(char, |part| parts.push(part));
        // Composition takes two characters at a time, so every part but the first is a second somewhere.
        seconds.extend(parts.into_iter().skip(1));
    }
    seconds
}
