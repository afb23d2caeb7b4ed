//! Words of 64 units against words of one, what processors have against what all have, and proofs that must fail.

use super::planes::{Lanes, Portable, WORD};
use super::program::{Carry, Contractions, Digits, Program, Rules, Tape};
use super::*;
use crate::random::Random;
use crate::scan::tests::parallel::{automata, families};
use crate::scan::transducer;

/// Roles as units, with the marks that steps leave.
struct Text {
    units: Vec<u8>,
    begins: Vec<bool>,
}

impl Tape for Text {
    fn unit(&self, at: usize) -> u8 {
        self.units.get(at).copied().unwrap_or_default()
    }

    fn mark(&mut self, at: usize, begins: bool) {
        self.begins[at] = begins;
    }
}

impl Text {
    /// All of the text in words of `WIDTH` bits: where pieces begin, and the first unit that is hard.
    fn run<const WIDTH: u32>(&mut self, program: &Program) -> (Vec<bool>, Option<usize>) {
        let width = WIDTH as usize;
        let mut carry = Carry::default();
        self.begins = vec![false; self.units.len().next_multiple_of(width)];
        for at in (0..self.units.len()).step_by(width) {
            let bit = |unit: usize, bit: usize| u64::from(self.unit(at + unit) >> bit & 1) << unit;
            let planes = std::array::from_fn(|plane| (0..width).fold(0, |word, unit| word | bit(unit, plane)));
            let found = program.step::<WIDTH>(planes, &mut carry, at, self);
            (0..width).for_each(|bit| self.begins[at + bit] = found.begins >> bit & 1 != 0);
            if found.hard != 0 {
                // Behind the text there are hard units to fill the last word.
                let hard = at + found.hard.trailing_zeros() as usize;
                return (self.begins.clone(), Some(hard).filter(|&hard| hard < self.units.len()));
            }
        }
        (self.begins.clone(), None)
    }
}

fn program(random: &mut Random) -> Program {
    let rules = Rules {
        digits: *random.pick(&[Digits::Single, Digits::Triples, Digits::Runs]),
        contractions: *random.pick(&[Contractions::Never, Contractions::Pieces, Contractions::Suffixes]),
        marks_lead: random.below(2) == 0,
        blanks_lead: random.below(2) == 0,
        sections: random.below(2) == 0,
    };
    let units: [u8; 256] = std::array::from_fn(|unit| unit as u8);
    Program {
        rules,
        roles: units.map(|unit| unit & 15),
        classes: units.map(|unit| unit & 15),
        one: vec![4],
        two: vec![(5, 4), (6, 6)],
    }
}

#[test]
fn words_of_any_width_say_the_same() {
    let mut random = Random(3);
    for _ in 0..4000 {
        let program = program(&mut random);
        let few: Vec<u8> = (0..1 + random.below(5)).map(|_| 1 + random.below(15) as u8).collect();
        let mut units = Vec::new();
        for _ in 0..random.below(60) {
            let unit = if random.below(6) == 0 { random.below(16) as u8 } else { *random.pick(&few) };
            units.extend(std::iter::repeat_n(unit, if random.below(9) == 0 { random.below(140) } else { 1 }));
        }
        let mut text = Text { units, begins: Vec::new() };
        let (one, hard) = text.run::<1>(&program);
        let (many, also_hard) = text.run::<64>(&program);
        assert_eq!(hard, also_hard);
        // Behind the last units contractions are open in the narrow words.
        let certain = hard.unwrap_or(text.units.len()).saturating_sub(SETTLES);
        assert_eq!(one[..certain], many[..certain], "{:?} {:?}", program.rules, text.units);
    }
}

#[test]
fn all_processors_find_the_same_roles() {
    let mut random = Random(4);
    for round in 0..2000 {
        let roles: [u8; 256] = std::array::from_fn(|_| random.below(16) as u8);
        let units: [u8; WORD] = std::array::from_fn(|_| random.below(if round % 2 == 0 { 128 } else { 256 }) as u8);
        let found = Portable { roles: &roles }.planes(&units);
        for (at, &unit) in units.iter().enumerate() {
            let role = (0..4).fold(0, |role, bit| role | (found[bit] >> at & 1) << bit);
            assert_eq!(role, u64::from(roles[usize::from(unit)]));
        }
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            assert_eq!(planes::Avx2(&planes::Halves::new(&roles)).planes(&units), found);
        }
    }
}

/// Makes a program another one.
type Change = fn(&mut Program);

#[test]
fn nothing_is_proved_of_programs_with_other_rules() {
    let changes: [Change; 6] = [
        |program| program.rules.marks_lead ^= true,
        |program| program.rules.blanks_lead ^= true,
        |program| program.rules.sections ^= true,
        |program| {
            program.rules.digits = match program.rules.digits {
                Digits::Single => Digits::Triples,
                Digits::Triples => Digits::Runs,
                Digits::Runs => Digits::Single,
            }
        },
        |program| program.roles.swap(usize::from(b'a'), usize::from(b'.')),
        |program| program.roles.iter_mut().filter(|role| **role == 9).for_each(|role| *role = 8),
    ];
    for (name, levels) in families() {
        let automata = automata(&levels);
        let transducer = transducer::compile(&automata).expect("the levels are one machine");
        let machine = Machine::new(&transducer);
        let program =
            || roles::proposals(&transducer).find(|program| proof::holds(program, &machine)).expect("a proof");
        for (number, change) in changes.iter().enumerate() {
            let mut program = program();
            change(&mut program);
            assert!(!proof::holds(&program, &machine), "{name} {number}");
        }
        let mut program = program();
        if !program.two.is_empty() {
            program.two.pop();
            assert!(!proof::holds(&program, &machine), "{name} contractions");
        }
    }
}
