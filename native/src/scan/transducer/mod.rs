//! The levels of a pre-tokenizer as one machine that reads a text once, byte after byte, and tells where pieces end.
//!
//! An attempt at a match branches where it ends, which no processor foresees, and reads some units twice. This machine
//! does neither: a step is one look-up, and what it finds goes to places that the entry names. As each step waits for
//! the one before, several stretches of the text are read at once.
//!
//! What was settled with a unit depends on no text behind that unit, which the machine had not read (claim 6 of
//! docs/exactness.md). Where the stretches behind the first begin is a guess that is right if the stretch before has a
//! boundary there that a scan may restart at.

mod compile;

use super::classes::CharClasses;
use super::utf8;

pub use compile::compile;

/// Stretches that are read at once.
const CHAINS: usize = 3;
/// Ends that can be pending at once.
const PENDING: usize = 3;
/// The place for an end that is not set.
const UNSET: usize = PENDING;

/// Places that are written at once; a step settles at most `PENDING` of them.
const LANES: usize = 4;

/// What the machine reads, in a byte: ASCII characters, from `WIDE` on the class of any other character for its first
/// byte, and `WITHIN` for the bytes behind that.
const WIDE: usize = 0x80;
const WITHIN: u8 = 0xff;
/// Entries of a row, and of a table.
const ROW: usize = 256;
const TABLE: usize = 256 * ROW;
/// The row where the machine gives up, the one at the start of a piece, and the first of the others.
const TRAP: u32 = 0;
const START_ROW: usize = 1;
const FIRST_ROW: usize = 2;

/// Bytes of text that are taken at once.
const STRIDE: usize = 16;

/// Bytes of a stretch. Small ones, for tests, have more seams.
const STEP_LEAST: usize = if IS_SMALL { 8 } else { 64 };
const STEP_MOST: usize = if IS_SMALL { 32 } else { 1024 };
const IS_SMALL: bool = cfg!(feature = "small-chunks");
/// Places for the ends of a stretch: one for each byte, and those that are pending.
const PLACES: usize = 2 * STEP_MOST;
/// Those of all stretches; a power of two.
const BLOCK_PLACES: usize = (CHAINS * PLACES).next_power_of_two();
/// How far behind the place where a stretch should begin a cut is looked for.
const CUT_WITHIN: usize = if IS_SMALL { 8 } else { 64 };
/// Bytes behind a stretch in which its last end is settled, mostly.
const OVERLAP: usize = 8;
/// Fewer bytes are not worth a block.
pub const BLOCK_LEAST: usize = 2 * CUT_WITHIN;

/// In an end: it lies inside a match of an upper level.
pub const INSIDE: u16 = 0x8000;
/// In an entry of the table: the end that it sets does.
const SETS_INSIDE: u32 = 0x80;

/// An entry of the table: the next row, which end is set to where the unit begins, how many are settled.
fn entry(row: u32, set: usize, settled: usize, inside: bool) -> u32 {
    let inside = if inside { SETS_INSIDE } else { 0 };
    row << (16 + ROW.trailing_zeros()) | (settled as u32) << 8 | inside | set as u32
}

pub struct Transducer {
    by_char: CharClasses,
    table: Box<[u32; TABLE]>,
    /// By pair of ASCII characters: whether a piece begins between them.
    cuts: Vec<bool>,
    classes: u8,
    is_nested: bool,
}

/// Some text that was read, and the ends of its pieces.
pub struct Block {
    /// What was read in place of text beyond ASCII.
    units: Vec<u8>,
    /// Where in the block each stretch begins; 0 for those that do not.
    bases: [usize; CHAINS],
    /// How many ends each stretch has.
    counts: [usize; CHAINS],
    /// Where pieces end, positions from the beginning of the stretch on; `PLACES` for each stretch.
    ends: Box<[u16; BLOCK_PLACES]>,
    /// The unit that settled each of them, likewise.
    reads: Box<[u16; BLOCK_PLACES + LANES]>,
    /// Bytes of a stretch to be read next.
    step: usize,
    /// Whether the machine gave up somewhere.
    pub is_trapped: bool,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            units: Vec::new(),
            bases: [0; CHAINS],
            counts: [0; CHAINS],
            ends: Box::new([0; BLOCK_PLACES]),
            reads: Box::new([0; BLOCK_PLACES + LANES]),
            step: STEP_LEAST,
            is_trapped: false,
        }
    }
}

impl Block {
    pub const CHAINS: usize = CHAINS;

