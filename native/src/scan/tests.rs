//! Automata of random tables against the plainest way to run a table.

pub mod parallel;
mod transducers;

use super::automaton::{Attempt, Automaton};
use super::utf8;
use crate::random::Random;

const CODE_POINTS: usize = 0x11_0000;
/// In a table: the best match so far ends right before the unit that was read.
const ACCEPT: u16 = 0x8000;
const START: usize = 1;

/// A table, and the class of each unit: of each byte, or of each code point.
struct Table {
    classes: Vec<u8>,
    columns: usize,
    entries: Vec<u16>,
}

impl Table {
    /// A table whose states often stay as they are, at units of classes that are mostly ranges.
    fn random(random: &mut Random, units: usize) -> Self {
        let columns = 2 + random.below(5);
        let states = 2 + random.below(7);
        let any_entry = |random: &mut Random| {
            let accept = if random.below(3) == 0 { ACCEPT } else { 0 };
            random.below(states) as u16 | accept
        };
        let mut entries: Vec<u16> = (0..states * columns).map(|_| any_entry(random)).collect();
        entries[..columns].fill(0);
        for (state, row) in entries.chunks_exact_mut(columns).enumerate().skip(START) {
            let accept = if random.below(2) == 0 { ACCEPT } else { 0 };
            row.iter_mut().filter(|_| random.below(2) == 0).for_each(|entry| *entry = state as u16 | accept);
        }
        let mut classes = vec![0; units];
        for _ in 0..random.below(8) {
            let ranges = [(b'a', b'z'), (b'A', b'Z'), (b'0', b'9'), (b' ', b' '), (0, 127), (0x7f, 0x80), (200, 255)];
            let (first, last) = *random.pick(&ranges);
            classes[first.into()..=last.into()].fill(random.below(columns - 1) as u8);
        }
        for _ in 0..random.below(20) {
            let (first, length) = (random.below(units), random.below(300));
            classes[first..units.min(first + length)].fill(random.below(columns - 1) as u8);
        }
        for _ in 0..random.below(6) {
            classes[random.below(128)] = random.below(columns - 1) as u8;
        }
        Self { classes, columns, entries }
    }

    fn automaton(&self) -> Automaton {
        Automaton::new(&self.classes, self.columns, self.entries.clone(), true).expect("the table is well formed")
    }

    /// The unit at `at`, and its bytes.
    fn unit(&self, text: &[u8], at: usize) -> (u32, usize) {
        match self.classes.len() {
            CODE_POINTS => utf8::decode(text, at),
            _ => (text[at].into(), 1),
        }
    }

    fn entry(&self, state: usize, column: usize) -> (bool, usize) {
        let entry = self.entries[state * self.columns + column];
        (entry & ACCEPT != 0, (entry & !ACCEPT).into())
    }

    /// The entry of `state` for the unit at `at`, and the unit's bytes.
    fn step(&self, state: usize, text: &[u8], at: usize) -> ((bool, usize), usize) {
        let (unit, width) = self.unit(text, at);
        (self.entry(state, self.classes[unit as usize].into()), width)
    }

    /// One unit after the other.
    fn attempt(&self, text: &[u8], start: usize) -> Attempt {
        let (mut state, mut at, mut end) = (START, start, None);
        while at < text.len() {
            let ((accept, next), width) = self.step(state, text, at);
            end = if accept { Some(at) } else { end };
            at += width;
            if next == 0 {
                return Attempt { end, reach: at, saw_end: false };
            }
            state = next;
        }
        let (accept, _) = self.entry(state, self.columns - 1);
        Attempt { end: if accept { Some(at) } else { end }, reach: at, saw_end: true }
    }
}

/// A text of runs, long enough to be stepped over by words, and of what breaks them.
fn text(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.below(14) {
        let any = char::from(random.below(128) as u8);
        let wide = *random.pick(&['\u{80}', 'é', '\u{ff}', 'ſ', '你', '\u{ffff}', '😀', '\u{10ffff}']);
        let run = *random.pick(&['a', 'Z', '0', ' ', any, wide]);
        let letters = ['a', 'b', 'y', 'z', 'A', 'Z', 'k', '`', '{', '@', '['];
        match random.below(4) {
            0 => text.push(run),
            1 => text.extend((0..random.below(30)).map(|_| *random.pick(&letters))),
            _ => text.extend(std::iter::repeat_n(run, random.below(40))),
        }
    }
    text
}

/// Every attempt at every stretch of some texts.
fn check(random: &mut Random, table: &Table) {
    let automaton = table.automaton();
    assert_eq!(automaton.reads_bytes(), table.classes.len() != CODE_POINTS);
    for _ in 0..4 {
        let text = text(random).into_bytes();
        let starts = |at: &usize| automaton.reads_bytes() || utf8::is_boundary(&text, *at);
        for limit in (0..=text.len()).filter(starts) {
            let stretch = &text[..limit];
            for start in (0..limit).filter(starts) {
                assert_eq!(automaton.attempt(stretch, start), table.attempt(stretch, start), "{text:?} {start}");
            }
        }
        for from in (0..text.len()).filter(starts) {
            let next = automaton.next_start(&text, from, text.len());
            assert!(starts(&next));
            for skipped in (from..next).filter(starts) {
                let ((_, state), width) = table.step(START, &text, skipped);
                assert_eq!(state, 0, "{text:?} {skipped}");
                assert_eq!(automaton.unit_width(text[skipped]), width);
            }
        }
    }
}

#[test]
fn attempts_at_bytes_are_those_of_the_plain_loop() {
    let mut random = Random(1);
    for _ in 0..80 {
        let table = Table::random(&mut random, 256);
        check(&mut random, &table);
    }
}

#[test]
fn attempts_at_characters_are_those_of_the_plain_loop() {
    let mut random = Random(2);
    for _ in 0..40 {
        let mut table = Table::random(&mut random, CODE_POINTS);
        for wide in ['\u{80}', 'é', 'ſ', '你', '😀', '\u{10ffff}'] {
            table.classes[wide as usize] = random.below(table.columns - 1) as u8;
        }
        check(&mut random, &table);
    }
}

#[test]
fn malformed_tables_are_refused() {
    let refusal = |classes: &[u8], columns, entries: &[u16]| {
        Automaton::new(classes, columns, entries.to_vec(), true).err().expect("a refusal")
    };
    let bytes = [0; 256];
    for (columns, entries) in [(0, &[0; 4][..]), (2, &[0; 2]), (2, &[0; 5]), (2, &[])] {
        assert!(refusal(&bytes, columns, entries).contains("wrong shape"));
    }
    assert!(refusal(&[1; 256], 2, &[0; 4]).contains("without a column"));
    assert!(refusal(&bytes, 2, &[0, 0, 2, 0]).contains("does not exist"));
    assert!(refusal(&bytes, 2, &[0, 0, 2 | ACCEPT, 0]).contains("does not exist"));
    assert!(refusal(&[0; 255], 2, &[0; 4]).contains("character classes"));
}
