// Kernels with a fault each, which tests/unit/cuda_on_cpu/test_emulator.py plants, and some without.

// ---- Right ----

extern "C" __global__ void reverse_block(const unsigned* in, unsigned* out) {
  __shared__ unsigned shared[64];
  shared[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = shared[63 - threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(64, 2) warp_operations(const unsigned* in, unsigned* out) {
  const unsigned all = 0xffffffffu, value = in[threadIdx.x];
  unsigned* mine = out + threadIdx.x * 8;
  mine[0] = __shfl_up_sync(all, value, 1);
  mine[1] = __shfl_down_sync(all, value, 3);
  mine[2] = __shfl_sync(all, value, 5);
  mine[3] = __ballot_sync(all, value & 1);
  mine[4] = __reduce_min_sync(all, value);
  mine[5] = __reduce_max_sync(all, value);
  mine[6] = __reduce_add_sync(all, value);
  unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  mine[7] = __reduce_add_sync(half, value);
  __syncwarp();
}

extern "C" __global__ void atomics(unsigned* counters) {
  atomicAdd(&counters[0], 2u);
  atomicOr(&counters[1], 1u << threadIdx.x % 32);
  atomicMin(&counters[2], 100u - threadIdx.x);
  atomicMax(&counters[3], threadIdx.x);
}

extern "C" __global__ void bits(unsigned* out) {
  out[0] = __popc(0xf0f0u);
  out[1] = __ffs(0x50);
  out[2] = __ffs(0);
  out[3] = __clz(1);
  out[4] = __clz(0);
}

extern "C" __global__ void wide_values(const unsigned long long* in, unsigned long long* out) {
  out[threadIdx.x] = __shfl_sync(0xffffffffu, in[threadIdx.x], 31 - threadIdx.x);
}

// ---- Races ----

extern "C" __global__ void no_barrier(const unsigned* in, unsigned* out) {
  __shared__ unsigned shared[64];
  shared[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = shared[63 - threadIdx.x];
}

extern "C" __global__ void last_one_wins(unsigned* out) { out[0] = threadIdx.x; }

extern "C" __global__ void last_block_wins(unsigned* out) { out[0] = blockIdx.x; }

// ---- Divergence and deadlock ----

extern "C" __global__ void different_barriers(unsigned* out) {
  if (threadIdx.x < 40) __syncthreads();
  else { out[0] = 1; __syncthreads(); }
}

extern "C" __global__ void exit_before_barrier(unsigned* out) {
  if (threadIdx.x == 3) return;
  __syncthreads();
  out[0] = 1;
}

extern "C" __global__ void different_operations(unsigned* out) {
  if (threadIdx.x % 32 < 16) out[0] = __ballot_sync(0xffffffffu, 1);
  else out[0] = __reduce_min_sync(0xffffffffu, 1u);
}

extern "C" __global__ void lane_that_never_comes(unsigned* out) {
  if (threadIdx.x % 32 < 16) out[0] = __reduce_min_sync(0xffffffffu, 1u);
}

extern "C" __global__ void lane_not_in_its_mask(unsigned* out) { out[0] = __ballot_sync(1u, 1); }

extern "C" __global__ void shuffle_from_outside(unsigned* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 20);
}

extern "C" __global__ void endless_rounds(unsigned* out) {
  while (__ballot_sync(0xffffffffu, 1)) __syncthreads();
  out[0] = 1;
}

// ---- Overruns ----

extern "C" __global__ void write_at(unsigned* out, unsigned index) { out[index] = 1; }

extern "C" __global__ void read_at(const unsigned* in, unsigned* out, unsigned index) { out[0] = in[index]; }

extern "C" __global__ void shared_array(unsigned* out, unsigned index) {
  __shared__ unsigned shared[64], behind[64];
  behind[threadIdx.x % 64] = 5;
  shared[threadIdx.x + index] = 7;
  __syncthreads();
  out[0] = behind[0] + shared[0];
}

extern "C" __global__ void misaligned(const unsigned char* in, unsigned long long* out, unsigned at) {
  out[0] = *(const unsigned long long*)(in + at);
}

extern "C" __global__ void endless_recursion(unsigned* out, unsigned depth) {
  struct Down {
    static unsigned go(unsigned* out, unsigned depth) {
      volatile unsigned room[256];
      room[depth % 256] = depth;
      return depth ? go(out, depth - 1) + room[depth % 256] : out[0];
    }
  };
  out[1] = Down::go(out, depth);
}

extern "C" __global__ void uninitialised(unsigned* out) {
  __shared__ unsigned shared[1];
  out[blockIdx.x] = shared[0];
  __syncthreads();
  shared[0] = 9;
}
