// Mixup and cutmix. Each row has its own blocks, whose first threads draw how it is mixed.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"
#include "millrace/ops/mix.hpp"

namespace millrace::cuda {
namespace {

template <class T, int n>
struct MixRows {
  T* dst;
  const T* src;
  const std::int64_t* ids;
  const std::int32_t* labels;
  const StepState* state;
  Mixer mixer;
  int row_count;                                        // elements of a row
  Divider by_blocks, by_channels, by_width, by_height;  // by_blocks: by the blocks of a row

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int part = int(block.index());
    const int row = by_blocks.split(part);
    RowMix* const shared = block.template shared<RowMix>();
    if (block.thread() == 0) *shared = mixer.of_row(state, ids, labels, row);
    block.sync();
    RowMix mix = *shared;
    if (mix.partner < 0) mix.box = true;  // an empty one
    const T* const own = src + std::int64_t(row) * row_count;
    const T* const other = mix.partner < 0 ? own : src + mix.partner * row_count;
    T* const to = dst + std::int64_t(row) * row_count;
    const int stride = int(by_blocks.divisor) * block.threads() * n;
    for (int i = (part * block.threads() + block.thread()) * n; i < row_count; i += stride) {
      float a[n], b[n];
      load(a, own + i);
      load(b, other + i);
      for (int k = 0; k < n; ++k)
        if (!mix.box)
          a[k] = a[k] * mix.share + b[k] * (1 - mix.share);
        else if (in_box(mix, i + k))
          a[k] = b[k];
      store(to + i, a);
    }
  }

 private:
  MR_DEVICE_INLINE bool in_box(const RowMix& mix, int i) const {
    int x = by_channels(i), y = by_width.split(x);
    const int z = by_height.split(y);
    return mix.takes_partner(z, y, x);
  }
};

class Mix : public Op {
 public:
  Mix(const MixSpec& spec, const LaunchContext& context, Device& device) : spec_(spec), context_(context) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    spec_.check();
    const std::vector<float> table = mix_table(spec);
    const std::size_t bytes = table.size() * sizeof(float);
    table_ = Buffer(device, MemoryKind::device, bytes);
    device.copy_to_device(Stream::compute, table_.data(), table.data(), bytes);
    device.synchronize();  // the copy reads `table`
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void backward(const OpArgs&) override {}

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int n = pack_size<T>;
      const bool wide =
          spec_.src.row_count() % n == 0 && aligned(args.src[0].as<T>(), n) && aligned(args.dst.as<T>(), n);
      wide ? mix<T, n>(args) : mix<T, 1>(args);
    });
  }

 private:
  template <class T, int n>
  void mix(const OpArgs& args) const {
    const std::int64_t rows = spec_.src[0], packs = spec_.src.row_count() / n;
    const int threads = int(std::clamp<std::int64_t>((packs + 31) / 32 * 32, 32, each_threads));
    const std::int64_t enough_blocks = std::int64_t(context_.multiprocessors) * 16;
    const std::int64_t blocks = std::clamp<std::int64_t>((enough_blocks + rows - 1) / rows, 1,
                                                         std::max<std::int64_t>(1, packs / (threads * 4)));
    const auto extent = spatial_extents(spec_.src);
    launch(context_, rows * blocks, threads, sizeof(RowMix),
           MixRows<T, n>{args.dst.as<T>(), args.src[0].as<T>(), args.src[1].as<std::int64_t>(),
                         args.src[2].as<std::int32_t>(), args.state, Mixer(spec_, table_.as<float>()),
                         int(spec_.src.row_count()), Divider(blocks), Divider(spec_.src[-1]), Divider(extent[2]),
                         Divider(extent[1])});
  }

  MixSpec spec_;
  LaunchContext context_;
  Buffer table_;
};

}  // namespace

std::unique_ptr<Op> make_mix(const MixSpec& spec, const LaunchContext& context, Device& device) {
  return std::make_unique<Mix>(spec, context, device);
}

}  // namespace millrace::cuda
