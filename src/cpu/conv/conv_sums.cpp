// Fusion level 2 for a convolution, with separate passes over memory. This is not faster on a CPU; tests compare the
// fused kernels of other backends with it. Sums are computed in double over a fixed number of chunks of rows, so they
// do not depend on the number of threads.
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

class ConvSums : public Op {
 public:
  ConvSums(const ConvSpec& spec, std::unique_ptr<Op> conv) : spec_(spec), conv_(std::move(conv)) {
    if (spec_.mode == Mode::infer || (spec_.produces_diff_sums && !spec_.need_diff_src))
      fail(Exit::config, "conv {}: cannot compute the sums of a batch norm without a backward pass. use fusion level 1",
           spec_.src.str());
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs = conv_->memory_requirements();
    const std::int64_t channels = std::max(spec_.src[-1], spec_.out_channels);
    needs.workspace = std::max(needs.workspace, std::size_t(chunks * 2 * channels) * sizeof(double));
    return needs;
  }
  std::string implementation() const override { return conv_->implementation() + ", sums by threads"; }
  WorkShare work_share() const override { return conv_->work_share(); }
  void repack(const OpArgs& args) override { conv_->repack(args); }

  void forward(const OpArgs& args) override {
    conv_->forward(args);
    if (!spec_.produces_sums) return;
    sum_columns(args, args.sums, args.dst, [&](std::int64_t begin, std::int64_t n, double* sum, double* square) {
      Tile tile;
      const float* y = read_floats(args.dst, begin, n, tile);
      for (std::int64_t i = 0; i < n; ++i) {
        sum[i] += double(y[i]);
        square[i] += double(y[i]) * double(y[i]);
      }
    });
  }

  void backward(const OpArgs& args) override {
    conv_->backward(args);
    const Tensor& g = args.diff_src[0];
    if (!spec_.produces_diff_sums || !g) return;
    const std::int64_t channels = spec_.src[-1];
    const float *mean = args.moments.as<float>(), *inverse = mean + channels;
    sum_columns(args, args.diff_sums, g, [&](std::int64_t begin, std::int64_t n, double* product, double* sum) {
      Tile y_tile, x_tile, g_tile;
      const float *y = read_floats(args.src[0], begin, n, y_tile), *x = read_floats(args.norm_src, begin, n, x_tile);
      const float* all = read_floats(g, begin, n, g_tile);
      float* passed = float_target(g, begin, g_tile);
      const std::int64_t c0 = begin % channels;
      for (std::int64_t i = 0; i < n; ++i) {
        passed[i] = y[i] <= 0 ? 0.0f : all[i];  // passes the gradient if y is NaN
        product[i] += double(passed[i]) * ((double(x[i]) - double(mean[c0 + i])) * double(inverse[c0 + i]));
        sum[i] += double(passed[i]);
      }
      write_floats(g, begin, n, passed);
    });
  }

 private:
  static constexpr std::int64_t chunks = 64;

  // Calls add(begin, n, a, b) for each tile of a row of `like`; it adds to a and b, the two sums of each channel. Then
  // stores the total of both sums in `to`.
  template <class Add>
  static void sum_columns(const OpArgs& args, const Tensor& to, const Tensor& like, const Add& add) {
    const std::int64_t channels = like.shape[-1], rows = like.count() / channels;
    auto* sums = static_cast<double*>(args.workspace);  // [chunk][2][channel]
    parallel_ranges(chunks, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t chunk = first; chunk < last; ++chunk) {
        double* mine = sums + chunk * 2 * channels;
        std::fill_n(mine, 2 * channels, 0.0);
        for (std::int64_t r = rows * chunk / chunks; r < rows * (chunk + 1) / chunks; ++r)
          for (std::int64_t c = 0; c < channels; c += tile_count)
            add(r * channels + c, std::min(tile_count, channels - c), mine + c, mine + channels + c);
      }
    });
    float* out = to.as<float>();
    for (std::int64_t i = 0; i < 2 * channels; ++i) {
      double total = 0;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) total += sums[chunk * 2 * channels + i];
      out[i] = float(total);
    }
  }

  ConvSpec spec_;
  std::unique_ptr<Op> conv_;
};

}  // namespace

std::unique_ptr<Op> make_conv_sums(const ConvSpec& spec, std::unique_ptr<Op> conv) {
  return std::make_unique<ConvSums>(spec, std::move(conv));
}

}  // namespace millrace::cpu
