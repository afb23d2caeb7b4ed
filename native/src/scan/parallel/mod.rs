//! The levels of most families as arithmetic on words of 64 units of text, instead of a step for each unit.
//!
//! `program` is one for all families, which differ in a few rules. Which ones a transducer's levels follow is guessed
//! (`roles`) and then proved (`proof`): transducer and program are run against each other through all that they can be in
//! the middle of. Levels for which no proof is found keep the transducer.
//!
//! Characters are read as the transducer reads them, one unit each, so that runs are runs whatever the text. Where a
//! unit comes that the program does not understand it stops, and leaves the text to the transducer.

mod block;
mod machine;
mod planes;
mod program;
mod proof;
mod roles;
#[cfg(test)]
mod tests;

use super::transducer::Transducer;
use super::utf8;
pub use block::Block;
use block::{spread, to_bytes, Ends, Words, BLOCK_LEAST, BLOCK_MOST};
use machine::Machine;
use planes::{Lanes, Portable, WORD};
use program::{Carry, Program};

/// An end is certain when so many units were read behind it; or, if it follows on a newline, behind the first unit from it
/// on that is no white space.
pub const SETTLES: usize = 3;

pub struct Parallel {
    program: Program,
    #[cfg(target_arch = "x86_64")]
    halves: Option<planes::Halves>,
}

/// The program for a transducer, if there is one.
pub fn compile(transducer: &Transducer) -> Option<Parallel> {
    let machine = Machine::new(transducer);
    let program = roles::proposals(transducer).find(|program| proof::holds(program, &machine))?;
    Some(Parallel {
        #[cfg(target_arch = "x86_64")]
        halves: has_avx2().then(|| planes::Halves::new(&program.roles)),
        program,
    })
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

impl Parallel {
    /// Use what every processor has.
    #[cfg(test)]
    pub fn forget_lanes(&mut self) {
        #[cfg(target_arch = "x86_64")]
        {
            self.halves = None;
        }
    }

    /// Reads some of `text`, which begins where a scan may restart.
    pub fn read(&self, transducer: &Transducer, block: &mut Block, text: &[u8]) {
        let size = text.len().min(block.size);
        let size = if size < text.len() { utf8::floor(text, size) } else { size };
        let text = &text[..size];
        let Block { units: buffer, extra, begins, ends, .. } = block;
        let units = transducer.characters(text, buffer, extra);
        let (read, count) = self.run(units, begins, ends);
        block.count = count;
        if units.len() < text.len() {
            to_bytes(&mut ends[..count], extra);
        }
        block.is_stopped = read < units.len();
        block.size = if block.is_stopped { BLOCK_LEAST } else { (2 * block.size).min(BLOCK_MOST) };
    }

    /// Finds where pieces begin and so others end, as far as that is certain. Gives how many units the program understands, and
    /// how many ends there are.
    fn run(&self, units: &[u8], begins: &mut [u64], ends: &mut Ends) -> (usize, usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(halves) = &self.halves {
            // SAFETY: there are halves only where the processor has what the function is compiled for.
            #[allow(unsafe_code)]
            return unsafe { self.run_avx2(&planes::Avx2(halves), units, begins, ends) };
        }
        self.run_on(&Portable { roles: &self.program.roles }, units, begins, ends)
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)] // Compiled for processors that not all are; see `run`.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn run_avx2(
        &self,
        lanes: &planes::Avx2<'_>,
        units: &[u8],
        begins: &mut [u64],
        ends: &mut Ends,
    ) -> (usize, usize) {
        self.run_on(lanes, units, begins, ends)
    }

    #[inline(always)]
    fn run_on(&self, lanes: &impl Lanes, units: &[u8], begins: &mut [u64], ends: &mut Ends) -> (usize, usize) {
        let read = self.steps(lanes, units, begins);
        (read, spread(begins, self.certain(&units[..read]), ends))
    }

    /// Finds where pieces begin. Gives how many units the program understands.
    #[inline(always)]
    fn steps(&self, lanes: &impl Lanes, units: &[u8], begins: &mut [u64]) -> usize {
        let mut carry = Carry::default();
        for (number, word) in units.chunks(WORD).enumerate() {
            let planes = match word.first_chunk() {
                Some(word) => lanes.planes(word),
                None => {
                    let mut padded = [0; WORD];
                    padded[..word.len()].copy_from_slice(word);
                    lanes.planes(&padded)
                }
            };
            let at = number * WORD;
            let found = self.program.step::<64>(planes, &mut carry, at, &mut Words { units, begins });
            begins[number] = found.begins;
            if found.hard != 0 {
                return units.len().min(at + found.hard.trailing_zeros() as usize);
            }
        }
        units.len()
    }

    /// How many units can have an end before them that is certain when only `units` were read.
    fn certain(&self, units: &[u8]) -> usize {
        let role = |unit: &u8| self.program.roles[usize::from(*unit)];
        let known = units.len().saturating_sub(SETTLES);
        let visible = units[..known].iter().rposition(|unit| !program::is_white(role(unit))).map_or(0, |last| last + 1);
        let newline = units[visible..known].iter().position(|unit| role(unit) == program::Role::Newline as u8);
        newline.map_or(known, |newline| visible + newline + 1)
    }

    /// A bound of what decided on the end of a piece at `end`: the position behind it, not past `text`.
    pub fn reach(&self, transducer: &Transducer, text: &[u8], end: usize) -> usize {
        let role = |at: usize| self.program.roles[usize::from(transducer.unit_at(text, at))];
        let mut at = end;
        if role(utf8::before(text, end)) == program::Role::Newline as u8 {
            while at < text.len() && program::is_white(role(at)) {
                at += utf8::width(text[at]);
            }
        }
        for _ in 0..=SETTLES {
            at += text.get(at).map_or(0, |&byte| utf8::width(byte));
        }
        at
    }
}
