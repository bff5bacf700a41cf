#include "cpu/common/ops.hpp"
#include "cpu/common/row_loss.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

MR_TARGET_CLONES double squares(float* __restrict difference, const float* __restrict x, const float* __restrict target,
                                std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) difference[i] = x[i] - target[i];
  double lanes[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int l = 0; l < 4; ++l) lanes[l] += double(difference[i + l]) * double(difference[i + l]);
  for (int l = 0; i + l < n; ++l) lanes[l] += double(difference[i + l]) * double(difference[i + l]);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}
MR_TARGET_CLONES void scale(float* __restrict to, const float* __restrict from, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
}

class Mse : public RowLossOp {
 public:
  explicit Mse(const MseSpec& spec) : RowLossOp(spec.src[0]), spec_(spec), features_(spec.src.row_count()) {
    dispatch_dtype(spec_.dtype, [](auto) {});
  }

  void forward(const OpArgs& args) override {
    auto* sums = static_cast<RowLoss*>(args.workspace);
    const Tensor& diff = args.diff_src[0];
    const bool want_diff = spec_.mode == Mode::train && diff;
    const float factor = float(2 * double(args.state->loss_scale) * double(args.state->row_weight) / double(features_));
    parallel_ranges(spec_.src[0], std::max<std::int64_t>(1, 4 * tile_count / std::max<std::int64_t>(1, features_)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t row = begin; row < end; ++row) {
                        double sum = 0;
                        for (std::int64_t i = 0; i < features_; i += tile_count) {
                          Tile difference, tile;
                          const std::int64_t at = row * features_ + i, n = std::min(tile_count, features_ - i);
                          const float* target = args.src[1].as<float>() + at;
                          sum += squares(difference, read_floats(args.src[0], at, n, tile), target, n);
                          if (!want_diff) continue;
                          float* to = float_target(diff, at, tile);
                          scale(to, difference, factor, n);
                          write_floats(diff, at, n, to);
                        }
                        sums[row] = {};
                        sums[row].loss = sum / double(features_);
                        sums[row].counted = 1;
                      }
                    });
    add_row_losses(*args.state, sums, spec_.src[0]);
  }

 private:
  MseSpec spec_;
  std::int64_t features_;
};

}  // namespace

std::unique_ptr<Op> make_mse(const MseSpec& spec) { return std::make_unique<Mse>(spec); }

}  // namespace millrace::cpu
