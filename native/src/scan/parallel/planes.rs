//! From units to the bits of their roles, 64 at a time.

/// Units of a word.
pub const WORD: usize = 64;

/// How words are made, by what the processor has.
pub trait Lanes {
    /// The four bits of the roles of some units, each in a word of its own.
    fn planes(&self, units: &[u8; WORD]) -> [u64; 4];
}

/// For any processor: a look-up for each unit.
pub struct Portable<'a> {
    pub roles: &'a [u8; 256],
}

impl Lanes for Portable<'_> {
    #[inline(always)]
    fn planes(&self, units: &[u8; WORD]) -> [u64; 4] {
        let mut planes = [0; 4];
        for (place, units) in units.chunks_exact(8).enumerate() {
            let roles =
                units.iter().rev().fold(0, |roles, &unit| roles << 8 | u64::from(self.roles[usize::from(unit)]));
            for (bit, plane) in planes.iter_mut().enumerate() {
                *plane |= gathered(roles >> bit) << (8 * place);
            }
        }
        planes
    }
}

/// The lowest bits of eight bytes, in a byte.
#[inline(always)]
fn gathered(bytes: u64) -> u64 {
    (bytes & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Roles for look-ups by the lower half of a unit, which find a bit for each upper half: those of ASCII, and others.
#[cfg(target_arch = "x86_64")]
pub struct Halves([[[u8; 16]; 2]; 4]);

#[cfg(target_arch = "x86_64")]
impl Halves {
    pub fn new(roles: &[u8; 256]) -> Self {
        let upper_halves = |bit: usize, above: usize, lower: usize| {
            let role = |upper: usize| roles[(8 * above + upper) << 4 | lower];
            (0..8).fold(0, |halves, upper| halves | (role(upper) >> bit & 1) << upper)
        };
        let tables = |bit| std::array::from_fn(|above| std::array::from_fn(|lower| upper_halves(bit, above, lower)));
        Self(std::array::from_fn(tables))
    }
}

/// For x86-64 with AVX2: 32 units at a time.
#[cfg(target_arch = "x86_64")]
pub struct Avx2<'a>(pub &'a Halves);

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2<'_> {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn planes(&self, units: &[u8; WORD]) -> [u64; 4] {
        // SAFETY: `run` makes this only where the processor has AVX2.
        unsafe { avx2::planes(self.0, units) }
    }
}

/// The processor's own instructions: a look-up for each unit takes six times as many.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Halves, WORD};

    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn planes(Halves(tables): &Halves, units: &[u8; WORD]) -> [u64; 4] {
        let first = _mm256_loadu_si256(units.as_ptr().cast());
        let second = _mm256_loadu_si256(units[WORD / 2..].as_ptr().cast());
        if _mm256_movemask_epi8(_mm256_or_si256(first, second)) != 0 {
            return of_any(tables, first, second);
        }
        let (first, second) = (Split::new(first), Split::new(second));
        let mut planes = [0; 4];
        for (plane, tables) in planes.iter_mut().zip(tables) {
            *plane = u64::from(first.ascii(tables)) | u64::from(second.ascii(tables)) << 32;
        }
        planes
    }

    /// A function of its own, as the compiler makes one of both and takes the masks apart to do so.
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    unsafe fn of_any(tables: &[[[u8; 16]; 2]; 4], first: __m256i, second: __m256i) -> [u64; 4] {
        let (first, second) = (Split::new(first), Split::new(second));
        let mut planes = [0; 4];
        for (plane, tables) in planes.iter_mut().zip(tables) {
            *plane = u64::from(first.any(tables)) | u64::from(second.any(tables)) << 32;
        }
        planes
    }

    /// 32 units: their lower halves, and the bit of each upper half among those of ASCII, and among the others.
    #[derive(Clone, Copy)]
    struct Split {
        lower: __m256i,
        ascii: __m256i,
        other: __m256i,
    }

    impl Split {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn new(units: __m256i) -> Self {
            let low = _mm256_set1_epi8(0x0f);
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(units), low);
            Self {
                lower: _mm256_and_si256(units, low),
                ascii: _mm256_shuffle_epi8(table(&[1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0]), upper),
                other: _mm256_shuffle_epi8(table(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128]), upper),
            }
        }

        /// Which units have the bit that the tables are of, where all are ASCII.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn ascii(self, [ascii, _]: &[[u8; 16]; 2]) -> u32 {
            let found = _mm256_and_si256(_mm256_shuffle_epi8(table(ascii), self.lower), self.ascii);
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(found, self.ascii)) as u32
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn any(self, [ascii, other]: &[[u8; 16]; 2]) -> u32 {
            let found = _mm256_and_si256(_mm256_shuffle_epi8(table(ascii), self.lower), self.ascii);
            let more = _mm256_and_si256(_mm256_shuffle_epi8(table(other), self.lower), self.other);
            let bits = _mm256_cmpeq_epi8(_mm256_or_si256(found, more), _mm256_or_si256(self.ascii, self.other));
            _mm256_movemask_epi8(bits) as u32
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn table(bytes: &[u8; 16]) -> __m256i {
        _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast()))
    }
}
