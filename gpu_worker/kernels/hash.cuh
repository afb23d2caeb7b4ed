// Look-ups in the tables of gpu_worker/compiler/hashing.py.
#pragma once
#include "common.cuh"

#define ID_BITS 18
#define RANK_BITS 20
#define INLINE_BYTES 16u

// A slot of a table of byte strings: up to INLINE_BYTES bytes are in low and high; of longer ones low is a hash, and
// the bytes are in the pool. A free slot has the length 0.
struct StringSlot {
  u64 low, high;
  u32 value, length, offset, pad;
};

__device__ __forceinline__ u64 mix(u64 key) {
  key = (key ^ key >> 32) * 0x9E3779B97F4A7C15ull;
  key = (key ^ key >> 29) * 0xBF58476D1CE4E5B9ull;
  return key ^ key >> 32;
}

// Bytes [at, at + length) of a text, the first one lowest, at most eight and zeros behind them. Reads whole words, so
// the buffer of a text has eight bytes more.
__device__ __forceinline__ u64 eight_bytes(const u8* text, u32 at, u32 length) {
  const u64* words = (const u64*)text + at / 8;
  u32 shift = at % 8 * 8;
  u64 value = words[0] >> shift;
  if (shift) value |= words[1] << (64 - shift);
  return length < 8 ? value & ((1ull << length * 8) - 1) : value;
}

__device__ __forceinline__ bool same_bytes(const u8* text, u32 at, u32 length, const u8* other) {
  for (u32 i = 0; i < length; i++) if (text[at + i] != other[i]) return false;
  return true;
}

// The value of the string text[at, at + length), or NONE; length > 0.
__device__ __forceinline__ u32 find_string(
    const u8* text, u32 at, u32 length, const StringSlot* slots, u32 mask, const u8* pool) {
  u64 low = 0, high = 0;
  if (length <= INLINE_BYTES) {
    low = eight_bytes(text, at, length);
    if (length > 8) high = eight_bytes(text, at + 8, length - 8);
  } else {
    low = length;
    for (u32 i = 0; i < length; i += 8) low = mix(low ^ eight_bytes(text, at + i, length - i)) + 0x632BE59BD9B4E019ull;
  }
  for (u32 slot = (u32)mix(low + 0x9E3779B97F4A7C15ull * high + length) & mask;; slot = (slot + 1) & mask) {
    const StringSlot found = slots[slot];
    if (found.length == 0) return NONE;
    if (found.length != length || found.low != low || found.high != high) continue;
    if (length <= INLINE_BYTES || same_bytes(text, at, length, pool + found.offset)) return found.value;
  }
}

// The rank of a pair of tokens, or NONE.
__device__ __forceinline__ u32 find_pair(u32 left, u32 right, const u64* slots, u32 mask) {
  u64 key = (u64)left << ID_BITS | right;
  for (u32 slot = (u32)mix(key) & mask;; slot = (slot + 1) & mask) {
    u64 found = slots[slot];
    if (found == ~0ull) return NONE;
    if (found >> RANK_BITS == key) return (u32)found & ((1u << RANK_BITS) - 1);
  }
}
