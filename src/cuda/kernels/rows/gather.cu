// Blocks in another order. Forward copies a block for each entry of the index. Backward writes each block of the
// source: the only copy of it, or the sum of its copies, or zeros.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

// Index i is a pack of a block of the result, in a slice of whole outer indices.
struct BlockPacks {
  Divider by_size, by_blocks;  // packs of a block, blocks of an outer index of the result
  std::int64_t from;           // packs of an outer index of the source
  int packs;                   // of a block

  MR_DEVICE_INLINE int split(int& i, int& outer) const {  // returns the block; i becomes the pack within it
    int block = by_size.split(i);
    outer = by_blocks.split(block);
    return block;
  }
};

template <class T, int n>
struct GatherBlocks {
  BlockPacks packs;
  T* dst;
  const T* src;
  const std::int32_t* index;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int within = int(i), outer = 0;
    const int block = packs.split(within, outer), from = index[block];
    Pack<T, n> pack{};
    if (from >= 0)
      pack = *reinterpret_cast<const Pack<T, n>*>(src +
                                                  (outer * packs.from + std::int64_t(from) * packs.packs + within) * n);
    store_pack(dst + i * n, pack);
  }
};

template <class T, int n>
struct SumCopies {
  BlockPacks packs;
  T* dst;
  const T* src;
  const std::int32_t *begin, *places;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int within = int(i), outer = 0;
    const int block = packs.split(within, outer), first = begin[block], last = begin[block + 1];
    float sum[n];
    for (int k = 0; k < n; ++k) sum[k] = 0;
    for (int c = first; c < last; ++c) {
      float x[n];
      load(x, src + (outer * packs.from + std::int64_t(places[c]) * packs.packs + within) * n);
      for (int k = 0; k < n; ++k) sum[k] += x[k];
    }
    store(dst + i * n, sum);
  }
};

class Gather : public Op {
 public:
  Gather(const GatherSpec& spec, const LaunchContext& context, Device& device)
      : context_(context), spec_(checked(spec)), blocks_(spec.blocks()) {
    dispatch_dtype(spec.dtype, [](auto) {});
    if (std::max(blocks_, spec.index.size()) * spec.size > max_index)
      fail(Exit::config, "gather: {} values that are moved together are more than the kernels can index",
           std::max(blocks_, spec.index.size()) * spec.size);
    index_ = on_device(device, spec.index.values());
    if (spec.mode == Mode::infer) return;
    const Places copies(spec.index, blocks_);
    // Blocks with at most one copy are copied back.
    std::vector<std::int32_t> only(std::size_t(blocks_), -1);
    for (std::size_t b = 0; b < only.size(); ++b) {
      const std::int32_t first = copies.begin[b], count = copies.begin[b + 1] - first;
      if (count > 0) only[b] = copies.places[std::size_t(first)];
      sums_ = sums_ || count > 1;
    }
    begin_ = on_device(device, sums_ ? copies.begin : only);
    if (sums_) places_ = on_device(device, copies.places);
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    move(args.dst, args.src[0], spec_.index.size(), blocks_,
         [&](auto pack, const BlockPacks& packs, auto* to, auto* from) {
           return GatherBlocks<std::remove_pointer_t<decltype(to)>, pack()>{packs, to, from,
                                                                            index_.template as<std::int32_t>()};
         });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    const auto *begin = begin_.as<std::int32_t>(), *places = places_.as<std::int32_t>();
    const auto run = [&](const auto& body) {
      move(args.diff_src[0], args.diff_dst, blocks_, spec_.index.size(), body);
    };
    if (sums_)
      run([&](auto pack, const BlockPacks& packs, auto* to, auto* from) {
        return SumCopies<std::remove_pointer_t<decltype(to)>, pack()>{packs, to, from, begin, places};
      });
    else
      run([&](auto pack, const BlockPacks& packs, auto* to, auto* from) {
        return GatherBlocks<std::remove_pointer_t<decltype(to)>, pack()>{packs, to, from, begin};
      });
  }

 private:
  static const GatherSpec& checked(const GatherSpec& spec) {
    spec.check();
    return spec;
  }
  static Buffer on_device(Device& device, const std::vector<std::int32_t>& values) {
    const std::size_t bytes = values.size() * sizeof(std::int32_t);
    Buffer out(device, MemoryKind::device, bytes + sizeof(std::int32_t));
    device.copy_to_device(Stream::compute, out.data(), values.data(), bytes);
    device.synchronize();  // the copy reads `values`
    return out;
  }

  // Runs the kernel that make(pack, packs, to, from) returns. to_blocks, from_blocks: of an outer index.
  template <class Make>
  void move(const Tensor& to, const Tensor& from, std::int64_t to_blocks, std::int64_t from_blocks,
            const Make& make) const {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto run = [&](auto pack) {
        constexpr int n = pack();
        const std::int64_t size = spec_.size / n, unit = to_blocks * size;
        const BlockPacks packs{Divider(size), Divider(to_blocks), from_blocks * size, int(size)};
        in_slices(spec_.outer() * unit, unit, max_index, [&](std::int64_t begin, std::int64_t count) {
          T* const target = to.as<T>() + begin * n;
          const T* const source = from.as<T>() + begin / unit * packs.from * n;
          for_each(context_, count, make(pack, packs, target, source));
        });
      };
      constexpr int n = pack_size<T>;
      spec_.size % n == 0 && aligned(to.as<T>(), n) && aligned(from.as<T>(), n) ? run(std::integral_constant<int, n>{})
                                                                                : run(std::integral_constant<int, 1>{});
    });
  }

  LaunchContext context_;
  GatherSpec spec_;
  std::int64_t blocks_;
  bool sums_ = false;              // some block has several copies
  Buffer index_, begin_, places_;  // begin: the only copy of each block, or Places::begin
};

}  // namespace

std::unique_ptr<Op> make_gather(const GatherSpec& spec, const LaunchContext& context, Device& device) {
  return std::make_unique<Gather>(spec, context, device);
}

}  // namespace millrace::cuda
