// A recurrent layer without gates at one time step: h' = f(W_ih x + b_ih + W_hh h + b_hh).
#include "cuda/kernels/tokens/recurrent.hpp"

namespace millrace::cuda {
namespace {

template <class T, int n>
struct PlainStep {
  RecurrentForward a;
  Divider by_packs;
  bool relu;

  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    const int row = by_packs.split(pack);
    const std::int64_t units = std::int64_t(by_packs.divisor) * n, unit = std::int64_t(pack) * n;
    const std::int64_t at = row * units + unit;
    float h[n], more[n];
    load(h, a.gates + at);
    load_or_zero(more, a.product ? a.product + at : nullptr);
    for (int k = 0; k < n; ++k) h[k] += more[k];
    load_or_zero(more, a.bias_ih ? a.bias_ih + unit : nullptr);
    for (int k = 0; k < n; ++k) h[k] += more[k];
    load_or_zero(more, a.bias_hh ? a.bias_hh + unit : nullptr);
    for (int k = 0; k < n; ++k) {
      const float sum = h[k] + more[k];
      h[k] = relu ? (sum < 0 ? 0 : sum) : tanhf(sum);
    }
    store(a.gates + at, h);
    store_units<T>(a.hidden, at, h);
    if (row < a.own) store_units<T>(a.dst, row * a.dst_stride + unit, h);
  }
};

template <class T, int n>
struct PlainGradient {
  RecurrentBackward a;
  Divider by_packs;
  bool relu;

  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    const int row = by_packs.split(pack);
    const std::int64_t units = std::int64_t(by_packs.divisor) * n, unit = std::int64_t(pack) * n;
    const std::int64_t at = row * units + unit;
    float h[n], d[n], more[n];
    load(h, a.gates + at);
    load_or_zero(d, a.diff_hidden ? a.diff_hidden + at : nullptr);
    if (row < a.own) {
      load(more, static_cast<const T*>(a.diff_dst) + row * a.dst_stride + unit);
      for (int k = 0; k < n; ++k) d[k] += more[k];
    }
    for (int k = 0; k < n; ++k) d[k] = relu ? (h[k] > 0 ? d[k] : 0) : d[k] * (1 - h[k] * h[k]);
    store_units<T>(a.diff_ih, at, d);
  }
};

}  // namespace

void plain_recurrent_forward(const LaunchContext& context, const RecurrentSpec& s, const RecurrentForward& a) {
  run_gates<PlainStep>(context, s, a, s.kind == RecurrentSpec::Kind::rnn_relu);
}
void plain_recurrent_backward(const LaunchContext& context, const RecurrentSpec& s, const RecurrentBackward& a) {
  run_gates<PlainGradient>(context, s, a, s.kind == RecurrentSpec::Kind::rnn_relu);
}

}  // namespace millrace::cuda
