// Added tokens: where they stand. Nothing is decided between tokens that overlap; such a text goes to the host.
#include "common.cuh"
#include "hash.cuh"

#define SECOND_SEARCH (1u << 30)
#define FOR_THE_HOST (1u << 31)

// Forget what the launch before found. One block a tile.
extern "C" __global__ void __launch_bounds__(THREADS) clear_marks(
    const Header* header, u32* heads, u32* insides, u32* queue_sizes, u32 queues, u32* refusals) {
  if (blockIdx.x >= header->tiles) return;
  const u32 words = TILE / 32;
  u32 at = blockIdx.x * words + threadIdx.x % words;
  if (threadIdx.x < words) heads[at] = 0; else insides[at] = 0;
  if (blockIdx.x) return;
  if (threadIdx.x < queues) queue_sizes[threadIdx.x] = 0;
  for (u32 i = threadIdx.x; i < header->texts; i += THREADS) refusals[i] = 0;
}

// The longest token at each byte goes into the byte's slot. `heads` gets a bit for its first byte, `insides` for each
// of the others. One block a tile.
extern "C" __global__ void __launch_bounds__(THREADS) find_added(
    const Header* header, const u32* text_starts, const u8* text, const StringSlot* contents, u32 contents_mask,
    const u8* pool, const u32* lengths, u32 n_lengths, const u32* prefixes, u32* heads, u32* insides, u32* slots,
    u32* refusals) {
  if (blockIdx.x >= header->tiles) return;
  u32 tile = blockIdx.x * TILE, limit = header->tiles * TILE;
  for (u32 at = tile + threadIdx.x; at < tile + TILE; at += THREADS) {
    u32 prefix = (u32)text[at] << 8 | text[at + 1], found = NONE, length = 0;
    for (u32 i = 0; i < n_lengths && prefixes[prefix / 32] >> prefix % 32 & 1; i++) {
      if (at + lengths[i] > limit) continue;
      u32 value = find_string(text, at, lengths[i], contents, contents_mask, pool);
      if (value == NONE) continue;
      if (value & FOR_THE_HOST || (found != NONE && (found ^ value) & SECOND_SEARCH)) {
        refuse(header, text_starts, refusals, at, REFUSED_ADDED_TOKENS);
      }
      if (found == NONE) { found = value; length = lengths[i]; }
    }
    slots[at] = found == NONE ? NONE : found & ~(SECOND_SEARCH | FOR_THE_HOST);
    if (found == NONE) continue;
    atomicOr(&heads[at / 32], 1u << at % 32);
    for (u32 i = at + 1; i < at + length; i++) atomicOr(&insides[i / 32], 1u << i % 32);
  }
}
