// Runs CUDA kernels on the CPU: a .cu file, unchanged, is compiled as C++ behind this header.
//
// Blocks run one after the other. Each thread of a block is a fiber, which runs until it has to wait: at a barrier or
// in a warp operation. Who is next is the schedule's choice, so a result that depends on it is a race:
//
//     forward   lanes, warps and blocks in ascending order
//     reverse   in descending order
//     random    in an order that a seed decides, drawn anew each time
//
// What a GPU lets pass, or answers with nonsense, is reported, with the block and the thread:
//
//     divergence   threads of a block that wait at different barriers, or exit while others wait at one; lanes of a
//                  warp that meet in different operations or name different lanes
//     deadlock     a lane that waits for one that never comes
//     runaway      a block whose threads wait and go on without end
//     overrun      an access beyond a buffer that ends at a guard page, a write to memory that is read-only, an index
//                  beyond an array (with -fsanitize=bounds), a misaligned access (with -fsanitize=alignment)
//
// Shared memory holds nonsense when a block starts. What is not found: a race between blocks that run at the same time,
// an overrun of shared memory through a pointer, and whatever depends on a weak order of memory.
#pragma once

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__) || defined(CUDA_ON_CPU_UCONTEXT)
#define CUDA_ON_CPU_UCONTEXT 1
#include <ucontext.h>
#endif

// ---- The language --------------------------------------------------------------------------------------------------

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("cuda_shared"), aligned(64)))

struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace cuda_on_cpu {
struct Index {
  unsigned x, y, z;
};
}  // namespace cuda_on_cpu
static cuda_on_cpu::Index threadIdx, blockIdx, blockDim, gridDim;

// The linker names the ends of a section after it.
extern "C" char __start_cuda_shared[] __attribute__((weak)), __stop_cuda_shared[] __attribute__((weak));

namespace cuda_on_cpu {

const unsigned LANES = 32;
const unsigned char POISON = 0xCD;

// ---- Fibers --------------------------------------------------------------------------------------------------------

const size_t STACK_BYTES = 64 << 10;

enum class State { NEW, READY, IN_WARP_OPERATION, AT_BARRIER, DONE };

struct Fiber {
  State state = State::NEW;
  unsigned thread = 0;
  unsigned site = 0;  // where it waits
  char* stack = nullptr;
#ifdef CUDA_ON_CPU_UCONTEXT
  ucontext_t context;
#else
  void* stack_pointer = nullptr;
#endif
};

static std::vector<Fiber> fibers;
static std::vector<char*> stacks;  // of fibers that are done
static Fiber* running;
static void run_thread();

static char* take_stack() {
  if (!stacks.empty()) {
    char* stack = stacks.back();
    stacks.pop_back();
    return stack;
  }
  // A page that cannot be touched below the stack.
  const size_t page = sysconf(_SC_PAGESIZE);
  void* memory = mmap(nullptr, page + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(memory, page, PROT_NONE);
  return (char*)memory + page;
}

#ifdef CUDA_ON_CPU_UCONTEXT

static ucontext_t scheduler;

static void start(Fiber& fiber) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = STACK_BYTES;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, run_thread, 0);
}

static void enter(Fiber& fiber) { swapcontext(&scheduler, &fiber.context); }
static void leave() { swapcontext(&running->context, &scheduler); }

#else

static void* scheduler;

// Saves the registers that a call keeps, and goes on on another stack.
extern "C" void cuda_on_cpu_switch(void** save, void* to);
asm(R"(
.text
.local cuda_on_cpu_switch
.type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size cuda_on_cpu_switch, . - cuda_on_cpu_switch
)");

static void start(Fiber& fiber) {
  void** top = (void**)(fiber.stack + STACK_BYTES) - 1;  // as if called: eight bytes below a multiple of sixteen
  *--top = (void*)&run_thread;
  for (int registers = 0; registers < 6; registers++) *--top = nullptr;
  fiber.stack_pointer = top;
}

static void enter(Fiber& fiber) { cuda_on_cpu_switch(&scheduler, fiber.stack_pointer); }
static void leave() { cuda_on_cpu_switch(&running->stack_pointer, scheduler); }

#endif

// ---- Faults --------------------------------------------------------------------------------------------------------

// A place in the source: the line, and above it a number that no other place has.
#define CUDA_ON_CPU_SITE ((unsigned)__LINE__ | (unsigned)__COUNTER__ << 16)

static std::string fault;
static sigjmp_buf out_of_kernel;

