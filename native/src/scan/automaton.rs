//! One level of the pre-tokenizer: a split pattern as a deterministic automaton.
//!
//! The table is made by `toksplice/automaton.py` from the pattern. Its states are ordered lists of the threads of
//! a backtracking matcher, so its match is the one that the reference's pattern engine finds. What one attempt read
//! decides its outcome, and nothing else does: that is all that rule R1 of docs/exactness.md asks for.

use super::classes::CharClasses;
use super::stay::Stay;
use super::utf8;

/// Set in an entry of the table: the best match so far ends right before the unit that was read.
const ACCEPT: u16 = 0x8000;
/// The state in which there is no match any more.
pub const DEAD_STATE: u16 = 0;
/// The state before the first unit.
pub const START: usize = 1;

/// Entries of a row of `direct`.
const ROW: usize = 256;
/// Entries from here on do not name a state: `WIDE`, and `DEAD` with or without the bit for a match.
const SPECIAL: u32 = u32::MAX - 3;
/// The byte begins a character of several bytes.
const WIDE: u32 = SPECIAL;
const DEAD: u32 = u32::MAX - 1;
/// Set in entries to states that have a `Stay`.
const STAYS: u32 = 2;
const SHIFT: u32 = 2;

enum Units {
    /// Unicode characters, and their classes.
    Chars(CharClasses),
    /// Bytes.
    Bytes,
}

/// What one attempt found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Where the match ends; `None` when there is none.
    pub end: Option<usize>,
    /// The position after the last unit that was read.
    pub reach: usize,
    /// Whether the end of the stretch was read too.
    pub saw_end: bool,
}

pub struct Automaton {
    units: Units,
    /// Columns of `table`: the classes, and the end of the stretch.
    columns: usize,
    table: Vec<u16>,
    /// Entry of each state for each byte: `WIDE`, or `DEAD`, or (next state * ROW) << SHIFT with `STAYS`; plus one for
    /// a match that ends right before the byte.
    direct: Vec<u32>,
    /// By state: the bytes at which it is most likely to stay.
    stays: Vec<Option<Stay>>,
    /// Whether text that no match covers becomes tokens.
    pub keeps_gaps: bool,
    /// By first byte: whether an attempt at a unit with it may get past that unit.
    may_start: [bool; 256],
}

impl Automaton {
    /// `classes`: the class of every code point, or of every byte. `table`: u16 of shape (states, columns).
    pub fn new(classes: &[u8], columns: usize, table: Vec<u16>, keeps_gaps: bool) -> Result<Self, String> {
        let states = table.len().checked_div(columns).unwrap_or(0);
        if states < 2 || states * columns != table.len() {
            return Err("the transition table has the wrong shape".into());
        }
        if classes.iter().any(|&class| class as usize + 1 >= columns) {
            return Err("a class without a column".into());
        }
        if table.iter().any(|&entry| (entry & !ACCEPT) as usize >= states) {
            return Err("a transition to a state that does not exist".into());
        }
        let (units, single) = match classes.len() {
            ROW => (Units::Bytes, ROW),
            _ => (Units::Chars(CharClasses::new(classes)?), 128),
        };
        let mut direct = Vec::with_capacity(states * ROW);
        for row in table.chunks_exact(columns) {
            direct.extend(classes[..single].iter().map(|&class| direct_entry(row[class as usize])));
            direct.extend(std::iter::repeat_n(WIDE, ROW - single));
        }
        let stays: Vec<_> = (0..states).map(|state| stay(&direct[state * ROW..][..128], state)).collect();
        for entry in direct.iter_mut().filter(|entry| **entry < SPECIAL) {
            if stays[(*entry >> SHIFT) as usize / ROW].is_some() {
                *entry |= STAYS;
            }
        }
        let mut may_start = [true; 256];
        for (unit, may) in may_start.iter_mut().enumerate().take(single) {
            *may = direct[START * ROW + unit] < SPECIAL;
        }
        if let Units::Chars(by_char) = &units {
            // A lead byte stands for many characters: it may start when one of them may.
            let starts = |point: u32| table[columns + by_char.of(point) as usize] & !ACCEPT != 0;
            let mut by_lead = [false; 256];
            for point in 0x80..0x11_0000u32 {
                if let Some(char) = char::from_u32(point) {
                    let lead = char.encode_utf8(&mut [0; 4]).as_bytes()[0];
                    by_lead[lead as usize] |= starts(point);
                }
            }
            may_start[128..].copy_from_slice(&by_lead[128..]);
        }
        Ok(Self { units, columns, table, direct, stays, keeps_gaps, may_start })
    }