    /// Begin with little again: there may be little to read.
    pub fn restart(&mut self) {
        self.step = STEP_LEAST;
    }

    /// The pieces of stretch `chain`: up to where the next stretch begins, if one begins behind some of them and a scan may
    /// restart there; or else up to the last one behind which a scan may restart. And whether the next one goes on.
    pub fn pieces(&self, chain: usize) -> (BlockPieces<'_>, bool) {
        let base = self.bases[chain];
        let places = chain * PLACES..chain * PLACES + self.counts[chain];
        let ends = &self.ends[places.clone()];
        let next = self.bases.get(chain + 1).and_then(|next| next.checked_sub(base));
        let meeting = next.and_then(|next| ends.iter().rposition(|&end| usize::from(end) == next));
        let last = meeting.or_else(|| ends.iter().rposition(|end| end & INSIDE == 0));
        let count = last.map_or(0, |last| last + 1);
        (BlockPieces { base, ends: &ends[..count], reads: &self.reads[places][..count] }, meeting.is_some())
    }
}

/// Pieces of a block, one behind the other.
#[derive(Clone, Copy)]
pub struct BlockPieces<'a> {
    /// What positions are counted from, itself from the start of the block on.
    pub base: usize,
    /// Where they end, with `INSIDE`.
    pub ends: &'a [u16],
    /// The units that settled them.
    pub reads: &'a [u16],
}

/// What the machine does with a unit.
pub struct Step {
    pub row: u32,
    /// Which end is set to where the unit begins, if there are so many.
    pub set: usize,
    /// How many of the first ends are settled.
    pub settled: usize,
    /// Whether the end that is set lies inside a match.
    pub inside: bool,
}

/// The machine, step by step.
impl Transducer {
    pub const PENDING: usize = PENDING;
    pub const START: u32 = START_ROW as u32;
    pub const TRAPPED: u32 = TRAP;

    /// What a unit of a class does in a row.
    pub fn step_of(&self, row: u32, class: u8) -> Step {
        let entry = self.table[row as usize * ROW + WIDE + usize::from(class)];
        Step {
            row: entry >> (16 + ROW.trailing_zeros()),
            set: (entry & 3) as usize,
            settled: (entry >> 8 & 0xff) as usize,
            inside: entry & SETS_INSIDE != 0,
        }
    }

    /// How many classes there are.
    pub fn classes(&self) -> u8 {
        self.classes
    }

    pub fn class_of(&self, char: char) -> u8 {
        self.by_char.of(char.into())
    }

    /// The unit of a character beyond ASCII of this class.
    pub fn unit_of(class: u8) -> u8 {
        WIDE as u8 + class
    }

    /// The unit of the character at `at`.
    pub fn unit_at(&self, text: &[u8], at: usize) -> u8 {
        match text[at] {
            ascii @ 0..0x80 => ascii,
            _ => Self::unit_of(self.by_char.of(utf8::decode(text, at).0)),
        }
    }

    /// A unit for each character of `text`, which is itself where it is ASCII. `extra`: by unit, how many more bytes than units
    /// there are before it, if there are fewer units.
    pub fn characters<'a>(&self, text: &'a [u8], units: &'a mut Vec<u8>, extra: &mut Vec<u16>) -> &'a [u8] {
        let ascii = utf8::skip_ascii(text, 0, text.len());
        if ascii == text.len() {
            return text;
        }
        let room = units.len().max(text.len() + STRIDE);
        units.resize(room, 0);
        extra.resize(room, 0);
        units[..ascii].copy_from_slice(&text[..ascii]);
        extra[..ascii].fill(0);
        let (mut at, mut to) = (ascii, ascii);
        while at < text.len() {
            // ASCII, and whatever is behind it.
            extra[to..to + STRIDE].fill((at - to) as u16);
            if let Some(stride) = text[at..].first_chunk::<STRIDE>() {
                units[to..to + STRIDE].copy_from_slice(stride);
                let ascii = utf8::ascii_prefix(stride);
                (at, to) = (at + ascii, to + ascii);
                if ascii == STRIDE {
                    continue;
                }
            }
            let (point, width) = utf8::decode(text, at);
            units[to] = if width == 1 { point as u8 } else { Self::unit_of(self.by_char.of(point)) };
            (at, to) = (at + width, to + 1);
        }
        &units[..to]
    }
}