static void describe(const char* what, unsigned thread, unsigned site) {
  char text[200];
  int length = snprintf(text, sizeof text, "%s (block %u, thread %u", what, blockIdx.x, thread);
  if (site) snprintf(text + length, sizeof text - length, ", line %u", site & 0xFFFF);
  fault = std::string(text) + ")";
}

// The kernel cannot go on: back to launch().
[[noreturn]] static void fail(const char* what, unsigned site) {
  describe(what, running->thread, site);
  siglongjmp(out_of_kernel, 1);
}

static void on_signal(int signal, siginfo_t*, void*) {
  fail(signal == SIGILL || signal == SIGTRAP ? "an index beyond an array, or a misaligned access"
                                             : "an access to memory that is not the kernel's", 0);
}

struct Signals {
  static const int COUNT = 4;
  struct sigaction before[COUNT];
  stack_t stack_before;
  std::vector<char> stack = std::vector<char>(64 << 10);

  static int number(int i) {
    const int numbers[COUNT] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP};
    return numbers[i];
  }
  Signals() {
    stack_t mine = {};
    mine.ss_sp = stack.data();
    mine.ss_size = stack.size();
    sigaltstack(&mine, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < COUNT; i++) sigaction(number(i), &action, &before[i]);
  }
  ~Signals() {
    for (int i = 0; i < COUNT; i++) sigaction(number(i), &before[i], nullptr);
    sigaltstack(&stack_before, nullptr);
  }
};

// ---- The schedule --------------------------------------------------------------------------------------------------

enum Schedule { FORWARD, REVERSE, RANDOM };
static int schedule;
static uint32_t random_state;

static uint32_t random_number() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

// The numbers below `count` in the order of the schedule.
static void put_in_order(std::vector<unsigned>& order, unsigned count) {
  order.resize(count);
  for (unsigned i = 0; i < count; i++) order[i] = schedule == REVERSE ? count - 1 - i : i;
  if (schedule == RANDOM) {
    for (unsigned i = count; i > 1; i--) std::swap(order[i - 1], order[random_number() % i]);
  }
}

// ---- Warps and barriers --------------------------------------------------------------------------------------------

// Where lanes meet that name the same lanes. Values are kept twice, so that the lanes of one meeting can read theirs
// while the first ones are at the next.
struct Meeting {
  uint32_t lanes, arrived;
  unsigned site, turn;
  uint64_t values[2][LANES];
};

const unsigned MEETINGS = 16;  // different sets of lanes that a warp may name

struct Warp {
  unsigned count;
  Meeting meetings[MEETINGS];
};

static std::vector<Warp> warps;

static Meeting& meeting_of(Warp& warp, uint32_t lanes, unsigned site) {
  for (unsigned i = 0; i < warp.count; i++) if (warp.meetings[i].lanes == lanes) return warp.meetings[i];
  if (warp.count == MEETINGS) fail("more sets of lanes than the emulation has room for", site);
  Meeting& meeting = warp.meetings[warp.count++];
  meeting.lanes = lanes;
  meeting.arrived = meeting.turn = 0;
  return meeting;
}

// Waits for all of `lanes`, and gives what each of them brought.
static const uint64_t* meet(uint32_t lanes, uint64_t value, unsigned site) {
  const unsigned lane = running->thread % LANES, warp = running->thread / LANES;
  if (!(lanes >> lane & 1)) fail("divergence: a lane that is not among those it names", site);
  Meeting& meeting = meeting_of(warps[warp], lanes, site);
  if (meeting.arrived && meeting.site != site) fail("divergence: lanes of a warp meet in different operations", site);
  const unsigned turn = meeting.turn;
  meeting.site = site;
  meeting.arrived |= 1u << lane;
  meeting.values[turn][lane] = value;
  if (meeting.arrived == lanes) {
    meeting.arrived = 0;
    meeting.turn ^= 1;
    for (uint32_t others = lanes & ~(1u << lane); others; others &= others - 1) {
      fibers[warp * LANES + __builtin_ctz(others)].state = State::READY;
    }
  } else {
    running->state = State::IN_WARP_OPERATION;
    running->site = site;
    leave();
  }
  return meeting.values[turn];
}

static void barrier(unsigned site) {
  running->state = State::AT_BARRIER;
  running->site = site;
  leave();
}

// ---- Blocks --------------------------------------------------------------------------------------------------------

static void (*kernel)(void**);
static void** arguments;

