// How a kernel is written: as a plain struct, a kernel functor. Its operator()(Block& block) is the work of one thread
// of a block. nvcc compiles it to a kernel. The host compiler turns it into a loop over blocks, in which the threads of
// a block are fibers that run from one barrier to the next (host_block.hpp). So machines without a GPU test the same
// code that runs on GPUs.
//
//   struct Scale {
//     float* values;
//     template <class Block>
//     MR_DEVICE_INLINE void operator()(Block& block) const { ... block.thread() ... block.sync() ... block.sum(x) ... }
//   };
//   launch(context, blocks, threads, shared_bytes, Scale{values});
//   launch<1024, 1>(...);  // up to 1024 threads, of which one block must fit on a multiprocessor
//
// The compiler gives a thread as many registers as let min_blocks blocks of max_threads threads be resident, by default
// 64 of the 65,536 (4 blocks of 256). With fewer, a kernel keeps values in slow memory; with more, fewer threads hide
// the latency of loads.
//
// A Block has
//   thread(), threads()   index of this thread in the block; threads of the block, a multiple of 32
//   index(), blocks()     index of the block; blocks of the launch
//   sync()                a barrier for all threads of the block
//   sum(x), max(x)        over all threads of the block; every thread gets the result. The order of the additions
//                         depends on the number of threads only
//   shared<T>()           shared_bytes of memory that the threads of the block share, uninitialised
//   is_last(counter, n)   true, for all threads of the block, in the last of n blocks that call it with this counter.
//                         That block sees what the others wrote before their calls. The counter is zero before the
//                         first call and after the last one (LaunchContext::counters)
//   gate(g), open(g), pass(g, before)
//                         a barrier between blocks: all read the gate, one opens it later, and the others pass when
//                         they find that it differs from what they read. They see what that block saw and wrote before.
//                         For kernels launched by launch_together(), whose blocks are all resident
// All threads of a block must call these functions equally often. A kernel also has atomic_add(count, n) for integers
// that several blocks add to, whose sum does not depend on the order.
//
// With LaunchContext::dependent ("programmatic dependent launch", from compute capability 9.0), the blocks of a kernel
// may become resident when the last blocks of the kernel before it have begun. Each kernel begins with a wait: until
// the kernel before it has ended, and its writes are visible. So the GPU starts blocks while it would have nothing to
// do.
//   - A kernel ends after all before it, because each waits, also one that is launched in the usual way.
//   - Between work of other kinds the order is as always. Copies, fills and events wait for the end of a kernel; behind
//     them, and behind the kernels of a library, which do not say when their last blocks have begun, a kernel is
//     launched when they have ended.
//   - A block that waits keeps no block of an earlier kernel from a multiprocessor: those have all begun.
#pragma once
#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace millrace::cuda {

using StreamHandle = CUstream_st*;                      // cudaStream_t
constexpr int launch_threads = 256, launch_blocks = 4;  // defaults of launch<max_threads, min_blocks>()

// What an operation needs to launch kernels. Operations keep a copy.
struct LaunchContext {
  StreamHandle stream = nullptr;  // the compute stream
  int multiprocessors = 4;        // of the device
  // Counters for Block::is_last(), and gates behind them. The owner of the context has set all to zero, and each kernel
  // leaves the counters zero. The kernels of the stream share them, because they run one after another.
  unsigned* counters = nullptr;
  // For kernels that keep tensors in the memory of the multiprocessors; 0: there are none.
  std::int64_t shared_bytes = 0;  // of a multiprocessor
  bool dependent = false;  // kernels of this stream may be launched before those before them have ended: see above
  static constexpr int counters_per_multiprocessor = 4, gates_per_multiprocessor = 2;
  std::size_t counter_bytes() const {
    return std::size_t(multiprocessors) * (counters_per_multiprocessor + gates_per_multiprocessor) * sizeof(unsigned);
  }
  unsigned* gates() const { return counters ? counters + multiprocessors * counters_per_multiprocessor : nullptr; }
};

#ifdef __CUDACC__
#define MR_DEVICE_INLINE __device__ __forceinline__
#define MR_NO_UNROLL _Pragma("unroll 1")  // before a loop: not unrolled
#define MR_UNROLL _Pragma("unroll")       // unrolled, so that its index is known: for arrays in registers
#define MR_UNROLL_8 _Pragma("unroll 8")   // eight loads in flight
#else
#define MR_DEVICE_INLINE inline
#define MR_NO_UNROLL
#define MR_UNROLL
#define MR_UNROLL_8
#endif

}  // namespace millrace::cuda

// Both headers define
//   launch(context, blocks, threads, shared_bytes, body)
//   launch_together(...)      the same, but all blocks are resident at once, or the launch fails
//   resident_blocks(...)      blocks of a kernel that a multiprocessor can hold at once
#ifdef __CUDACC__
#include "cuda/block/device_block.cuh"
#else
#include "cuda/block/host_block.hpp"
#endif

namespace millrace::cuda {

constexpr int each_threads = 256;  // threads of a block in for_each()

template <class Body>
struct Each {
  std::int64_t count;
  Body body;
  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t stride = block.blocks() * block.threads();
    // Unrolled, a loop of few rounds would begin with a 64-bit division, and its stores would still hold back its
    // loads.
    MR_NO_UNROLL for (std::int64_t i = block.index() * block.threads() + block.thread(); i < count; i += stride)
        body(i);
  }
};

// Calls body(i) for every i in [0, count), in any order. The body must not use barriers. Launches at most 32 blocks for
// each multiprocessor; with a larger count, a thread handles several elements.
template <class Body>
void for_each(const LaunchContext& context, std::int64_t count, const Body& body) {
  if (count <= 0) return;
  const std::int64_t needed = (count + each_threads - 1) / each_threads;
  const std::int64_t max_blocks = std::int64_t(context.multiprocessors) * 32;
  launch(context, needed < max_blocks ? needed : max_blocks, each_threads, 0, Each<Body>{count, body});
}

}  // namespace millrace::cuda
