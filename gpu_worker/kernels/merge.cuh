// Byte pair merging of one piece: the pair of lowest rank, the leftmost of equals, until no pair merges.
//
// In a round all occurrences of the lowest rank are merged, from the left, where that is certain to be the same as one
// at a time (gpu_worker/compiler/vocabulary.py, AT_ONCE); elsewhere the first one alone.
#pragma once
#include "hash.cuh"
#include "scan.cuh"

#define AT_ONCE (1u << 31)
// In place of a rank: one of the two tokens is new.
#define NOT_LOOKED_UP 0xfffffffeu

struct Merges {
  const u64* pair_slots;
  u32 pair_mask;
  const u32* products;
  const u32* byte_ids;
  __device__ __forceinline__ u32 rank(u32 left, u32 right) const {
    return find_pair(left, right, pair_slots, pair_mask);
  }
};

// A piece of at most SHORT_PIECE bytes by a warp, a byte a lane. A token stays in the lane of its first byte.
__device__ __forceinline__ void merge_in_lanes(
    const u8* text, u32 start, u32 length, const Merges& merges, u32* slots) {
  const u32 lane = lane_of_thread(), up_to_me = (2u << lane) - 1;
  u32 tokens = length < WARP ? (1u << length) - 1 : EVERY_LANE;  // a bit for each lane that holds one
  u32 id = lane < length ? merges.byte_ids[text[start + lane]] : NONE;
  u32 next_id = __shfl_down_sync(EVERY_LANE, id, 1);
  u32 rank = lane + 1 < length ? merges.rank(id, next_id) : NONE;
  for (;;) {
    u32 lowest = __reduce_min_sync(EVERY_LANE, rank);
    if (lowest == NONE) break;
    u32 product = merges.products[lowest];
    u32 left = __ballot_sync(EVERY_LANE, rank == lowest), chosen = 0;
    do {
      u32 first = left & -left, second = tokens & ~(first * 2 - 1);
      second &= -second;
      chosen |= first;
      left &= ~(first | second);
    } while (left && product & AT_ONCE);
    u32 before = tokens & up_to_me >> 1;  // the tokens before mine
    bool taken = before && chosen >> (31 - __clz(before)) & 1;
    u32 mine = tokens >> lane & 1 && !taken;
    tokens = __ballot_sync(EVERY_LANE, mine);
    u32 after = tokens & ~up_to_me, next = after ? __ffs(after) - 1 : lane;
    if (chosen >> lane & 1) id = product & ~AT_ONCE;
    next_id = __shfl_sync(EVERY_LANE, id, next);
    if (!mine || !after) rank = NONE;
    else if ((chosen >> lane | chosen >> next) & 1) rank = merges.rank(id, next_id);
  }
  if (tokens >> lane & 1) slots[start + lane] = id;
}

// A piece of at most Group::SIZE * ITEMS bytes by a group of threads, which has shared memory for so many tokens. They
// lie there without gaps; a thread looks after ITEMS of them that lie side by side.
template <class Group, int ITEMS>
__device__ __forceinline__ void merge_in_group(
    const Group& group, const u8* text, u32 start, u32 length, const Merges& merges, u32* ids, u32* ranks, u16* places,
    u32* slots) {
  const u32 first = group.thread() * ITEMS;
  for (u32 i = group.thread(); i < length; i += Group::SIZE) {
    ids[i] = merges.byte_ids[text[start + i]];
    ranks[i] = i + 1 < length ? NOT_LOOKED_UP : NONE;
    places[i] = (u16)i;
  }
  group.sync();
  for (u32 count = length;;) {
    u32 lowest = NONE, last_other = 0;
    for (u32 i = group.thread(); i < count; i += Group::SIZE) {
      if (ranks[i] == NOT_LOOKED_UP) ranks[i] = merges.rank(ids[i], ids[i + 1]);
    }
    group.sync();
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) if (first + k < count && ranks[first + k] < lowest) lowest = ranks[first + k];
    lowest = group.min(lowest);
    if (lowest == NONE) {
      for (u32 i = group.thread(); i < count; i += Group::SIZE) slots[start + places[i]] = ids[i];
      group.sync();
      return;
    }
    const u32 product = merges.products[lowest];

    // Occurrences side by side share a token: every second one counts, from the left end of their run.
    u32 only = NONE;
    #pragma unroll
    for (int k = ITEMS - 1; k >= 0; k--) {
      u32 i = first + k;
      if (i >= count) continue;
      if (ranks[i] == lowest) only = i; else if (!last_other) last_other = i + 1;
    }
    only = product & AT_ONCE ? NONE : group.min(only);
    u32 run = group.max_before(last_other);  // where the run of occurrences begins that ends before my first token
    bool taken = false;                      // whether the token at hand is the second one of a merge
    if (run < first && first < count) {
      taken = only == NONE ? (first - 1 - run) % 2 == 0 : only == first - 1;
    }
    u32 new_ids[ITEMS], new_ranks[ITEMS], kept = 0;
    u16 new_places[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
      u32 i = first + k;
      if (i >= count || taken) { taken = false; continue; }
      bool occurs = ranks[i] == lowest;
      bool next_occurs = i + 1 < count && ranks[i + 1] == lowest;
      bool chosen = occurs && (only == NONE || only == i);
      bool next_chosen = next_occurs && (only == NONE || only == i + 1);
      new_ids[k] = chosen ? product & ~AT_ONCE : ids[i];
      bool last = i + (chosen ? 2 : 1) >= count;
      new_ranks[k] = last ? NONE : chosen || next_chosen ? NOT_LOOKED_UP : ranks[i];
      new_places[k] = places[i];
      kept |= 1u << k;
      taken = chosen;
    }
    u32 total, to = group.sum_before(__popc(kept), total);
    group.sync();
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
      if (!(kept >> k & 1)) continue;
      ids[to] = new_ids[k];
      ranks[to] = new_ranks[k];
      places[to++] = new_places[k];
    }
    count = total;
    group.sync();
  }
}
