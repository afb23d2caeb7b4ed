//! One section of a text, between added tokens, as the pre-tokenizer sees it: normalized, with the way back.

use super::normal::Normalizer;
use super::reach::FAR;
use super::utf8;

/// A unit that normalization rewrote. Positions between the rewritten units differ by a constant.
#[derive(Clone, Copy)]
struct Rewritten {
    /// Bytes in the normalized text.
    start: usize,
    end: usize,
    /// Bytes in the raw text.
    raw_start: usize,
    raw_end: usize,
    /// Index into `Section::sources` of the first byte's source.
    sources: usize,
}

/// Normalized text of raw[lo..hi) and how its positions map back.
#[derive(Default)]
pub struct Section {
    /// Empty when normalization changes nothing.
    text: Vec<u8>,
    units: Vec<Rewritten>,
    /// For each byte of the rewritten units: the raw bytes that its character comes from.
    sources: Vec<(usize, usize)>,
    lo: usize,
    changed: bool,
}

impl Section {
    /// Normalize raw[lo..hi). Afterwards `text` gives the stretch to scan.
    pub fn read(&mut self, normalizer: Option<&Normalizer>, raw: &[u8], lo: usize, hi: usize) {
        self.text.clear();
        self.units.clear();
        self.sources.clear();
        self.lo = lo;
        self.changed = false;
        let Some(normalizer) = normalizer else { return };
        let mut at = lo;
        let mut copied = lo;
        while let Some((start, end)) = normalizer.next_unit(raw, at, hi) {
            at = end;
            let Some(characters) = normalizer.rewrite(&raw[start..end]) else { continue };
            self.text.extend_from_slice(&raw[copied..start]);
            let sources = self.sources.len();
            let begin = self.text.len();
            for (char, from, to) in characters {
                let mut buffer = [0; 4];
                let bytes = char.encode_utf8(&mut buffer).as_bytes();
                self.text.extend_from_slice(bytes);
                self.sources.extend(bytes.iter().map(|_| (start + from, start + to)));
            }
            self.units.push(Rewritten { start: begin, end: self.text.len(), raw_start: start, raw_end: end, sources });
            copied = end;
            self.changed = true;
        }
        if self.changed {
            self.text.extend_from_slice(&raw[copied..hi]);
        }
    }

    /// Whether normalization changed anything; without it normalized and raw positions are the same.
    #[inline(always)]
    pub fn changed(&self) -> bool {
        self.changed
    }

    /// The text to scan, and the stretch [from, to) of it that is the section raw[lo..hi).
    #[inline]
    pub fn text<'a>(&'a self, raw: &'a [u8], hi: usize) -> (&'a [u8], usize, usize) {
        if self.changed {
            (&self.text, 0, self.text.len())
        } else {
            (&raw[..hi], self.lo, hi)
        }
    }

    /// The last rewritten unit that begins at or before `at`.
    fn unit_at(&self, at: usize) -> Option<&Rewritten> {
        let after = self.units.partition_point(|unit| unit.start <= at);
        after.checked_sub(1).map(|index| &self.units[index])
    }

    /// Raw position of normalized position `at`, and whether `at` lies strictly inside a rewritten unit.
    pub fn raw_of(&self, at: usize) -> (usize, bool) {
        if !self.changed {
            return (at, false);
        }
        match self.unit_at(at) {
            None => (self.lo + at, false),
            Some(unit) if at >= unit.end => (unit.raw_end + (at - unit.end), false),
            Some(unit) if at == unit.start => (unit.raw_start, false),
            Some(unit) => (self.sources[unit.sources + at - unit.start].0, true),
        }
    }

    /// Raw bytes that the normalized bytes [start, end) come from, as the reference's alignments give them.
    pub fn span(&self, start: usize, end: usize) -> (usize, usize) {
        let from = match self.unit_at(start) {
            Some(unit) if start < unit.end => self.sources[unit.sources + start - unit.start].0,
            _ => self.raw_of(start).0,
        };
        let last = end - 1;
        let to = match self.unit_at(last) {
            Some(unit) if last < unit.end => self.sources[unit.sources + last - unit.start].1,
            _ => self.raw_of(last).0 + 1,
        };
        (from, to)
    }

    /// How far into the raw text the normalized text before `reach` depends: through the next safe character.
    pub fn raw_reach(&self, normalizer: &Normalizer, raw: &[u8], reach: usize) -> usize {
        if reach == FAR {
            return FAR;
        }
        let mut at = reach;
        if self.changed {
            at = match self.unit_at(reach.saturating_sub(1)) {
                Some(unit) if reach <= unit.end => unit.raw_end,
                _ => self.raw_of(reach).0,
            };
        }
        at = utf8::ceil(raw, at.min(raw.len()));
        while at < raw.len() && !normalizer.is_safe(raw, at) {
            at += utf8::width(raw[at]);
        }
        if at >= raw.len() {
            FAR
        } else {
            at + utf8::width(raw[at])
        }
    }
}
