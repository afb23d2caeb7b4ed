// What all kernels share: types, sizes, and how a text lies in memory.
//
// The texts of a launch lie in one buffer, each between two separators: bytes 0xff, which no UTF-8 holds. What is
// behind the last one, up to the end of its tile, is separators too. A tile is what a block of threads works on. Grids
// are sized for the buffer and not for the text, so a block first asks whether there is a tile for it.
//
// The same source is compiled for the CPU by the tests (tests/cuda_on_cpu). Blocks never wait for each other: what one
// block must know of others comes from the kernel before.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 256
#define WARP 32
#define WARPS (THREADS / WARP)
#define BYTES_PER_THREAD 16
#define TILE (THREADS * BYTES_PER_THREAD)
#define EVERY_LANE 0xffffffffu

// In place of an id, a rank or a position: there is none.
#define NONE 0xffffffffu
// A byte that begins and ends texts.
#define SEPARATOR 0xffu
// Where the first text starts.
#define FIRST_TEXT 1u
// In place of a class or a label: no character begins at this byte.
#define NOTHING 0xffu

// Longest pieces in bytes that a warp merges in registers, a warp in shared memory, and a block.
#define SHORT_PIECE 32u
#define MEDIUM_PIECE 128u
#define LONG_PIECE 4096u

// Why a text is refused; the higher number wins. gpu_worker/chain.py has the same numbers.
#define REFUSED_NORMALIZATION 1u
#define REFUSED_ADDED_TOKENS 2u
#define REFUSED_PIECE_TOO_LONG 3u
#define REFUSED_INVALID_UTF8 4u

// The head of the input buffer.
struct Header {
  u32 tiles;  // that hold text or separators
  u32 texts;
};

__device__ __forceinline__ u32 lane_of_thread() { return threadIdx.x % WARP; }
__device__ __forceinline__ u32 warp_of_thread() { return threadIdx.x / WARP; }

// The text that holds a position: the last one that starts at it or before it. `text_starts` has one more entry than
// there are texts: where the next one would start.
__device__ __forceinline__ u32 text_at(const u32* text_starts, u32 texts, u32 position) {
  u32 low = 0, high = texts;
  while (high - low > 1) {
    u32 middle = (low + high) / 2;
    if (text_starts[middle] <= position) low = middle; else high = middle;
  }
  return low;
}

// Whether the byte at a position, which is a separator, is one of those around texts.
__device__ __forceinline__ bool is_between_texts(const Header* header, const u32* text_starts, u32 position) {
  if (position + 1 >= text_starts[header->texts] || position + 1 == FIRST_TEXT) return true;
  return position + 1 == text_starts[text_at(text_starts, header->texts, position) + 1];
}

__device__ __forceinline__ void refuse(
    const Header* header, const u32* text_starts, u32* refusals, u32 position, u32 why) {
  atomicMax(&refusals[text_at(text_starts, header->texts, position)], why);
}

// Bits [position, position + 16) of a bit set; position is a multiple of 16.
__device__ __forceinline__ u32 sixteen_bits(const u32* bits, u32 position) {
  return bits[position / 32] >> position % 32 & 0xffffu;
}
