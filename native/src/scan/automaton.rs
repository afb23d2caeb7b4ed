//! One level of the pre-tokenizer: a split pattern as a deterministic automaton.
//!
//! The table is made by `toksplice/automaton.py` from the pattern. Its states are ordered lists of the threads of
//! a backtracking matcher, so its match is the one that the reference's pattern engine finds. What one attempt read
//! decides its outcome, and nothing else does: that is all that rule R1 of docs/exactness.md asks for.

use super::classes::CharClasses;
use super::utf8;

/// Set in an entry of the table: the best match so far ends right before the unit that was read.
const ACCEPT: u16 = 0x8000;
const DEAD: u32 = 0;
const START: u32 = 1;

enum Units {
    /// Unicode characters: classes of those beyond ASCII, and the transitions of ASCII by state.
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
    /// Entry of each state for each single-byte unit, as (next state * row) << 1 | accept.
    direct: Vec<u32>,
    /// Single-byte units in a row of `direct`.
    row: u32,
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
        let (units, row) = match classes.len() {
            256 => (Units::Bytes, 256),
            _ => (Units::Chars(CharClasses::new(classes)?), 128),
        };
        let mut direct = Vec::with_capacity(states * row as usize);
        for state in 0..states {
            for unit in 0..row as usize {
                let entry = table[state * columns + classes[unit] as usize];
                let next = (entry & !ACCEPT) as u32 * row;
                direct.push(next << 1 | (entry & ACCEPT != 0) as u32);
            }
        }
        let mut may_start = [true; 256];
        for (unit, may) in may_start.iter_mut().enumerate().take(row as usize) {
            *may = direct[START as usize * row as usize + unit] >> 1 != DEAD;
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
        Ok(Self { units, columns, table, direct, row, keeps_gaps, may_start })
    }

    /// Whether it reads bytes instead of characters.
    pub fn reads_bytes(&self) -> bool {
        matches!(self.units, Units::Bytes)
    }

    /// Whether an attempt at a unit that begins with `byte` may get past that unit.
    #[inline(always)]
    pub fn may_start(&self, byte: u8) -> bool {
        self.may_start[byte as usize]
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

    /// One attempt at `start` of the stretch that ends at `limit`; `start` < `limit`.
    #[inline(always)]
    pub fn attempt(&self, text: &[u8], start: usize, limit: usize) -> Attempt {
        let text = &text[..limit];
        let mut end = usize::MAX;
        let mut state = START * self.row;
        let mut at = start;
        let (reach, saw_end) = loop {
            let Some(&byte) = text.get(at) else {
                if self.table[(state / self.row) as usize * self.columns + self.columns - 1] & ACCEPT != 0 {
                    end = at;
                }
                break (at, true);
            };
            let (entry, width) = if (byte as u32) < self.row {
                (self.direct[(state + byte as u32) as usize], 1)
            } else {
                self.wide(text, at, state)
            };
            if entry & 1 != 0 {
                end = at;
            }
            state = entry >> 1;
            at += width;
            if state == DEAD {
                break (at, false);
            }
        };
        Attempt { end: (end != usize::MAX).then_some(end), reach, saw_end }
    }

    /// The entry for a character beyond ASCII, and its width.
    #[inline]
    fn wide(&self, text: &[u8], at: usize, state: u32) -> (u32, usize) {
        let Units::Chars(classes) = &self.units else { unreachable!("every byte has a direct entry") };
        let (point, width) = utf8::decode(text, at);
        let entry = self.table[(state / self.row) as usize * self.columns + classes.of(point) as usize];
        (((entry & !ACCEPT) as u32 * self.row) << 1 | (entry & ACCEPT != 0) as u32, width)
    }
}
