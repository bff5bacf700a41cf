// The Block of block.hpp on a GPU.
#pragma once
#include <cuda_runtime.h>

#include "cuda/errors/check.hpp"

namespace millrace::cuda {

// Adds to a count that threads of other blocks may add to as well.
MR_DEVICE_INLINE void atomic_add(std::uint64_t* count, std::uint64_t n) {
  atomicAdd(reinterpret_cast<unsigned long long*>(count), static_cast<unsigned long long>(n));
}

struct DeviceBlock {
  MR_DEVICE_INLINE int thread() const { return int(threadIdx.x); }
  MR_DEVICE_INLINE int threads() const { return int(blockDim.x); }
  MR_DEVICE_INLINE std::int64_t index() const { return blockIdx.x; }
  MR_DEVICE_INLINE std::int64_t blocks() const { return gridDim.x; }
  MR_DEVICE_INLINE void sync() const { __syncthreads(); }

  template <class T>
  MR_DEVICE_INLINE T* shared() const {
    extern __shared__ __align__(32) unsigned char mr_shared[];
    return reinterpret_cast<T*>(mr_shared);
  }

  MR_DEVICE_INLINE bool is_last(unsigned* counter, unsigned count) const {
    __shared__ bool last;
    __syncthreads();  // the fence of one thread then orders the writes of all
    if (count == 1) return true;
    if (threadIdx.x == 0) {
      __threadfence();
      last = atomicInc(counter, count - 1) == count - 1;  // the last increment sets it to zero
      __threadfence();
    }
    __syncthreads();
    return last;
  }

  MR_DEVICE_INLINE unsigned gate(const unsigned* g) const { return *const_cast<const volatile unsigned*>(g); }
  MR_DEVICE_INLINE void open(unsigned* g) const {
    __syncthreads();
    if (threadIdx.x > 0) return;
    __threadfence();
    atomicAdd(g, 1u);
  }
  MR_DEVICE_INLINE void pass(const unsigned* g, unsigned before) const {
    if (threadIdx.x == 0) {
      while (gate(g) == before) __nanosleep(100);
      __threadfence();
    }
    __syncthreads();
  }

  template <class T>
  MR_DEVICE_INLINE T sum(T value) const {
    return reduce(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  MR_DEVICE_INLINE T max(T value) const {
    return reduce(value, [](T a, T b) { return a > b ? a : b; });
  }

 private:
  // Reduces within each warp by shuffles. Then every thread reduces the results of all warps in the same order.
  template <class T, class F>
  MR_DEVICE_INLINE T reduce(T value, F f) const {
    __shared__ T of_warp[32];
    const int lane = thread() % 32, warp = thread() / 32, warps = threads() / 32;
    for (int step = 16; step > 0; step /= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (warps == 1) return value;
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();
    value = of_warp[0];
    for (int w = 1; w < warps; ++w) value = f(value, of_warp[w]);
    __syncthreads();  // every thread has read of_warp, so the next call may overwrite it
    return value;
  }
};

template <int max_threads, int min_blocks, class Body>
__global__ void __launch_bounds__(max_threads, min_blocks) block_kernel(const __grid_constant__ Body body) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();            // before the first access of memory
  cudaTriggerProgrammaticLaunchCompletion();  // when all blocks have come here, those of the next kernel may start
#endif
  DeviceBlock block;
  body(block);
}

template <class Kernel>
void allow_shared_bytes(Kernel kernel, std::size_t bytes) {
  if (bytes > 48u << 10) MR_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
}

template <int max_threads, int min_blocks, class Body>
void launch_with(const LaunchContext& context, std::int64_t blocks, int threads, std::size_t shared_bytes,
                 const Body& body, cudaLaunchAttribute* attribute) {
  if (blocks <= 0) return;
  MR_CHECK(threads <= max_threads, "a kernel for at most {} threads is launched with {}", max_threads, threads);
  const auto kernel = block_kernel<max_threads, min_blocks, Body>;
  allow_shared_bytes(kernel, shared_bytes);
  void* arguments[] = {const_cast<Body*>(&body)};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream;
  config.attrs = attribute;
  config.numAttrs = attribute ? 1 : 0;
  check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments), "launch of a kernel");
}

template <int max_threads = launch_threads, int min_blocks = launch_blocks, class Body>
void launch(const LaunchContext& context, std::int64_t blocks, int threads, std::size_t shared_bytes,
            const Body& body) {
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  launch_with<max_threads, min_blocks>(context, blocks, threads, shared_bytes, body,
                                       context.dependent ? &dependent : nullptr);
}

// A cooperative launch. It is not dependent: then its blocks might have to share the GPU with those of another kernel.
template <int max_threads = launch_threads, int min_blocks = launch_blocks, class Body>
void launch_together(const LaunchContext& context, std::int64_t blocks, int threads, std::size_t shared_bytes,
                     const Body& body) {
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  launch_with<max_threads, min_blocks>(context, blocks, threads, shared_bytes, body, &together);
}

template <int max_threads, int min_blocks, class Body>
int resident_blocks(int threads, std::size_t shared_bytes, const Body*) {
  const auto kernel = block_kernel<max_threads, min_blocks, Body>;
  allow_shared_bytes(kernel, shared_bytes);
  int blocks = 0;
  MR_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes));
  return blocks;
}

}  // namespace millrace::cuda
