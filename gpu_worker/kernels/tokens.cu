// The model: tokens of pieces. A token goes to the slot of its first byte, so the slot is its offset.
#include "common.cuh"
#include "hash.cuh"
#include "merge.cuh"
#include "scan.cuh"

struct Piece {
  u32 start, length;
};

// Where the first piece, added token or separator behind this block's tile begins; NONE if a piece that reaches it from
// this tile is too long to merge.
__device__ __forceinline__ u32 begin_behind_tile(const u32* first_of_tile, u32 tiles) {
  for (u32 tile = blockIdx.x + 1; tile < tiles && tile <= blockIdx.x + LONG_PIECE / TILE; tile++) {
    if (first_of_tile[tile] != NONE) return first_of_tile[tile];
  }
  return NONE;
}

// Pieces that are one token, most of them, get it here; the others go to the queue for their length. One block a tile.
extern "C" __global__ void __launch_bounds__(THREADS) encode_pieces(
    const Header* header, const u32* text_starts, const u8* text, const u32* begins, const u32* first_of_tile,
    const StringSlot* whole, u32 whole_mask, const u8* pool, u32 longest, u32* slots, u32* queue_sizes,
    Piece* short_queue, Piece* medium_queue, Piece* long_queue, u32* refusals) {
  __shared__ u16 places[TILE], missed[TILE / 2];
  __shared__ u32 partial[WARPS], missed_count, behind_tile, queue_place;
  if (blockIdx.x >= header->tiles) return;
  u32 tile = blockIdx.x * TILE, mine = threadIdx.x * BYTES_PER_THREAD, count;
  u32 bits = sixteen_bits(begins, tile + mine);
  u32 to = BlockGroup{partial}.sum_before(__popc(bits), count);
  for (; bits; bits &= bits - 1) places[to++] = (u16)(mine + __ffs(bits) - 1);
  if (threadIdx.x == 0) {
    behind_tile = begin_behind_tile(first_of_tile, header->tiles);
    missed_count = 0;
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < count; i += THREADS) {
    u32 start = tile + places[i], end = i + 1 < count ? tile + places[i + 1] : behind_tile, length = end - start;
    if (text[start] == SEPARATOR || slots[start] != NONE) continue;
    u32 id = length <= longest ? find_string(text, start, length, whole, whole_mask, pool) : NONE;
    if (id != NONE) slots[start] = id;
    else if (length <= SHORT_PIECE) missed[atomicAdd(&missed_count, 1u)] = (u16)i;
    else if (length <= MEDIUM_PIECE) medium_queue[atomicAdd(&queue_sizes[1], 1u)] = {start, length};
    else if (length <= LONG_PIECE) long_queue[atomicAdd(&queue_sizes[2], 1u)] = {start, length};
    else refuse(header, text_starts, refusals, start, REFUSED_PIECE_TOO_LONG);
  }
  __syncthreads();
  if (threadIdx.x == 0) queue_place = atomicAdd(&queue_sizes[0], missed_count);
  __syncthreads();
  for (u32 k = threadIdx.x; k < missed_count; k += THREADS) {
    u32 i = missed[k], start = tile + places[i], end = i + 1 < count ? tile + places[i + 1] : behind_tile;
    short_queue[queue_place + k] = {start, end - start};
  }
}

// Pieces of at most SHORT_PIECE bytes, a warp each.
extern "C" __global__ void __launch_bounds__(THREADS) merge_short(
    const u8* text, const Piece* queue, const u32* queue_sizes, const u64* pair_slots, u32 pair_mask,
    const u32* products, const u32* byte_ids, u32* slots) {
  const Merges merges = {pair_slots, pair_mask, products, byte_ids};
  for (u32 i = blockIdx.x * WARPS + warp_of_thread(); i < queue_sizes[0]; i += gridDim.x * WARPS) {
    merge_in_lanes(text, queue[i].start, queue[i].length, merges, slots);
  }
}

// Pieces of at most MEDIUM_PIECE bytes, a warp each.
extern "C" __global__ void __launch_bounds__(THREADS) merge_medium(
    const u8* text, const Piece* queue, const u32* queue_sizes, const u64* pair_slots, u32 pair_mask,
    const u32* products, const u32* byte_ids, u32* slots) {
  __shared__ u32 ids[WARPS][MEDIUM_PIECE], ranks[WARPS][MEDIUM_PIECE];
  __shared__ u16 places[WARPS][MEDIUM_PIECE];
  const Merges merges = {pair_slots, pair_mask, products, byte_ids};
  const u32 warp = warp_of_thread();
  for (u32 i = blockIdx.x * WARPS + warp; i < queue_sizes[1]; i += gridDim.x * WARPS) {
    merge_in_group<WarpGroup, MEDIUM_PIECE / WARP>(
        WarpGroup(), text, queue[i].start, queue[i].length, merges, ids[warp], ranks[warp], places[warp], slots);
  }
}

// Pieces of at most LONG_PIECE bytes, a block each.
extern "C" __global__ void __launch_bounds__(THREADS) merge_long(
    const u8* text, const Piece* queue, const u32* queue_sizes, const u64* pair_slots, u32 pair_mask,
    const u32* products, const u32* byte_ids, u32* slots) {
  __shared__ u32 ids[LONG_PIECE], ranks[LONG_PIECE], partial[WARPS];
  __shared__ u16 places[LONG_PIECE];
  const Merges merges = {pair_slots, pair_mask, products, byte_ids};
  for (u32 i = blockIdx.x; i < queue_sizes[2]; i += gridDim.x) {
    merge_in_group<BlockGroup, LONG_PIECE / THREADS>(
        BlockGroup{partial}, text, queue[i].start, queue[i].length, merges, ids, ranks, places, slots);
  }
}
