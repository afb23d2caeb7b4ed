// The pre-tokenizer: the machine of gpu_worker/compiler as two scans, each in two kernels. The first kernel of a scan
// finds what a tile does as a whole, the second one composes that of the tiles between it and the last place where all
// was known, and goes through its own tile.
#include "common.cuh"
#include "utf8.cuh"

// Set in a class: the normalizer may change the character, or join it to another one; or it leaves the character alone
// between two others that it leaves alone in any case.
#define NOT_NORMAL 0x80u
#define LONE 0x40u
// The state before a text, and the label behind it.
#define START_STATE 0u
#define END_LABEL 0u
#define IDENTITY 0u
#define MAX_STATES 16

// ---- Backwards: functions of labels, by number --------------------------------------------------------------------

// Composes the functions of the lanes of a warp from this one on, which is applied last.
__device__ __forceinline__ u32 compose_from_lane(u32 function, const u8* compose, u32 functions) {
  #pragma unroll
  for (u32 d = 1; d < WARP; d *= 2) {
    u32 right = __shfl_down_sync(EVERY_LANE, function, d);
    if (lane_of_thread() + d < WARP) function = compose[function * functions + right];
  }
  return function;
}

__device__ __forceinline__ u32 function_of(const u8* classes, const u8* of_class, const u8* compose, u32 functions) {
  u32 function = IDENTITY;
  #pragma unroll
  for (int i = BYTES_PER_THREAD - 1; i >= 0; i--) {
    if (classes[i] != NOTHING) function = compose[of_class[classes[i]] * functions + function];
  }
  return function;
}

__device__ __forceinline__ void load_sixteen(u8* to, const u8* from) {
  const uint4 words = *(const uint4*)from;
  const u32 parts[4] = {words.x, words.y, words.z, words.w};
  #pragma unroll
  for (int i = 0; i < BYTES_PER_THREAD; i++) to[i] = (u8)(parts[i / 4] >> i % 4 * 8);
}

__device__ __forceinline__ void store_sixteen(u8* to, const u8* from) {
  u32 parts[4] = {0, 0, 0, 0};
  #pragma unroll
  for (int i = 0; i < BYTES_PER_THREAD; i++) parts[i / 4] |= (u32)from[i] << i % 4 * 8;
  *(uint4*)to = make_uint4(parts[0], parts[1], parts[2], parts[3]);
}

__device__ __forceinline__ u32 class_and_marks(u32 point, const u16* block_of, const u8* class_of) {
  return class_of[(u32)block_of[point >> 7] << 7 | (point & 0x7F)];
}

// Whether the normalizer leaves a character alone that is marked, and whose next one begins at `after`.
__device__ __forceinline__ bool stays(const u8* text, u32 after, u32 marks, const u16* block_of, const u8* class_of) {
  if (marks & NOT_NORMAL) return false;
  u32 byte = text[after], behind;
  if (byte == SEPARATOR || is_continuation(byte)) return true;
  u32 next = decode(text, after, byte, behind);
  return next == NONE || !(class_and_marks(next, block_of, class_of) & LONE);
}

