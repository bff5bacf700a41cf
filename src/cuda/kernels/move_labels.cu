// Moves maps of labels. Each sample has its own blocks, whose first threads draw the augmentation, as in the input
// pass.
#include <algorithm>

#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"
#include "millrace/ops/augmentation.hpp"

namespace millrace::cuda {
namespace {

struct Extents3 {
  int at[3];
};

struct MoveLabelsKernel {
  std::int32_t* dst;
  const std::int32_t* src;
  const std::int64_t* ids;
  const StepState* state;
  Augmenter augmenter;
  Extents3 extent, stored;                 // of dst, of src
  int dst_row, src_row;                    // elements of a row
  Divider by_blocks, by_width, by_height;  // by_blocks: by the blocks of a row

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int part = int(block.index());
    const int row = by_blocks.split(part);
    Augmentation* const shared = block.template shared<Augmentation>();
    if (block.thread() == 0) *shared = augmenter.of_row(state, ids, row);
    block.sync();
    const Augmentation move = *shared;
    const std::int32_t* const from = src + std::int64_t(row) * src_row;
    std::int32_t* const to = dst + std::int64_t(row) * dst_row;
    const int stride = int(by_blocks.divisor) * block.threads();
    for (int i = part * block.threads() + block.thread(); i < dst_row; i += stride) {
      int x = i, y = by_width.split(x);
      const int z = by_height.split(y);
      const int place = move.source_place<int>({z, y, x}, extent.at, stored.at);
      to[i] = place < 0 ? -1 : from[place];
    }
  }
};

class MoveLabels : public Op {
 public:
  MoveLabels(const MoveLabelsSpec& spec, const LaunchContext& context)
      : spec_(spec),
        context_(context),
        augmenter_(spec.input),
        extent_(extents_of(spec.input.dst())),
        stored_(extents_of(spec.input.src)) {
    if (std::max(spec.src.row_count(), spec.dst().row_count()) > max_index)
      fail(Exit::config, "label maps of {} have more labels than the kernels can index. set data.subvolume",
           spec.src.str());
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void backward(const OpArgs&) override {}

  void forward(const OpArgs& args) override {
    const std::int64_t rows = spec_.src[0], labels = spec_.dst().row_count();
    const int threads = int(std::clamp<std::int64_t>((labels + 31) / 32 * 32, 32, each_threads));
    const std::int64_t enough_blocks = std::int64_t(context_.multiprocessors) * 16;
    const std::int64_t blocks = std::clamp<std::int64_t>((enough_blocks + rows - 1) / rows, 1,
                                                         std::max<std::int64_t>(1, labels / (threads * 4)));
    launch(context_, rows * blocks, threads, sizeof(Augmentation),
           MoveLabelsKernel{args.dst.as<std::int32_t>(), args.src[0].as<std::int32_t>(), args.src[1].as<std::int64_t>(),
                            args.state, augmenter_, extent_, stored_, int(labels), int(spec_.src.row_count()),
                            Divider(blocks), Divider(extent_.at[2]), Divider(extent_.at[1])});
  }

 private:
  static Extents3 extents_of(const Shape& image) {
    const auto [depth, height, width] = spatial_extents(image);
    return {{int(depth), int(height), int(width)}};
  }

  MoveLabelsSpec spec_;
  LaunchContext context_;
  Augmenter augmenter_;
  Extents3 extent_, stored_;
};

}  // namespace

std::unique_ptr<Op> make_move_labels(const MoveLabelsSpec& spec, const LaunchContext& context) {
  return std::make_unique<MoveLabels>(spec, context);
}

}  // namespace millrace::cuda
