// Scans over the threads of a warp or of a block.
#pragma once
#include "common.cuh"

// A warp. Its lanes are in step only at sync().
struct WarpGroup {
  enum { SIZE = WARP };
  __device__ __forceinline__ u32 thread() const { return lane_of_thread(); }
  __device__ __forceinline__ void sync() const { __syncwarp(); }
  __device__ __forceinline__ u32 min(u32 value) const { return __reduce_min_sync(EVERY_LANE, value); }

  // The sum of the lanes before this one; `total` becomes that of all.
  __device__ __forceinline__ u32 sum_before(u32 value, u32& total) const {
    u32 sum = value;
    #pragma unroll
    for (u32 d = 1; d < WARP; d *= 2) {
      u32 other = __shfl_up_sync(EVERY_LANE, sum, d);
      if (thread() >= d) sum += other;
    }
    total = __shfl_sync(EVERY_LANE, sum, WARP - 1);
    return sum - value;
  }

  // The largest value of the lanes before this one, or 0.
  __device__ __forceinline__ u32 max_before(u32 value) const {
    #pragma unroll
    for (u32 d = 1; d < WARP; d *= 2) {
      u32 other = __shfl_up_sync(EVERY_LANE, value, d);
      if (thread() >= d && other > value) value = other;
    }
    u32 before = __shfl_up_sync(EVERY_LANE, value, 1);
    return thread() ? before : 0;
  }
};

// A block of THREADS. `partial` is shared memory of WARPS entries that nothing else uses.
struct BlockGroup {
  enum { SIZE = THREADS };
  u32* partial;
  __device__ __forceinline__ u32 thread() const { return threadIdx.x; }
  __device__ __forceinline__ void sync() const { __syncthreads(); }

  __device__ __forceinline__ u32 min(u32 value) const {
    value = WarpGroup().min(value);
    share(value);
    #pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) if (partial[warp] < value) value = partial[warp];
    sync();
    return value;
  }

  __device__ __forceinline__ u32 sum_before(u32 value, u32& total) const {
    u32 of_warp, sum = WarpGroup().sum_before(value, of_warp);
    share(of_warp);
    total = 0;
    #pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) {
      if (warp < warp_of_thread()) sum += partial[warp];
      total += partial[warp];
    }
    sync();
    return sum;
  }

  __device__ __forceinline__ u32 max_before(u32 value) const {
    u32 before = WarpGroup().max_before(value);
    share(__reduce_max_sync(EVERY_LANE, value));
    #pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) {
      if (warp < warp_of_thread() && partial[warp] > before) before = partial[warp];
    }
    sync();
    return before;
  }

 private:
  __device__ __forceinline__ void share(u32 value) const {
    if (lane_of_thread() == 0) partial[warp_of_thread()] = value;
    sync();
  }
};