// Classes of characters, at their first bytes, and each tile's function. An added token is a separator. One block a
// tile.
extern "C" __global__ void __launch_bounds__(THREADS, 5) classify(
    const Header* header, const u32* text_starts, const u8* text, const u32* heads, const u32* insides,
    const u16* block_of, const u8* class_of, u32 separator_class, const u8* of_class, const u8* compose, u32 functions,
    u8* classes, u8* function_of_tile, u32* refusals) {
  __shared__ u8 of_warp[WARPS];
  if (blockIdx.x >= header->tiles) return;
  u32 first = blockIdx.x * TILE + threadIdx.x * BYTES_PER_THREAD;
  u32 head = sixteen_bits(heads, first), inside = sixteen_bits(insides, first);
  for (u32 both = head & inside; both; both &= both - 1) {
    refuse(header, text_starts, refusals, first + __ffs(both) - 1, REFUSED_ADDED_TOKENS);
  }
  u8 bytes[BYTES_PER_THREAD], found[BYTES_PER_THREAD];
  load_sixteen(bytes, text + first);
  #pragma unroll
  for (int i = 0; i < BYTES_PER_THREAD; i++) {
    u32 at = first + i, byte = bytes[i], after = at + 1;
    found[i] = NOTHING;
    if (is_continuation(byte)) continue;
    if (byte == SEPARATOR) {
      found[i] = separator_class;
      if (!is_between_texts(header, text_starts, at)) refuse(header, text_starts, refusals, at, REFUSED_INVALID_UTF8);
    } else {
      u32 point = decode(text, at, byte, after);
      bool added = (head | inside) >> i & 1;
      if (point == NONE) {
        refuse(header, text_starts, refusals, at, REFUSED_INVALID_UTF8);
      } else if (added) {
        found[i] = head >> i & 1 ? separator_class : NOTHING;
      } else {
        u32 value = class_and_marks(point, block_of, class_of);
        if (value & (NOT_NORMAL | LONE) && !stays(text, after, value, block_of, class_of)) {
          refuse(header, text_starts, refusals, at, REFUSED_NORMALIZATION);
        }
        found[i] = value & ~(NOT_NORMAL | LONE);
      }
    }
    // Behind a character comes another one. The first byte of a text is behind a separator, and so is looked at here;
    // the buffer has bytes behind the last tile.
    if (is_continuation(text[after])) refuse(header, text_starts, refusals, after, REFUSED_INVALID_UTF8);
  }
  store_sixteen(classes + first, found);
  u32 function = compose_from_lane(function_of(found, of_class, compose, functions), compose, functions);
  if (lane_of_thread() == 0) of_warp[warp_of_thread()] = function;
  __syncthreads();
  if (threadIdx.x) return;
  function = IDENTITY;
  for (int warp = WARPS - 1; warp >= 0; warp--) function = compose[of_warp[warp] * functions + function];
  function_of_tile[blockIdx.x] = function;
}

// ---- Forwards: functions of states, four bits for the image of each ----------------------------------------------

__device__ __forceinline__ u32 image_of(u64 function, u32 state) { return (u32)(function >> state * 4) & 15; }

// What `second` does after `first`.
__device__ __forceinline__ u64 then(u64 first, u64 second, u32 states) {
  u64 result = 0;
  for (u32 state = 0; state < states; state++) result |= (u64)image_of(second, image_of(first, state)) << state * 4;
  return result;
}

__device__ __forceinline__ u64 unchanged() { return 0xFEDCBA9876543210ull; }

__device__ __forceinline__ bool is_constant(u64 function, u32 states) {
  u64 differ = (function ^ function >> 4) & (states < MAX_STATES ? (1ull << (states - 1) * 4) - 1 : ~0ull >> 4);
  return differ == 0;
}

// Composes the functions of the lanes of a warp up to this one, which is applied last.
__device__ __forceinline__ u64 then_up_to_lane(u64 function, u32 states) {
  #pragma unroll
  for (u32 d = 1; d < WARP; d *= 2) {
    u64 left = __shfl_up_sync(EVERY_LANE, function, d);
    if (lane_of_thread() >= d) function = then(left, function, states);
  }
  return function;
}

__device__ __forceinline__ u64 states_function(const u8* labels, const u64* images, u32 states) {
  u64 function = unchanged();
  #pragma unroll
  for (int i = 0; i < BYTES_PER_THREAD; i++) {
    if (labels[i] != NOTHING) function = then(function, images[labels[i]], states);
  }
  return function;
}

// ---- The second kernel backwards is the first one forwards ---------------------------------------------------------

// The function of the tiles behind this block's, as far on as it takes. All lanes of a warp.
__device__ __forceinline__ u32 function_behind_tile(
    const u8* function_of_tile, u32 tiles, const u8* compose, const u8* constant, u32 functions) {
  u32 all = IDENTITY;
  for (u32 tile = blockIdx.x + 1; tile < tiles && !constant[all]; tile += WARP) {
    u32 mine = tile + lane_of_thread();
    u32 function = compose_from_lane(mine < tiles ? function_of_tile[mine] : IDENTITY, compose, functions);
    all = compose[all * functions + __shfl_sync(EVERY_LANE, function, 0)];
  }
  return all;
}