static void run_thread() {
  kernel(arguments);
  running->state = State::DONE;
  for (;;) leave();
}

// How often threads of a block may go on; the longest merge takes some 2^24.
#ifndef CUDA_ON_CPU_RESUMES_MAX
#define CUDA_ON_CPU_RESUMES_MAX (1u << 30)
#endif
static unsigned resumes;

static void resume(Fiber& fiber) {
  running = &fiber;
  threadIdx = {fiber.thread, 0, 0};
  if (fiber.state == State::NEW) {
    fiber.stack = take_stack();
    start(fiber);
    fiber.state = State::READY;
  }
  if (++resumes > CUDA_ON_CPU_RESUMES_MAX) fail("runaway: a block that does not come to its end", fiber.site);
  enter(fiber);
  if (fiber.state == State::DONE) stacks.push_back(std::exchange(fiber.stack, nullptr));
}

// Lets the threads of a warp run while they can; false if none could.
static bool run_warp(unsigned warp, std::vector<unsigned>& order) {
  bool any = false, again = true;
  while (again) {
    again = false;
    put_in_order(order, LANES);
    for (unsigned lane : order) {
      const unsigned thread = warp * LANES + lane;
      if (thread >= fibers.size()) continue;
      Fiber& fiber = fibers[thread];
      if (fiber.state == State::NEW || fiber.state == State::READY) {
        resume(fiber);
        any = again = true;
      }
    }
  }
  return any;
}

// What the threads wait for when none can run: true if the block is done, else the barrier is opened.
static bool settle() {
  unsigned done = 0;
  const Fiber* waiting = nullptr;
  for (const Fiber& fiber : fibers) {
    if (fiber.state == State::IN_WARP_OPERATION) {
      describe("deadlock: a lane waits for one that never comes", fiber.thread, fiber.site);
      return true;
    }
    done += fiber.state == State::DONE;
    if (fiber.state != State::AT_BARRIER) continue;
    if (waiting && waiting->site != fiber.site) {
      describe("divergence: threads of a block wait at different barriers", fiber.thread, fiber.site);
      return true;
    }
    waiting = &fiber;
  }
  if (waiting && done) describe("divergence: others have exited before this barrier", waiting->thread, waiting->site);
  if (!waiting || done) return true;
  for (Fiber& fiber : fibers) fiber.state = State::READY;
  return false;
}

static void run_block(unsigned threads) {
  for (unsigned i = 0; i < threads; i++) {
    fibers[i].state = State::NEW;
    fibers[i].thread = i;
  }
  for (Warp& warp : warps) warp.count = 0;
  resumes = 0;
  if (__start_cuda_shared) memset(__start_cuda_shared, POISON, __stop_cuda_shared - __start_cuda_shared);
  static std::vector<unsigned> warp_order, lane_order;
  for (;;) {
    bool any = false;
    put_in_order(warp_order, warps.size());
    for (unsigned warp : warp_order) any |= run_warp(warp, lane_order);
    if (!any && settle()) return;
  }
}

// Runs a grid: nullptr, or what went wrong. One launch at a time.
static const char* launch(
    void (*entry)(void**), unsigned blocks, unsigned threads, void** values, int order, unsigned seed) {
  kernel = entry;
  arguments = values;
  schedule = order;
  random_state = seed * 2654435761u | 1;
  fault.clear();
  gridDim = {blocks, 1, 1};
  blockDim = {threads, 1, 1};
  for (Fiber& fiber : fibers) {
    if (fiber.stack) stacks.push_back(std::exchange(fiber.stack, nullptr));  // of a launch that failed
  }
  fibers.resize(threads);
  warps.resize((threads + LANES - 1) / LANES);
  const Signals signals;
  static std::vector<unsigned> in_order;
  put_in_order(in_order, blocks);
  if (sigsetjmp(out_of_kernel, 1) == 0) {
    for (unsigned i = 0; i < blocks && fault.empty(); i++) {
      blockIdx = {in_order[i], 0, 0};
      run_block(threads);
    }
  }
  return fault.empty() ? nullptr : fault.c_str();
}

template <class... Parameters, size_t... I>
static void call(void (*function)(Parameters...), void** values, std::index_sequence<I...>) {
  function(*(std::remove_cv_t<Parameters>*)values[I]...);
}

template <class... Parameters>
static void call(void (*function)(Parameters...), void** values) {
  call(function, values, std::index_sequence_for<Parameters...>{});
}

// ---- Warp operations -----------------------------------------------------------------------------------------------