impl Transducer {
    /// Reads some of `text`, which has at least `BLOCK_LEAST` bytes and begins where a scan may restart. `reads`: whether
    /// it matters which units were read.
    pub fn read(&self, block: &mut Block, text: &[u8], reads: bool) {
        let size = text.len().min(CHAINS * block.step + CUT_WITHIN);
        let size = if text.get(size).is_some() { utf8::floor(text, size) } else { size };
        let mut buffer = std::mem::take(&mut block.units);
        let units = self.units(&text[..size], &mut buffer);
        let length = self.place(block, units);
        match (self.is_nested, reads) {
            (false, false) => self.run::<false, false>(block, units, length),
            (false, true) => self.run::<false, true>(block, units, length),
            (true, false) => self.run::<true, false>(block, units, length),
            (true, true) => self.run::<true, true>(block, units, length),
        }
        block.units = buffer;
        block.step = if block.is_trapped { STEP_LEAST } else { (2 * block.step).min(STEP_MOST) };
    }

    /// What is to be read of a text: itself, where it is ASCII.
    fn units<'a>(&self, text: &'a [u8], units: &'a mut Vec<u8>) -> &'a [u8] {
        let mut at = utf8::skip_ascii(text, 0, text.len());
        if at == text.len() {
            return text;
        }
        units.clear();
        units.extend_from_slice(text);
        while at < text.len() {
            if text[at] < 0x80 {
                at = utf8::skip_ascii(text, at, text.len());
                continue;
            }
            let (point, width) = utf8::decode(text, at);
            units[at..at + width].fill(WITHIN);
            units[at] = WIDE as u8 + self.by_char.of(point);
            at += width;
        }
        units
    }

    /// Lays the stretches over a block. Gives how many bytes of each are read. Those without a place to begin at read what
    /// the first one does, and nobody looks at it.
    fn place(&self, block: &mut Block, units: &[u8]) -> usize {
        let step = (units.len() - CUT_WITHIN) / CHAINS;
        let (mut last, mut longest) = (0, 0);
        block.bases = [0; CHAINS];
        for n in 1..CHAINS {
            let Some(base) = self.cut(units, (step * n).max(last + 1)) else { break };
            longest = longest.max(base - last);
            block.bases[n] = base;
            last = base;
        }
        match longest {
            0 => units.len().min(PLACES - LANES),
            _ => (longest + OVERLAP).min(units.len() - last),
        }
    }

    /// Where a piece begins, at or soon behind `from`.
    fn cut(&self, units: &[u8], from: usize) -> Option<usize> {
        let window = units.get(from - 1..units.len().min(from + CUT_WITHIN))?;
        let begins =
            |pair: &[u8]| pair.iter().all(u8::is_ascii) && self.cuts[pair[0] as usize * WIDE + pair[1] as usize];
        window.windows(2).position(begins).map(|found| from + found)
    }

    /// Reads `length` bytes of each stretch. `NESTED`: whether ends can lie inside matches. `READS`: whether it is kept which
    /// units settled them.
    fn run<const NESTED: bool, const READS: bool>(&self, block: &mut Block, units: &[u8], length: usize) {
        let [a, b, c] = block.bases.map(|base| units[base..base + length].iter());
        let mut rows = [(START_ROW * ROW) as u32; CHAINS];
        let mut places: [u32; CHAINS] = std::array::from_fn(|chain| (chain * PLACES) as u32);
        for (at, ((&a, &b), &c)) in a.zip(b).zip(c).enumerate() {
            for (chain, unit) in [a, b, c].into_iter().enumerate() {
                self.step::<NESTED, READS>(block, &mut rows[chain], &mut places[chain], unit, at as u16);
            }
        }
        block.counts = std::array::from_fn(|chain| places[chain] as usize - chain * PLACES);
        block.is_trapped = rows.contains(&TRAP);
    }

    #[inline(always)]
    fn step<const NESTED: bool, const READS: bool>(
        &self,
        block: &mut Block,
        row: &mut u32,
        place: &mut u32,
        unit: u8,
        at: u16,
    ) {
        let entry = self.table[(*row | u32::from(unit)) as usize];
        let (set, inside) = match NESTED {
            true => (entry & 3, ((entry & SETS_INSIDE) << 8) as u16),
            false => (entry & 0xff, 0),
        };
        // The remainders change nothing; they show the compiler that every place exists.
        block.ends[(*place + set) as usize % BLOCK_PLACES] = at | inside;
        if READS {
            let from = *place as usize % BLOCK_PLACES;
            block.reads[from..from + LANES].copy_from_slice(&[at; LANES]);
        }
        *place += entry >> 8 & 0xff;
        *row = entry >> 16;
    }
}
