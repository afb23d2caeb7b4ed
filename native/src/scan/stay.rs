//! Steps over a run of bytes at which an automaton stays in its state, eight at a time.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x80 * ONES;
/// What lower and upper case letters differ in.
const CASE: u64 = 0x20 * ONES;

/// A range of ASCII bytes at which a state stays.
pub struct Stay {
    /// Bits that are set before the comparison.
    fold: u64,
    /// Added to a byte of 7 bits these set the high bit if it is not below the range, and if it is above it.
    from: u64,
    above: u64,
    /// Whether a match may end right before each byte of the run.
    pub accepts: bool,
}

impl Stay {
    /// The range to use of the ASCII bytes at which a state stays: letters if they are among them, or the space, or
    /// the longest.
    pub fn new(set: &[bool], accepts: bool) -> Option<Self> {
        let holds = |mut bytes: std::ops::RangeInclusive<u8>| bytes.all(|byte| set[byte as usize]);
        let stay = |fold: u64, first: u8, last: u8| Self {
            fold,
            from: u64::from(0x80 - first) * ONES,
            above: u64::from(0x7f - last) * ONES,
            accepts,
        };
        if holds(b'a'..=b'z') {
            let fold = if holds(b'A'..=b'Z') { CASE } else { 0 };
            return Some(stay(fold, b'a', b'z'));
        }
        if holds(b' '..=b' ') {
            return Some(stay(0, b' ', b' '));
        }
        let ranges = set.chunk_by(|a, b| a == b).scan(0, |start, range| {
            let first = *start;
            *start += range.len();
            Some((range[0], range.len(), first))
        });
        let (_, length, first) = ranges.filter(|range| range.0).max_by_key(|range| range.1)?;
        Some(stay(0, first as u8, (first + length - 1) as u8))
    }

    /// How many of the eight bytes of a word, from the lowest on, lie in the range without a break.
    #[inline(always)]
    pub fn steps(&self, word: u64) -> usize {
        let bytes = (word | self.fold) & !HIGH;
        let inside = (bytes + self.from) & !(bytes + self.above) & !word & HIGH;
        ((inside ^ HIGH).trailing_zeros() / 8) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_over_what_is_in_the_range_and_no_more() {
        for set in ["az", "AZaz", " ", "09", "!/:@", "\0\x7f"] {
            let ranges: Vec<u8> = set.bytes().collect();
            let mut holds = [false; 128];
            ranges.chunks(2).for_each(|r| (r[0]..=*r.last().unwrap()).for_each(|byte| holds[byte as usize] = true));
            let stay = Stay::new(&holds, false).unwrap();
            let inside = |byte: u8| stay.steps(u64::from_le_bytes([byte; 8])) == 8;
            assert!((0..=255).filter(|&byte| inside(byte)).all(|byte| byte < 0x80 && holds[byte as usize]), "{set:?}");
            assert!((0..=255).any(inside));
            let some = (0..128).find(|&byte| inside(byte)).unwrap();
            for byte in (0..=255).filter(|&byte| !inside(byte)) {
                for at in 0..8 {
                    let mut bytes = [some; 8];
                    bytes[at] = byte;
                    assert_eq!(stay.steps(u64::from_le_bytes(bytes)), at, "{set:?} {byte}");
                    bytes[at..].fill(0xff);
                    assert_eq!(stay.steps(u64::from_le_bytes(bytes)), at, "{set:?}");
                }
            }
        }
        assert!(Stay::new(&[false; 128], true).is_none());
    }
}
