// The answer: tokens and pieces of all tiles side by side, each with its position counted from the first text's start.
#include "common.cuh"
#include "scan.cuh"

// How many tokens a tile has, and above them in the same number how many pieces.
#define PIECES_SHIFT 16

// A bit for each of a thread's bytes at which a token begins, and one for each at which a piece does.
__device__ __forceinline__ u32 token_bits(const u32* slots, u32 first) {
  u32 bits = 0;
  #pragma unroll
  for (int i = 0; i < BYTES_PER_THREAD; i++) bits |= (u32)(slots[first + i] != NONE) << i;
  return bits;
}

__device__ __forceinline__ u32 piece_bits(const u8* text, const u32* begins, u32 first) {
  u32 bits = sixteen_bits(begins, first);
  #pragma unroll
  for (int i = 0; i < BYTES_PER_THREAD; i++) if (text[first + i] == SEPARATOR) bits &= ~(1u << i);
  return bits;
}

// One block a tile.
extern "C" __global__ void __launch_bounds__(THREADS) count_tokens(
    const Header* header, const u8* text, const u32* begins, const u32* slots, u32* counts) {
  __shared__ u32 partial[WARPS];
  if (blockIdx.x >= header->tiles) return;
  u32 first = blockIdx.x * TILE + threadIdx.x * BYTES_PER_THREAD, total;
  u32 pieces = __popc(piece_bits(text, begins, first));
  BlockGroup{partial}.sum_before(__popc(token_bits(slots, first)) | pieces << PIECES_SHIFT, total);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// `totals` gets the number of tokens and that of pieces. One block a tile.
extern "C" __global__ void __launch_bounds__(THREADS) gather_tokens(
    const Header* header, const u8* text, const u32* begins, const u32* slots, const u32* counts, u32* ids, u32* starts,
    u32* pieces, u32* totals) {
  __shared__ u32 partial[WARPS];
  if (blockIdx.x >= header->tiles) return;
  const BlockGroup block = {partial};
  u32 tokens_before = 0, pieces_before = 0, n_tokens, n_pieces;
  for (u32 tile = threadIdx.x; tile < blockIdx.x; tile += THREADS) {
    tokens_before += counts[tile] & ((1u << PIECES_SHIFT) - 1);
    pieces_before += counts[tile] >> PIECES_SHIFT;
  }
  block.sum_before(tokens_before, tokens_before);
  block.sum_before(pieces_before, pieces_before);
  u32 first = blockIdx.x * TILE + threadIdx.x * BYTES_PER_THREAD;
  u32 token = token_bits(slots, first), piece = piece_bits(text, begins, first);
  u32 to = tokens_before + block.sum_before(__popc(token), n_tokens);
  for (; token; token &= token - 1) {
    u32 at = first + __ffs(token) - 1;
    ids[to] = slots[at];
    starts[to++] = at - FIRST_TEXT;
  }
  to = pieces_before + block.sum_before(__popc(piece), n_pieces);
  for (; piece; piece &= piece - 1) pieces[to++] = first + __ffs(piece) - 1 - FIRST_TEXT;
  if (threadIdx.x == 0 && blockIdx.x == header->tiles - 1) {
    totals[0] = tokens_before + n_tokens;
    totals[1] = pieces_before + n_pieces;
  }
}
