// A linear layer with few outputs, like the last layer of a classifier. It does two floating-point operations per
// output for each value that it reads, so memory bandwidth limits it. oneDNN's GEMM would first copy its operands into
// blocks, which takes longer than the products. The order of each sum does not depend on the number of threads.
#include <cstring>

#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"

namespace millrace::cpu {
namespace {

constexpr std::int64_t max_outputs = 8;
constexpr std::int64_t values_per_thread = 1 << 15;  // at least

#pragma GCC diagnostic ignored "-Wpsabi"  // no function with vector parameters is called from other files
typedef float Floats __attribute__((vector_size(32)));
constexpr std::int64_t lanes = 8;

__attribute__((always_inline)) inline Floats load8(const float* from) {
  Floats v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// Computes y[r][o] = dot(x[r], w[o]) + bias[o] for r < rows and o < outs. `out` is the number of outputs of the layer.
template <int rows, int outs>
__attribute__((always_inline)) inline void dots(float* y, const float* x, const float* w, const float* bias,
                                                std::int64_t in, std::int64_t out) {
  Floats sums[rows][outs] = {};
  std::int64_t i = 0;
  for (; i + lanes <= in; i += lanes)
    for (int r = 0; r < rows; ++r)
      for (int o = 0; o < outs; ++o) sums[r][o] += load8(x + r * in + i) * load8(w + o * in + i);
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < outs; ++o) {
      const Floats s = sums[r][o];
      float sum = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
      for (std::int64_t k = i; k < in; ++k) sum += x[r * in + k] * w[o * in + k];
      y[r * out + o] = sum + (bias ? bias[o] : 0.0f);
    }
}

template <int rows>
__attribute__((always_inline)) inline void all_dots(float* y, const float* x, const float* w, const float* bias,
                                                    std::int64_t in, std::int64_t out) {
  std::int64_t o = 0;
  for (; o + 2 <= out; o += 2) dots<rows, 2>(y + o, x, w + o * in, bias ? bias + o : nullptr, in, out);
  if (o < out) dots<rows, 1>(y + o, x, w + o * in, bias ? bias + o : nullptr, in, out);
}

MR_TARGET_CLONES void forward_rows(float* y, const float* x, const float* w, const float* bias, std::int64_t rows,
                                   std::int64_t in, std::int64_t out) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) all_dots<4>(y + r * out, x + r * in, w, bias, in, out);
  for (; r < rows; ++r) all_dots<1>(y + r * out, x + r * in, w, bias, in, out);
}

struct Extents {
  std::int64_t rows, in, out;
};
// Computes g[o][i] += sum over r of d[r][o] * x[r][i] for columns i in [begin, end), four rows at a time, in order.
MR_TARGET_CLONES void add_weight_gradient(float* g, const float* d, const float* x, const Extents& extents,
                                          std::int64_t begin, std::int64_t end) {
  const std::int64_t rows = extents.rows;
  const std::int64_t in = extents.in;
  const std::int64_t out = extents.out;
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* __restrict x0 = x + r * in, * __restrict x1 = x0 + in, * __restrict x2 = x1 + in, * __restrict x3 = x2 + in;
    for (std::int64_t o = 0; o < out; ++o) {
      float* __restrict sum = g + o * in;
      const float d0 = d[r * out + o], d1 = d[(r + 1) * out + o], d2 = d[(r + 2) * out + o], d3 = d[(r + 3) * out + o];
      for (std::int64_t i = begin; i < end; ++i) sum[i] += (d0 * x0[i] + d1 * x1[i]) + (d2 * x2[i] + d3 * x3[i]);
    }
  }
  for (; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      float* __restrict sum = g + o * in;
      const float* __restrict xr = x + r * in;
      const float dr = d[r * out + o];
      for (std::int64_t i = begin; i < end; ++i) sum[i] += dr * xr[i];
    }
}

// Computes dx[r][i] = sum over o of d[r][o] * w[o][i].
MR_TARGET_CLONES void backward_rows(float* dx, const float* d, const float* w, std::int64_t rows, std::int64_t in,
                                    std::int64_t out) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* __restrict to = dx + r * in;
    for (std::int64_t o = 0; o < out; ++o) {
      const float* __restrict wo = w + o * in;
      const float dr = d[r * out + o];
      if (o == 0)
        for (std::int64_t i = 0; i < in; ++i) to[i] = dr * wo[i];
      else
        for (std::int64_t i = 0; i < in; ++i) to[i] += dr * wo[i];
    }
  }
}

class NarrowLinear : public Op {
 public:
  explicit NarrowLinear(const LinearSpec& s) : rows_(s.src[0]), in_(s.src.row_count()), out_(s.out_features) {}

  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads, few outputs"; }

  void forward(const OpArgs& args) override {
    const auto *x = args.src[0].as<float>(), *w = args.weight[0].as<float>();
    const float* bias = args.weight[1] ? args.weight[1].as<float>() : nullptr;
    // Ranges begin at multiples of four rows, so the sums of a row do not depend on the number of threads.
    parallel_ranges(rows_, grain_of(in_), [&](std::int64_t begin, std::int64_t end) {
      forward_rows(args.dst.as<float>() + begin * out_, x + begin * in_, w, bias, end - begin, in_, out_);
    });
  }

  void backward(const OpArgs& args) override {
    const auto *x = args.src[0].as<float>(), *w = args.weight[0].as<float>(), *d = args.diff_dst.as<float>();
    if (args.diff_weight[0]) {
      auto* g = args.diff_weight[0].as<float>();
      parallel_ranges(in_, grain_of(rows_), [&](std::int64_t begin, std::int64_t end) {
        if (args.mode[0] == GradMode::write)
          for (std::int64_t o = 0; o < out_; ++o) std::fill(g + o * in_ + begin, g + o * in_ + end, 0.0f);
        add_weight_gradient(g, d, x, {rows_, in_, out_}, begin, end);
      });
    }
    if (args.diff_weight[1]) {
      auto* g = args.diff_weight[1].as<float>();
      if (args.mode[1] == GradMode::write) std::fill_n(g, out_, 0.0f);
      for (std::int64_t r = 0; r < rows_; ++r)
        for (std::int64_t o = 0; o < out_; ++o) g[o] += d[r * out_ + o];
    }
    if (args.diff_src[0])
      parallel_ranges(rows_, grain_of(in_), [&](std::int64_t begin, std::int64_t end) {
        backward_rows(args.diff_src[0].as<float>() + begin * in_, d + begin * out_, w, end - begin, in_, out_);
      });
  }

 private:
  static std::int64_t grain_of(std::int64_t values) {
    return std::max<std::int64_t>(16, (values_per_thread / std::max<std::int64_t>(1, values) + 15) / 16 * 16);
  }
  std::int64_t rows_, in_, out_;
};

}  // namespace

bool wants_narrow_linear(const LinearSpec& s) {
  return s.out_features <= max_outputs && s.activation == Activation::none;
}

std::unique_ptr<Op> make_narrow_linear(const LinearSpec& s) { return std::make_unique<NarrowLinear>(s); }

}  // namespace millrace::cpu
