//! The class of every unit (Unicode character, or byte) that an automaton reads.

/// Characters in a block of the two-stage table.
const BLOCK: usize = 256;
const CODE_POINTS: usize = 0x11_0000;

/// Class by code point, two-stage: most blocks of the code space are alike and stored once.
pub struct CharClasses {
    block_of: Vec<u16>,
    blocks: Vec<[u8; BLOCK]>,
}

impl CharClasses {
    /// `classes`: the class of each of the 0x110000 code points.
    pub fn new(classes: &[u8]) -> Result<Self, String> {
        if classes.len() != CODE_POINTS {
            return Err(format!("{} character classes instead of {CODE_POINTS}", classes.len()));
        }
        let mut blocks: Vec<[u8; BLOCK]> = Vec::new();
        let mut block_of = Vec::with_capacity(CODE_POINTS / BLOCK);
        let mut known = std::collections::HashMap::new();
        for chunk in classes.chunks_exact(BLOCK) {
            let mut block = [0; BLOCK];
            block.copy_from_slice(chunk);
            let next = blocks.len();
            let index = *known.entry(block).or_insert(next);
            if index == next {
                blocks.push(block);
            }
            block_of.push(index as u16);
        }
        Ok(Self { block_of, blocks })
    }

    /// The classes of characters by several divisions at once. `class`: of the characters that have these in each.
    pub fn joint(divisions: &[&Self], mut class: impl FnMut(Vec<u8>) -> u8) -> Self {
        let mut joint = Self { block_of: Vec::with_capacity(CODE_POINTS / BLOCK), blocks: Vec::new() };
        let mut known = std::collections::HashMap::new();
        for block in 0..CODE_POINTS / BLOCK {
            let of_each: Vec<u16> = divisions.iter().map(|division| division.block_of[block]).collect();
            let index = *known.entry(of_each.clone()).or_insert_with(|| {
                let blocks = divisions.iter().zip(of_each).map(|(division, block)| &division.blocks[block as usize]);
                let blocks: Vec<&[u8; BLOCK]> = blocks.collect();
                joint.blocks.push(std::array::from_fn(|at| class(blocks.iter().map(|block| block[at]).collect())));
                joint.blocks.len() - 1
            });
            joint.block_of.push(index as u16);
        }
        joint
    }

    #[inline(always)]
    pub fn of(&self, code_point: u32) -> u8 {
        let block = self.block_of[code_point as usize / BLOCK] as usize;
        self.blocks[block][code_point as usize % BLOCK]
    }
}

/// A set of code points.
pub struct CharSet(CharClasses);

impl CharSet {
    pub fn from_fn(mut holds: impl FnMut(char) -> bool) -> Self {
        let bits: Vec<u8> =
            (0..CODE_POINTS as u32).map(|point| char::from_u32(point).is_some_and(&mut holds) as u8).collect();
        Self(CharClasses::new(&bits).expect("one entry for each code point"))
    }

    #[inline(always)]
    pub fn contains(&self, code_point: u32) -> bool {
        self.0.of(code_point) != 0
    }
}