// Labels of characters, at their first bytes, and each tile's function of states. One block a tile.
extern "C" __global__ void __launch_bounds__(THREADS) label_characters(
    const Header* header, const u8* classes, const u8* function_of_tile, const u8* of_class, const u8* compose,
    const u8* apply, const u8* constant, const u64* images, u32 functions, u32 n_labels, u32 states, u8* labels,
    u64* states_function_of_tile) {
  __shared__ u8 of_warp[WARPS];
  __shared__ u64 states_of_warp[WARPS];
  __shared__ u32 behind_tile;
  if (blockIdx.x >= header->tiles) return;
  u32 first = blockIdx.x * TILE + threadIdx.x * BYTES_PER_THREAD, lane = lane_of_thread(), warp = warp_of_thread();
  u8 found[BYTES_PER_THREAD];
  load_sixteen(found, classes + first);
  u32 from_here = compose_from_lane(function_of(found, of_class, compose, functions), compose, functions);
  u32 behind = __shfl_down_sync(EVERY_LANE, from_here, 1);  // of the lanes behind this one
  if (lane == WARP - 1) behind = IDENTITY;
  if (lane == 0) of_warp[warp] = from_here;
  if (warp == 0) {
    u32 behind_all = function_behind_tile(function_of_tile, header->tiles, compose, constant, functions);
    if (lane == 0) behind_tile = apply[behind_all * n_labels + END_LABEL];
  }
  __syncthreads();
  for (u32 other = warp + 1; other < WARPS; other++) behind = compose[behind * functions + of_warp[other]];
  u32 label = apply[behind * n_labels + behind_tile];
  #pragma unroll
  for (int i = BYTES_PER_THREAD - 1; i >= 0; i--) {
    if (found[i] != NOTHING) found[i] = label = apply[of_class[found[i]] * n_labels + label];
  }
  store_sixteen(labels + first, found);
  u64 function = then_up_to_lane(states_function(found, images, states), states);
  if (lane == WARP - 1) states_of_warp[warp] = function;
  __syncthreads();
  if (threadIdx.x) return;
  function = unchanged();
  for (u32 other = 0; other < WARPS; other++) function = then(function, states_of_warp[other], states);
  states_function_of_tile[blockIdx.x] = function;
}

// The function of the tiles before this block's, as far back as it takes. All lanes of a warp.
__device__ __forceinline__ u64 states_function_before_tile(const u64* states_function_of_tile, u32 states) {
  u64 all = unchanged();
  for (int tile = (int)blockIdx.x - 1; tile >= 0 && !is_constant(all, states); tile -= WARP) {
    int mine = tile - (int)lane_of_thread();  // the lowest lane has the last tile
    u64 function = mine >= 0 ? states_function_of_tile[mine] : unchanged();
    #pragma unroll
    for (u32 d = 1; d < WARP; d *= 2) {
      u64 before = __shfl_down_sync(EVERY_LANE, function, d);
      if (lane_of_thread() + d < WARP) function = then(before, function, states);
    }
    all = then(__shfl_sync(EVERY_LANE, function, 0), all, states);
  }
  return all;
}

// A bit for each byte at which a piece, an added token or a separator begins, and the first such byte of each tile. One
// block a tile.
extern "C" __global__ void __launch_bounds__(THREADS) mark_pieces(
    const Header* header, const u8* labels, const u64* states_function_of_tile, const u64* images, const u8* starts,
    u32 n_labels, u32 states, u16* begins, u32* first_of_tile) {
  __shared__ u64 of_warp[WARPS];
  __shared__ u32 before_tile, first_begin;
  if (blockIdx.x >= header->tiles) return;
  u32 first = blockIdx.x * TILE + threadIdx.x * BYTES_PER_THREAD, lane = lane_of_thread(), warp = warp_of_thread();
  u8 found[BYTES_PER_THREAD];
  load_sixteen(found, labels + first);
  u64 up_to_here = then_up_to_lane(states_function(found, images, states), states);
  u64 before = __shfl_up_sync(EVERY_LANE, up_to_here, 1);
  if (lane == 0) before = unchanged();
  if (lane == WARP - 1) of_warp[warp] = up_to_here;
  if (warp == 0) {
    u64 before_all = states_function_before_tile(states_function_of_tile, states);
    if (lane == 0) {
      before_tile = image_of(before_all, START_STATE);
      first_begin = NONE;
    }
  }
  __syncthreads();
  u32 state = before_tile;
  for (u32 other = 0; other < warp; other++) state = image_of(of_warp[other], state);
  state = image_of(before, state);
  u32 bits = 0;
  #pragma unroll
  for (int i = 0; i < BYTES_PER_THREAD; i++) {
    if (found[i] == NOTHING) continue;
    bits |= (u32)starts[state * n_labels + found[i]] << i;
    state = image_of(images[found[i]], state);
  }
  begins[first / BYTES_PER_THREAD] = (u16)bits;
  if (bits) atomicMin(&first_begin, first + __ffs(bits) - 1);
  __syncthreads();
  if (threadIdx.x == 0) first_of_tile[blockIdx.x] = first_begin;
}
