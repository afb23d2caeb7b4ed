//! Code points, as an interpreter hands them out, turned into UTF-8.

use crate::scan::utf8::WIDEST;

/// A code point that no UTF-8 text can hold: a lone surrogate.
#[derive(Debug, PartialEq, Eq)]
pub struct Unencodable;

/// Code points that are looked at together.
const STRIDE: usize = 8;
/// Code points for which room is made at a time.
const BLOCK: usize = 1 << 10;

/// `points`, none of them beyond Unicode, as UTF-8.
pub fn to_utf8(points: &[u32]) -> Result<String, Unencodable> {
    // A little room, as most characters of most long texts are ASCII.
    let mut text = Vec::with_capacity(points.len() + points.len() / 16 + STRIDE);
    for points in points.chunks(BLOCK) {
        let start = text.len();
        text.resize(start + WIDEST * points.len() + STRIDE, 0);
        let written = write(points, &mut text[start..])?;
        text.truncate(start + written);
    }
    // SAFETY: what was written is ASCII or the UTF-8 of characters. To check it again takes half as long as to make it.
    #[allow(unsafe_code)]
    Ok(unsafe { String::from_utf8_unchecked(text) })
}

/// Writes `points` to `utf8`, which has room for the widest characters and `STRIDE` bytes; gives how many bytes they take.
fn write(points: &[u32], utf8: &mut [u8]) -> Result<usize, Unencodable> {
    let (mut from, mut to) = (0, 0);
    while from < points.len() {
        let stride = points[from..].first_chunk::<STRIDE>();
        // The last points are written one by one.
        let ascii = stride.map_or(0, |stride| write_ascii(stride, &mut utf8[to..]));
        (from, to) = (from + ascii, to + ascii);
        if ascii < STRIDE {
            let character = points.get(from).map(|&point| char::from_u32(point).ok_or(Unencodable));
            if let Some(character) = character {
                to += character?.encode_utf8(&mut utf8[to..]).len();
                from += 1;
            }
        }
    }
    Ok(to)
}

/// Writes the ASCII that `points` begin with, and whatever behind it; gives how many bytes of ASCII there are.
#[inline(always)]
fn write_ascii(points: &[u32; STRIDE], utf8: &mut [u8]) -> usize {
    const BEYOND: u64 = 0x8080_8080_8080_8080;
    let bytes = narrowed(points);
    utf8[..STRIDE].copy_from_slice(&bytes.to_le_bytes());
    ((bytes & BEYOND).trailing_zeros() / 8) as usize
}

/// Each point in a byte, the first one lowest: ASCII as it is, anything else as 0x80 or more.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // The compiler makes four times as many instructions of the plain form below.
#[inline(always)]
fn narrowed(points: &[u32; STRIDE]) -> u64 {
    use std::arch::x86_64::{_mm_cvtsi128_si64, _mm_packs_epi32, _mm_packus_epi16, _mm_set_epi32};
    let [a, b, c, d, e, f, g, h] = points.map(|point| point as i32);
    // SAFETY: every x86-64 processor has SSE2, and nothing here touches memory.
    unsafe {
        // Both steps saturate.
        let halves = _mm_packs_epi32(_mm_set_epi32(d, c, b, a), _mm_set_epi32(h, g, f, e));
        _mm_cvtsi128_si64(_mm_packus_epi16(halves, halves)) as u64
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn narrowed(points: &[u32; STRIDE]) -> u64 {
    u64::from_le_bytes(points.map(|point| point.min(u8::MAX.into()) as u8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_character_is_written_as_the_standard_library_writes_it() {
        for character in '\0'..=char::MAX {
            let point = character as u32;
            assert_eq!(to_utf8(&[point]).unwrap(), character.to_string());
        }
    }

    #[test]
    fn surrogates_are_refused_wherever_they_stand() {
        for point in 0xd800..0xe000 {
            for before in [0, 1, STRIDE - 1, STRIDE, BLOCK + 1] {
                let mut points = vec![u32::from(b'a'); before];
                points.push(point);
                points.extend([0x20, 0xe9]);
                assert_eq!(to_utf8(&points), Err(Unencodable));
            }
        }
    }

    #[test]
    fn mixed_texts_of_every_length() {
        let mut random = Random(7);
        for length in (0..200).chain([BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK]) {
            for wide in [0, 2, 20, 90, 100] {
                let text: String = (0..length)
                    .map(|_| match random.below(100) < wide {
                        true => ['é', 'ß', '中', '\u{ffff}', '😀', '\u{10ffff}'][random.below(6)],
                        false => char::from(random.below(0x80) as u8),
                    })
                    .collect();
                let points: Vec<u32> = text.chars().map(u32::from).collect();
                assert_eq!(to_utf8(&points).unwrap(), text);
            }
        }
    }
}
