// UTF-8.
#pragma once
#include "common.cuh"

__device__ __forceinline__ bool is_continuation(u32 byte) { return (byte & 0xC0) == 0x80; }

// The code point of the character that begins at a byte which is no continuation, or NONE if there is none in UTF-8.
// `after` becomes the position behind it. What follows the text is a separator, which is no continuation.
__device__ __forceinline__ u32 decode(const u8* text, u32 at, u32 first, u32& after) {
  u32 width = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  after = at + width;
  if (width == 1) return first;
  u32 point = first & (0x7Fu >> width);
  for (u32 i = 1; i < width; i++) {
    u32 byte = text[at + i];
    if (!is_continuation(byte)) return NONE;
    point = point << 6 | (byte & 0x3F);
  }
  const u32 least = width == 2 ? 0x80 : width == 3 ? 0x800 : 0x10000;
  bool is_surrogate = point >= 0xD800 && point < 0xE000;
  return first > 0xF4 || point < least || point > 0x10FFFF || is_surrogate ? NONE : point;
}
