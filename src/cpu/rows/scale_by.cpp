// A factor for each row and channel. The gradient of the factors is a sum over positions, in parts.
#include "cpu/common/ops.hpp"
#include "cpu/common/row_lines.hpp"

namespace millrace::cpu {
namespace {

class ScaleBy : public Op {
 public:
  explicit ScaleBy(const ScaleBySpec& spec)
      : train_(spec.mode == Mode::train), lines_(checked(spec).src[0], spec.positions(), spec.src[-1]) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  // Workspace: the factors of all lanes of each row, then the sums of the parts.
  MemoryRequirements memory_requirements() const override {
    return {std::size_t(lines_.rows * lines_.width + (train_ ? lines_.sum_count(1) : 0)) * sizeof(float), 0, 0};
  }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override { scale(args, args.dst, args.src[0]); }

  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) scale(args, args.diff_src[0], args.diff_dst);
    if (!args.diff_src[1]) return;
    float* const sums = static_cast<float*>(args.workspace) + lines_.rows * lines_.width;
    lines_.each([&](std::int64_t part) { std::fill_n(sums + part * lines_.width, lines_.width, 0.0f); },
                [&](std::int64_t part, std::int64_t begin, std::int64_t lane, std::int64_t n) {
                  Tile x, dy;
                  add_products(sums + part * lines_.width + lane, read_floats(args.src[0], begin, n, x),
                               read_floats(args.diff_dst, begin, n, dy), n);
                });
    dispatch_dtype(args.diff_src[1].dtype, [&](auto zero) {
      auto* const to = args.diff_src[1].as<decltype(zero)>();
      parallel_ranges(lines_.rows * lines_.channels, 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          store(to + i, float(lines_.total(sums, 1, 0, i / lines_.channels, i % lines_.channels)));
      });
    });
  }

 private:
  static const ScaleBySpec& checked(const ScaleBySpec& spec) {
    spec.check();
    return spec;
  }
  void scale(const OpArgs& args, const Tensor& to, const Tensor& from) const {
    float* const factors = static_cast<float*>(args.workspace);
    dispatch_dtype(args.src[1].dtype, [&](auto zero) {
      const auto* const given = args.src[1].as<decltype(zero)>();
      parallel_ranges(lines_.rows, 1 + tile_count / lines_.width, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          lines_.spread(factors + row * lines_.width,
                        [&](std::int64_t c) { return load(given + row * lines_.channels + c); });
      });
    });
    lines_.each([](std::int64_t) {},
                [&](std::int64_t part, std::int64_t begin, std::int64_t lane, std::int64_t n) {
                  Tile x, y;
                  float* const out = float_target(to, begin, y);
                  multiply(out, read_floats(from, begin, n, x), factors + part / lines_.parts * lines_.width + lane, n);
                  write_floats(to, begin, n, out);
                });
  }

  bool train_;
  RowLines lines_;
};

}  // namespace

std::unique_ptr<Op> make_scale_by(const ScaleBySpec& spec) { return std::make_unique<ScaleBy>(spec); }

}  // namespace millrace::cpu
