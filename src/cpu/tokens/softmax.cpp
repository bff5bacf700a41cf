// Softmax over the last axis. A thread computes whole positions.
#include <vector>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/common/vector_math.hpp"

namespace millrace::cpu {
namespace {

MR_TARGET_CLONES float largest_of(const float* x, std::int64_t n) {
  float largest = x[0];
  for (std::int64_t i = 1; i < n; ++i) largest = std::max(largest, x[i]);
  return largest;
}
// y = exp(x - shift). Returns the sum.
MR_TARGET_CLONES float exponentials_of(float* y, const float* x, float shift, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) y[i] = fast_exp(x[i] - shift, bounds);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double(y[i]);
  return float(sum);
}
MR_TARGET_CLONES void multiply_all(float* y, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] *= factor;
}
MR_TARGET_CLONES float sum_of_products(const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double(a[i]) * double(b[i]);
  return float(sum);
}
MR_TARGET_CLONES void softmax_gradient(float* dx, const float* y, const float* dy, float shift, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - shift);
}

class Softmax : public Op {
 public:
  explicit Softmax(const SoftmaxSpec& spec) : spec_(spec), channels_(spec.channels()) {
    dispatch_dtype(spec.dtype, [](auto) {});
    if (spec.src.count() == 0) fail(Exit::config, "softmax: input {} is empty", spec.src.str());
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    each_position([&](std::int64_t at, Row& row) {
      const float* x = read_floats(args.src[0], at, channels_, row.x.data());
      float* y = float_target(args.dst, at, row.y.data());
      const float sum = exponentials_of(y, x, largest_of(x, channels_), channels_);
      multiply_all(y, 1 / sum, channels_);
      write_floats(args.dst, at, channels_, y);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    each_position([&](std::int64_t at, Row& row) {
      const float* y = read_floats(args.dst, at, channels_, row.x.data());
      const float* dy = read_floats(args.diff_dst, at, channels_, row.dy.data());
      float* dx = float_target(args.diff_src[0], at, row.y.data());
      softmax_gradient(dx, y, dy, sum_of_products(y, dy, channels_), channels_);
      write_floats(args.diff_src[0], at, channels_, dx);
    });
  }

 private:
  struct Row {
    explicit Row(std::int64_t channels) : x(std::size_t(channels)), dy(x), y(x) {}
    std::vector<float> x, dy, y;
  };
  template <class Body>
  void each_position(const Body& body) const {
    parallel_ranges(spec_.positions(), std::max<std::int64_t>(1, 8192 / channels_),
                    [&](std::int64_t begin, std::int64_t end) {
                      Row row(channels_);
                      for (std::int64_t p = begin; p < end; ++p) body(p * channels_, row);
                    });
  }

  SoftmaxSpec spec_;
  std::int64_t channels_;
};

}  // namespace

std::unique_ptr<Op> make_softmax(const SoftmaxSpec& spec) { return std::make_unique<Softmax>(spec); }

}  // namespace millrace::cpu
