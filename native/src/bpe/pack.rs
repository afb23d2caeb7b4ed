//! Short byte strings as numbers, to be hashed and compared at once.

/// At most 16 bytes, the first one lowest, with zeros behind the last.
#[inline]
pub fn packed(bytes: &[u8]) -> u128 {
    let length = bytes.len();
    if length > 8 {
        u128::from(eight(bytes, 0)) | u128::from(eight(bytes, length - 8)) << (8 * (length - 8))
    } else if length >= 4 {
        u128::from(four(bytes, 0)) | u128::from(four(bytes, length - 4)) << (8 * (length - 4))
    } else if length > 0 {
        let byte = |at: usize| u128::from(bytes[at]) << (8 * at);
        byte(0) | byte(length / 2) | byte(length - 1)
    } else {
        0
    }
}

/// The first `length` bytes of a window, at most 16, without a branch on the length.
#[inline(always)]
pub fn packed_within(window: [u8; 16], length: usize) -> u128 {
    u128::from_le_bytes(window) & FIRST_BYTES[length]
}

/// By length: ones in place of the first bytes.
static FIRST_BYTES: [u128; 17] = {
    let mut masks = [u128::MAX; 17];
    let mut length = 0;
    while length < 16 {
        masks[length] = (1 << (8 * length)) - 1;
        length += 1;
    }
    masks
};

#[inline]
fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A hash whose bits are all good: the two halves of a product.
#[inline(always)]
pub fn hash(packed: u128) -> u64 {
    let (low, high) = (packed as u64 ^ 0x9E37_79B9_7F4A_7C15, (packed >> 64) as u64 ^ 0xD6E8_FEB8_6659_FD93);
    let product = u128::from(low) * u128::from(high);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_their_places() {
        let text = b"abcdefghijklmnopqrstuvwxyz";
        for length in 0..=16 {
            let mut plain = [0; 16];
            plain[..length].copy_from_slice(&text[..length]);
            assert_eq!(packed(&text[..length]), u128::from_le_bytes(plain));
            assert_eq!(packed_within(*text.first_chunk().unwrap(), length), u128::from_le_bytes(plain));
        }
    }
}