    /// How many states the table has.
    pub fn states(&self) -> usize {
        self.table.len() / self.columns
    }

    /// The column for the end of the stretch.
    pub fn end_column(&self) -> usize {
        self.columns - 1
    }

    /// The state after a unit of class `column`, and whether the best match so far ends right before it.
    pub fn entry(&self, state: u16, column: usize) -> (u16, bool) {
        let entry = self.table[state as usize * self.columns + column];
        (entry & !ACCEPT, entry & ACCEPT != 0)
    }

    /// The classes of characters, if it reads those.
    pub fn char_classes(&self) -> Option<&CharClasses> {
        match &self.units {
            Units::Chars(classes) => Some(classes),
            Units::Bytes => None,
        }
    }

    /// Whether it reads bytes instead of characters.
    pub fn reads_bytes(&self) -> bool {
        matches!(self.units, Units::Bytes)
    }

    /// The first unit of text[from..to) at which an attempt may get past that unit, or `to`.
    #[inline(always)]
    pub fn next_start(&self, text: &[u8], from: usize, to: usize) -> usize {
        // No character starts at a byte inside another one.
        text[from..to].iter().position(|&byte| self.may_start[byte as usize]).map_or(to, |skipped| from + skipped)
    }

    /// Bytes of the unit that begins with `byte`.
    #[inline(always)]
    pub fn unit_width(&self, byte: u8) -> usize {
        if self.reads_bytes() {
            1
        } else {
            utf8::width(byte)
        }
    }

    /// One attempt at `start` of a stretch that ends where `text` does; `start` < `text.len()`.
    #[inline(always)]
    pub fn attempt(&self, text: &[u8], start: usize) -> Attempt {
        let mut end = usize::MAX;
        let mut state = START * ROW;
        let mut at = start;
        while let Some(&byte) = text.get(at) {
            let mut entry = self.direct[state + byte as usize];
            let mut width = 1;
            if entry >= SPECIAL {
                if entry == WIDE {
                    (entry, width) = self.wide(text, at, state);
                }
                if entry >= DEAD {
                    end = if entry == DEAD { end } else { at };
                    return Attempt { end: (end != usize::MAX).then_some(end), reach: at + width, saw_end: false };
                }
            }
            end = if entry & 1 == 0 { end } else { at };
            state = (entry >> SHIFT) as usize;
            at += width;
            if entry & STAYS != 0 {
                (at, end) = self.stay(text, at, state, end);
            }
        }
        if self.table[state / ROW * self.columns + self.columns - 1] & ACCEPT != 0 {
            end = at;
        }
        Attempt { end: (end != usize::MAX).then_some(end), reach: at, saw_end: true }
    }

    /// Steps over bytes from `at` on at which `state` stays. Gives the position behind them and the end of the best match.
    #[inline(always)]
    fn stay(&self, text: &[u8], mut at: usize, state: usize, end: usize) -> (usize, usize) {
        let Some(stay) = &self.stays[state / ROW] else { return (at, end) };
        let from = at;
        while let Some(word) = text.get(at..).and_then(|rest| rest.first_chunk()) {
            let steps = stay.steps(u64::from_le_bytes(*word));
            at += steps;
            if steps < 8 {
                break;
            }
        }
        (at, if stay.accepts && at > from { at - 1 } else { end })
    }

    /// The entry for a character beyond ASCII, and its width.
    #[inline]
    fn wide(&self, text: &[u8], at: usize, state: usize) -> (u32, usize) {
        let Units::Chars(classes) = &self.units else { unreachable!("every byte has a direct entry") };
        let (point, width) = utf8::decode(text, at);
        (direct_entry(self.table[state / ROW * self.columns + classes.of(point) as usize]), width)
    }
}

/// What is known of the ASCII bytes at which a state stays, and does the same about matches. `row`: its entries.
fn stay(row: &[u32], state: usize) -> Option<Stay> {
    let same =
        |accept: u32| -> Vec<bool> { row.iter().map(|&e| e == ((state * ROW) as u32) << SHIFT | accept).collect() };
    let (plain, accepting) = (same(0), same(1));
    let count = |set: &[bool]| set.iter().filter(|&&stays| stays).count();
    let accepts = count(&accepting) > count(&plain);
    Stay::new(if accepts { &accepting } else { &plain }, accepts)
}

/// An entry of the table in the form in which `direct` has it.
#[inline(always)]
fn direct_entry(entry: u16) -> u32 {
    let accept = (entry & ACCEPT != 0) as u32;
    match (entry & !ACCEPT) as u32 {
        0 => DEAD | accept,
        next => (next * ROW as u32) << SHIFT | accept,
    }
}
