// What the operations with batch norm share: the grid of their kernels, the memory of their sums, and the statistics.
#pragma once
#include "cuda/kernels/batch_norm_kernels.hpp"
#include "millrace/base/align.hpp"
#include "millrace/base/error.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cuda::batch_norm {

class NormLauncher {
 public:
  static constexpr int sum_blocks = 4;  // blocks for each multiprocessor, all of which are resident

  NormLauncher(const LaunchContext& context, const Layout& layout)
      : context(context), l(layout), threads(l.threads()), sum_slabs(slabs(sum_blocks)) {
    const int counters = sum_slabs == 1 ? 1 : l.tiles * (groups_of(sum_slabs) + 1);
    MR_CHECK(counters <= context.multiprocessors * LaunchContext::counters_per_multiprocessor);
  }

  // The number of blocks that share the lines of a tile, of so many for each multiprocessor.
  int slabs(int blocks) const { return l.slabs(context.multiprocessors * blocks); }
  std::size_t values_bytes() const { return align64(std::size_t(l.channels) * sizeof(float)); }  // one for each channel

  // In memory of tree_bytes() for at least as many slabs and sums.
  SumTree tree(void* memory, int slabs, int sums = 2) const {
    std::byte* const begin = static_cast<std::byte*>(memory);
    return {slabs,
            group_of(slabs),
            groups_of(slabs),
            reinterpret_cast<float*>(begin),
            reinterpret_cast<double*>(begin + partial_bytes(slabs, sums)),
            context.counters,
            context.gates()};
  }
  std::size_t tree_bytes(int slabs, int sums = 2) const {
    return partial_bytes(slabs, sums) + std::size_t(sums * groups_of(slabs) * l.width) * sizeof(double);
  }

  // A kernel that ends with add_up(), with so many resident blocks for each multiprocessor.
  template <int blocks = sum_blocks, class Body>
  void sums(const Body& body) const {
    launch<launch_threads, blocks>(context, std::int64_t(slabs(blocks)) * l.tiles, threads, reduce_block_bytes(l),
                                   body);
  }
  // A kernel without sums.
  template <int blocks, class Body>
  void apply(const Body& body) const {
    launch<launch_threads, blocks>(context, std::int64_t(slabs(blocks)) * l.tiles, threads, 0, body);
  }

  // From a pass over x, or from the sums that the convolution before the norm computed; null: there are none. memory:
  // of the tree.
  template <class T>
  void statistics(const T* x, const float* sums_of_x, void* memory, float* shift, const Moments& moments) const {
    if (sums_of_x)
      for_each(context, l.channels, StatisticsFromSums{sums_of_x, moments});
    else
      sums(Statistics<T>{l, x, shift, tree(memory, sum_slabs), moments});
  }

  const LaunchContext context;
  const Layout l;
  const int threads, sum_slabs;

 private:
  // The slabs of a group: as many as there are groups.
  static int group_of(int slabs) {
    int group = 1;
    while (group * group < slabs) ++group;
    return group;
  }
  static int groups_of(int slabs) { return (slabs + group_of(slabs) - 1) / group_of(slabs); }
  std::size_t partial_bytes(int slabs, int sums) const {
    return align64(std::size_t(sums * slabs * l.width) * sizeof(float));
  }
};

}  // namespace millrace::cuda::batch_norm
