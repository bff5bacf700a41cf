// The Block of block.hpp on the host. The threads of a block are fibers of the calling thread: each runs to its next
// barrier before the next one starts. So a missing barrier gives a wrong result, and the same one in every run. The
// blocks run one after another, in an order that differs from launch to launch, so that it may not matter. Blocks that
// are launched together take turns: each runs to its next barrier.
#pragma once
#include <functional>
#include <typeinfo>
#include <vector>

#include "millrace/base/error.hpp"

namespace millrace::cuda {

inline void atomic_add(std::uint64_t* count, std::uint64_t n) { *count += n; }

class HostBlock {
 public:
  // first_fiber: of this block; another block may have those before it.
  HostBlock(std::int64_t index, std::int64_t blocks, int threads, std::size_t shared_bytes, int first_fiber = 0);
  int thread() const { return thread_; }
  int threads() const { return threads_; }
  std::int64_t index() const { return index_; }
  std::int64_t blocks() const { return blocks_; }
  void sync();
  bool is_last(unsigned* counter, unsigned count);
  unsigned gate(const unsigned* g) const { return *g; }
  void open(unsigned* g) {
    sync();
    if (thread_ == 0) ++*g;
  }
  void pass(const unsigned* g, unsigned before) {
    while (*g == before) sync();
  }
  template <class T>
  T* shared() {
    constexpr std::uintptr_t alignment = 32;
    return reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(shared_.data()) + alignment - 1) & ~(alignment - 1));
  }
  template <class T>
  T sum(T value) {
    return reduce(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  T max(T value) {
    return reduce(value, [](T a, T b) { return a > b ? a : b; });
  }

  // Calls body once for each thread of the block.
  void run(const std::function<void()>& body);
  // For blocks that take turns: runs each thread to its next barrier, or to its end. True at the end of all.
  bool run_to_barrier(const std::function<void()>& body);

 private:
  template <class T, class F>
  T reduce(T value, F f) {
    static_assert(sizeof(T) <= sizeof(double));
    T* of_thread = reinterpret_cast<T*>(exchange_.data());
    of_thread[thread_] = value;
    sync();
    if (thread_ == 0) {  // runs before the others, after each barrier
      T all = of_thread[0];
      for (int t = 1; t < threads_; ++t) all = f(all, of_thread[t]);
      *reinterpret_cast<T*>(&reduced_) = all;
    }
    const T result = *reinterpret_cast<const T*>(&reduced_);
    sync();
    return result;
  }

  std::int64_t index_, blocks_;
  int threads_, first_fiber_, thread_ = 0;
  bool last_ = false;
  double reduced_ = 0;
  std::vector<double> shared_, exchange_;  // shared_ starts uninitialised, as on a GPU: it is filled with garbage
};

// Runs the blocks in turns. body(b): what one thread of the block b does.
void run_together(std::vector<HostBlock>& blocks, const std::function<void(HostBlock&)>& body);

// The numbers [0, blocks) in a random order, another one in each call of a thread.
std::vector<std::int64_t> shuffled_blocks(std::int64_t blocks);

// Runs a kernel, at once or when its turn in the stream comes; if it is dependent, perhaps earlier, but the kernels
// before it have ended when wait_for_earlier_kernels() returns. A test links one of two definitions: those of
// tests/support/host/launch.cpp, or those of tests/simulated_cuda. kernel: the name of its type.
struct HostLaunch {
  StreamHandle stream;
  const char* kernel;
  bool dependent;
};
void run_on_host(const HostLaunch&, std::function<void()> run);
void wait_for_earlier_kernels();

// The kernel gets its arguments by value, as on a GPU.
template <int max_threads = launch_threads, int = launch_blocks, class Body>
void launch(const LaunchContext& context, std::int64_t blocks, int threads, std::size_t shared_bytes,
            const Body& body) {
  if (blocks <= 0) return;
  MR_CHECK(threads <= max_threads, "a kernel for at most {} threads is launched with {}", max_threads, threads);
  run_on_host({context.stream, typeid(Body).name(), context.dependent}, [=] {
    wait_for_earlier_kernels();
    for (const std::int64_t b : shuffled_blocks(blocks)) {
      HostBlock block(b, blocks, threads, shared_bytes);
      block.run([&] { body(block); });
    }
  });
}

template <int max_threads = launch_threads, int min_blocks = launch_blocks, class Body>
void launch_together(const LaunchContext& context, std::int64_t blocks, int threads, std::size_t shared_bytes,
                     const Body& body) {
  if (blocks <= 0) return;
  MR_CHECK(threads <= max_threads, "a kernel for at most {} threads is launched with {}", max_threads, threads);
  // cudaErrorCooperativeLaunchTooLarge
  MR_CHECK(
      blocks <= context.multiprocessors * min_blocks && std::int64_t(shared_bytes) * min_blocks <= context.shared_bytes,
      "{} blocks with {} bytes cannot be resident at once", blocks, shared_bytes);
  run_on_host({context.stream, typeid(Body).name(), false}, [=] {
    std::vector<HostBlock> all;
    for (const std::int64_t b : shuffled_blocks(blocks))
      all.emplace_back(b, blocks, threads, shared_bytes, int(all.size()) * threads);
    run_together(all, [&](HostBlock& block) { body(block); });
  });
}

template <int, int min_blocks, class Body>
int resident_blocks(int, std::size_t, const Body*) {
  return min_blocks;
}

}  // namespace millrace::cuda
