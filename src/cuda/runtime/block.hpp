// How a kernel is written: a struct whose operator()(Block& block) is what one block of threads does. nvcc makes a
// kernel of it; the host's compiler makes a loop over blocks whose threads are fibers that run from barrier to barrier
// (block_on_host.hpp), so that machines without a GPU test the very bodies that GPUs run.
//
//   struct Scale {
//     float* values;
//     template <class Block>
//     MR_BODY void operator()(Block& block) const { ... block.thread() ... block.sync() ... block.sum(x) ... }
//   };
//   launch(stream, blocks, threads, shared_bytes, Scale{values});
//
// Block offers: thread(), threads() (a multiple of 32), index(), blocks(); sync(); sum(x), max(x): of all threads, the
// result on all of them, in an order that depends on the thread count alone; shared<T>(): shared_bytes of memory that
// the block's threads share. sync, sum and max must be reached by all threads of the block.
#pragma once
#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace millrace::cuda {

using StreamHandle = CUstream_st*;  // cudaStream_t

// What an op needs to know of its device. Ops keep a copy.
struct LaunchContext {
  StreamHandle stream = nullptr;  // the compute lane
  int multiprocessors = 4;
};

#ifdef __CUDACC__
#define MR_DEVICE_INLINE __device__ __forceinline__
#else
#define MR_DEVICE_INLINE inline
#endif

}  // namespace millrace::cuda

#ifdef __CUDACC__
#include "cuda/runtime/device_block.cuh"
#else
#include "cuda/runtime/host_block.hpp"
#endif

namespace millrace::cuda {

constexpr int each_threads = 256;

template <class Body>
struct Each {
  std::int64_t count;
  Body body;
  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t stride = block.blocks() * block.threads();
    for (std::int64_t i = block.index() * block.threads() + block.thread(); i < count; i += stride) body(i);
  }
};

// body(i) for every i in [0, count), in any order; body must not use barriers. Enough threads to fill the device, each
// with several elements where there are many.
template <class Body>
void for_each(const LaunchContext& context, std::int64_t count, const Body& body) {
  if (count <= 0) return;
  const std::int64_t needed = (count + each_threads - 1) / each_threads;
  const std::int64_t most = std::int64_t(context.multiprocessors) * 32;
  launch(context.stream, needed < most ? needed : most, each_threads, 0, Each<Body>{count, body});
}

}  // namespace millrace::cuda
