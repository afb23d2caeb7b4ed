//! A growable row of bits.

#[derive(Clone, Default)]
pub struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    pub fn with_room(bits: usize) -> Self {
        Self { words: Vec::with_capacity(bits.div_ceil(64)), len: 0 }
    }

    pub fn count(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn get(&self, index: usize) -> bool {
        self.words[index / 64] >> (index % 64) & 1 != 0
    }

    #[inline(always)]
    pub fn push(&mut self, bit: bool) {
        if self.len % 64 == 0 {
            self.words.push(0);
        }
        self.words[self.len / 64] |= (bit as u64) << (self.len % 64);
        self.len += 1;
    }

    /// `count` zeros.
    #[inline(always)]
    pub fn push_zeros(&mut self, count: usize) {
        if count > 0 {
            self.len += count;
            self.words.resize(self.len.div_ceil(64), 0);
        }
    }

    /// `count` ones.
    #[inline(always)]
    pub fn push_ones(&mut self, count: usize) {
        let len = self.len + count;
        if self.len % 64 != 0 {
            self.words[self.len / 64] |= u64::MAX << (self.len % 64);
        }
        self.words.resize(len.div_ceil(64), u64::MAX);
        if len % 64 != 0 {
            self.words[len / 64] &= (1 << (len % 64)) - 1;
        }
        self.len = len;
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = len;
        self.words.truncate(len.div_ceil(64));
        if len % 64 != 0 {
            self.words[len / 64] &= (1 << (len % 64)) - 1;
        }
    }

    /// 64 bits from `index` on; what lies beyond the end is 0.
    fn word_at(&self, index: usize) -> u64 {
        let shift = index % 64;
        let word = |i: usize| self.words.get(i).copied().unwrap_or(0);
        let low = word(index / 64) >> shift;
        if shift == 0 {
            low
        } else {
            low | word(index / 64 + 1) << (64 - shift)
        }
    }

    /// The bits from `from` on, as a row of their own.
    pub fn tail(&self, from: usize) -> Self {
        let mut tail = Self::default();
        tail.extend(self, from);
        tail
    }

    /// Append the bits of `other` from `from` on.
    pub fn extend(&mut self, other: &Self, from: usize) {
        let count = other.len - from;
        let shift = self.len % 64;
        let old = self.len;
        self.push_zeros(count);
        for i in (0..count).step_by(64) {
            let word = other.word_at(from + i);
            let at = (old + i) / 64;
            self.words[at] |= word << shift;
            if shift != 0 && at + 1 < self.words.len() {
                self.words[at + 1] |= word >> (64 - shift);
            }
        }
    }

    /// The last set bit at or before `index`.
    pub fn last_set(&self, index: usize) -> Option<usize> {
        let mut at = index / 64;
        let mut word = self.words.get(at)? & (u64::MAX >> (63 - index % 64));
        while word == 0 {
            at = at.checked_sub(1)?;
            word = self.words[at];
        }
        Some(at * 64 + 63 - word.leading_zeros() as usize)
    }

    /// Eight bits a byte, the first one lowest; zeros behind the last.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.len.div_ceil(8));
        bytes
    }

    pub fn shrink(&mut self) {
        self.words.shrink_to_fit();
    }

    pub fn heap_bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}
