//! UTF-32, as an interpreter hands it out, turned into UTF-8.

use crate::scan::utf8;

/// A code point that no UTF-8 text can hold: a lone surrogate, or one beyond Unicode.
#[derive(Debug, PartialEq, Eq)]
pub struct Unencodable;

/// Code points narrowed at a time.
const BLOCK: usize = 1 << 10;

/// Stands for what is not ASCII among narrowed code points.
const BEYOND: u8 = 0x80;

/// `points` as UTF-8.
pub fn to_utf8(points: &[u32]) -> Result<String, Unencodable> {
    // A little room, as most characters of most long texts are ASCII.
    let mut text = Vec::with_capacity(points.len() + points.len() / 16);
    let mut narrowed = [0; BLOCK];
    for points in points.chunks(BLOCK) {
        let narrowed = &mut narrowed[..points.len()];
        narrow(points, narrowed);
        let mut at = 0;
        while at < points.len() {
            let ascii = utf8::skip_ascii(narrowed, at, points.len());
            text.extend_from_slice(&narrowed[at..ascii]);
            at = ascii;
            while at < points.len() && narrowed[at] == BEYOND {
                let character = char::from_u32(points[at]).ok_or(Unencodable)?;
                text.extend_from_slice(character.encode_utf8(&mut [0; utf8::WIDEST]).as_bytes());
                at += 1;
            }
        }
    }
    // SAFETY: what was appended is ASCII or the UTF-8 of characters. To check it again takes half as long as to make it.
    #[allow(unsafe_code)]
    Ok(unsafe { String::from_utf8_unchecked(text) })
}

/// ASCII as it is, and `BEYOND` for all else; without a branch, so that it runs in vectors.
fn narrow(points: &[u32], narrowed: &mut [u8]) {
    for (byte, &point) in narrowed.iter_mut().zip(points) {
        *byte = if point < 0x80 { point as u8 } else { BEYOND };
    }
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
    fn what_is_no_character_is_refused_wherever_it_stands() {
        for point in (0xd800..0xe000).chain([0x11_0000, u32::MAX]) {
            for before in [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 1] {
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