template <class T> static inline uint64_t packed(T value) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a value of at most eight bytes");
  uint64_t word = 0;
  memcpy(&word, &value, sizeof value);
  return word;
}

template <class T> static inline T unpacked(uint64_t word) {
  T value;
  memcpy(&value, &word, sizeof value);
  return value;
}

// The value of another lane; its own where there is no such lane.
template <class T> static T shuffle(uint32_t lanes, T value, int from, unsigned site) {
  const uint64_t* values = meet(lanes, packed(value), site);
  if (from < 0 || from >= (int)LANES) return value;
  if (!(lanes >> from & 1)) fail("divergence: a shuffle from a lane that does not take part", site);
  return unpacked<T>(values[from]);
}

static inline int lane() { return (int)(running->thread % LANES); }

template <class Fold> static uint32_t fold(uint32_t lanes, uint32_t value, Fold join, unsigned site) {
  const uint64_t* values = meet(lanes, value, site);
  uint32_t result = (uint32_t)values[__builtin_ctz(lanes)];
  for (lanes &= lanes - 1; lanes; lanes &= lanes - 1) result = join(result, (uint32_t)values[__builtin_ctz(lanes)]);
  return result;
}

static inline uint32_t ballot(uint32_t lanes, bool vote, unsigned site) {
  const uint32_t bit = vote ? 1u << lane() : 0;
  return fold(lanes, bit, [](uint32_t a, uint32_t b) { return a | b; }, site);
}

static inline uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint32_t sum(uint32_t a, uint32_t b) { return a + b; }
static inline uint32_t every_lane(uint32_t lanes = 0xFFFFFFFF) { return lanes; }

}  // namespace cuda_on_cpu

#define __syncthreads() cuda_on_cpu::barrier(CUDA_ON_CPU_SITE)
#define __syncwarp(...) ((void)cuda_on_cpu::meet(cuda_on_cpu::every_lane(__VA_ARGS__), 0, CUDA_ON_CPU_SITE))
#define __shfl_sync(lanes, value, from) cuda_on_cpu::shuffle(lanes, value, (int)((from) & 31), CUDA_ON_CPU_SITE)
#define __shfl_up_sync(lanes, value, by) \
  cuda_on_cpu::shuffle(lanes, value, cuda_on_cpu::lane() - (int)(by), CUDA_ON_CPU_SITE)
#define __shfl_down_sync(lanes, value, by) \
  cuda_on_cpu::shuffle(lanes, value, cuda_on_cpu::lane() + (int)(by), CUDA_ON_CPU_SITE)
#define __ballot_sync(lanes, vote) cuda_on_cpu::ballot(lanes, (vote) != 0, CUDA_ON_CPU_SITE)
#define __reduce_min_sync(lanes, value) cuda_on_cpu::fold(lanes, value, cuda_on_cpu::smaller, CUDA_ON_CPU_SITE)
#define __reduce_max_sync(lanes, value) cuda_on_cpu::fold(lanes, value, cuda_on_cpu::larger, CUDA_ON_CPU_SITE)
#define __reduce_add_sync(lanes, value) cuda_on_cpu::fold(lanes, value, cuda_on_cpu::sum, CUDA_ON_CPU_SITE)

// ---- Bits and atomics ----------------------------------------------------------------------------------------------

static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }
static inline int __clz(int bits) { return bits ? __builtin_clz((unsigned)bits) : 32; }

// A fiber is only left where it waits, and blocks run one at a time: every operation is atomic.
template <class T, class U> static inline T atomicAdd(T* at, U value) { return std::exchange(*at, (T)(*at + value)); }
template <class T, class U> static inline T atomicOr(T* at, U value) { return std::exchange(*at, (T)(*at | value)); }
template <class T, class U> static inline T atomicMin(T* at, U value) {
  return std::exchange(*at, (T)value < *at ? (T)value : *at);
}
template <class T, class U> static inline T atomicMax(T* at, U value) {
  return std::exchange(*at, (T)value > *at ? (T)value : *at);
}

// Makes a kernel callable from outside, with pointers to its arguments.
#define CUDA_ON_CPU_KERNEL(name)                                                                                     \
  extern "C" const char* name##_launch(unsigned blocks, unsigned threads, void** values, int order, unsigned seed) { \
    return cuda_on_cpu::launch([](void** all) { cuda_on_cpu::call(&name, all); }, blocks, threads, values, order,    \
                               seed);                                                                                \
  }
