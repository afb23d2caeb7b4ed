//! Steps through bytes that are known to be valid UTF-8.

/// Bytes of the widest character.
pub const WIDEST: usize = 4;

/// Bytes of the character whose first byte is `lead`.
#[inline(always)]
pub fn width(lead: u8) -> usize {
    match lead {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    }
}

/// The character at `at`, which is a character boundary, and its width in bytes.
#[inline(always)]
pub fn decode(text: &[u8], at: usize) -> (u32, usize) {
    let lead = text[at] as u32;
    if lead < 0x80 {
        return (lead, 1);
    }
    let next = |i: usize| text[at + i] as u32 & 0x3f;
    if lead < 0xe0 {
        ((lead & 0x1f) << 6 | next(1), 2)
    } else if lead < 0xf0 {
        ((lead & 0x0f) << 12 | next(1) << 6 | next(2), 3)
    } else {
        ((lead & 0x07) << 18 | next(1) << 12 | next(2) << 6 | next(3), 4)
    }
}

/// Whether a character begins at `at`, or the text ends there.
#[inline(always)]
pub fn is_boundary(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|&byte| byte & 0xc0 != 0x80)
}

/// The first byte of the character that holds byte `at`.
#[inline]
pub fn floor(text: &[u8], mut at: usize) -> usize {
    while at > 0 && !is_boundary(text, at) {
        at -= 1;
    }
    at
}

/// The end of the character that holds byte `at - 1`.
#[inline]
pub fn ceil(text: &[u8], mut at: usize) -> usize {
    while !is_boundary(text, at) {
        at += 1;
    }
    at
}

/// Where the character before `at` begins; `at` > 0.
#[inline]
pub fn before(text: &[u8], at: usize) -> usize {
    floor(text, at - 1)
}

/// `bytes` as text; they come from a `str` and were cut at character boundaries only.
#[inline]
pub fn as_str(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text is cut at character boundaries")
}

const HIGH: u64 = 0x8080_8080_8080_8080;

/// How many bytes before the first one that is beyond ASCII.
#[inline(always)]
pub fn ascii_prefix(bytes: &[u8; 16]) -> usize {
    let bytes = u128::from_le_bytes(*bytes);
    let (low, high) = (bytes as u64 & HIGH, (bytes >> 64) as u64 & HIGH);
    match (low | high, low) {
        (0, _) => 16,
        (_, 0) => 8 + high.trailing_zeros() as usize / 8,
        _ => low.trailing_zeros() as usize / 8,
    }
}

/// The first position in text[from..to] whose byte is beyond ASCII, or `to`.
#[inline]
pub fn skip_ascii(text: &[u8], from: usize, to: usize) -> usize {
    let mut at = from;
    while let Some(bytes) = text[at..to].first_chunk() {
        let ascii = ascii_prefix(bytes);
        at += ascii;
        if ascii < 16 {
            return at;
        }
    }
    while at < to && text[at] < 0x80 {
        at += 1;
    }
    at
}

/// Characters of `text`.
pub fn count(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}
