//! Some text that was read: where pieces begin in it, by units, and where they end, by bytes.

use super::planes::WORD;
use super::program::Tape;

/// Bytes of text that are read at once: little to begin with, as there may be little to read.
pub const BLOCK_LEAST: usize = if IS_SMALL { 16 } else { 256 };
pub const BLOCK_MOST: usize = if IS_SMALL { 200 } else { 4096 };
const IS_SMALL: bool = cfg!(feature = "small-chunks");

/// Places for the ends of a block, and for a word of others.
pub type Ends = [u16; BLOCK_MOST + WORD];

/// Some text that was read, and the ends of its pieces.
pub struct Block {
    /// What is read in place of text beyond ASCII.
    pub units: Vec<u8>,
    /// By unit: how many more bytes than units there are before it, where there are fewer units.
    pub extra: Vec<u16>,
    pub begins: [u64; BLOCK_MOST.div_ceil(WORD)],
    pub ends: Box<Ends>,
    /// How many ends there are.
    pub count: usize,
    /// Bytes to be read next.
    pub size: usize,
    /// Whether the program came to what it does not understand.
    pub is_stopped: bool,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            units: Vec::new(),
            extra: Vec::new(),
            begins: [0; BLOCK_MOST.div_ceil(WORD)],
            ends: Box::new([0; BLOCK_MOST + WORD]),
            count: 0,
            size: BLOCK_LEAST,
            is_stopped: false,
        }
    }
}

impl Block {
    /// Begin with little again.
    pub fn restart(&mut self) {
        self.size = BLOCK_LEAST;
    }

    /// Where pieces end, from the beginning of the block on.
    pub fn ends(&self) -> &[u16] {
        &self.ends[..self.count]
    }
}

/// What a block has of the steps that come.
pub struct Words<'a> {
    pub units: &'a [u8],
    pub begins: &'a mut [u64],
}

impl Tape for Words<'_> {
    #[inline(always)]
    fn unit(&self, at: usize) -> u8 {
        self.units.get(at).copied().unwrap_or_default()
    }

    #[inline(always)]
    fn mark(&mut self, at: usize, begins: bool) {
        let word = &mut self.begins[at / WORD];
        *word = *word & !(1 << (at % WORD)) | u64::from(begins) << (at % WORD);
    }
}

/// The places of the bits but the first, up to place `end`. Gives how many there are.
#[inline(always)]
pub fn spread(words: &[u64], end: usize, places: &mut Ends) -> usize {
    let mut count = 0;
    for (number, &word) in words[..end.div_ceil(WORD)].iter().enumerate() {
        let at = number * WORD;
        let mut bits = if end - at < WORD { word & ((1 << (end - at)) - 1) } else { word };
        if number == 0 {
            bits &= !1;
        }
        let total = bits.count_ones() as usize;
        for places in places[count..count + WORD].chunks_exact_mut(8) {
            for place in places {
                *place = (at as u32 + bits.trailing_zeros()) as u16;
                bits &= bits.wrapping_sub(1);
            }
            if bits == 0 {
                break;
            }
        }
        count += total;
    }
    count
}

/// From numbers of units to bytes, by how many more bytes than units there are before each.
pub fn to_bytes(places: &mut [u16], extra: &[u16]) {
    for place in places {
        *place += extra[usize::from(*place)];
    }
}
