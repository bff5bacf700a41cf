// The gates of LSTM and GRU at one time step, and the copies between the order of samples and
// that of steps.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/kernels/activation_functions.hpp"
#include "cuda/kernels/row_loss.hpp"
#include "cuda/kernels/tokens/recurrent.hpp"

namespace millrace::cuda {
namespace {

MR_DEVICE_INLINE float gate_of(float x) { return 1 / (1 + expf(-x)); }

// Index i is a pack of n units of a row. x: W_ih x and the biases; h: W_hh h and the biases of its own.
template <class T, int n>
struct GateStep {
  RecurrentForward a;
  Divider by_packs;  // of the units
  bool lstm;

  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    const int row = by_packs.split(pack);
    const std::int64_t units = std::int64_t(by_packs.divisor) * n, unit = std::int64_t(pack) * n;
    const std::int64_t at = row * units + unit, gates = row * units * (lstm ? 4 : 3) + unit;
    float before[n], result[n];
    load_or_zero(before, a.before ? a.before + at : nullptr);
    if (lstm)
      step_lstm(units, row, unit, gates, at, before, result);
    else
      step_gru(units, unit, gates, at, before, result);
    store_units<T>(a.hidden, at, result);
    if (row < a.own) store_units<T>(a.dst, row * a.dst_stride + unit, result);
  }

 private:
  // W_ih x + b_ih and W_hh h + b_hh of one gate.
  MR_DEVICE_INLINE void sums(float (&x)[n], float (&h)[n], std::int64_t gate, std::int64_t unit) const {
    float bias[n];
    load(x, a.gates + gate);
    load_or_zero(h, a.product ? a.product + gate : nullptr);
    load_or_zero(bias, a.bias_ih ? a.bias_ih + unit : nullptr);
    for (int k = 0; k < n; ++k) x[k] += bias[k];
    load_or_zero(bias, a.bias_hh ? a.bias_hh + unit : nullptr);
    for (int k = 0; k < n; ++k) h[k] += bias[k];
  }
  MR_DEVICE_INLINE void sigmoid_gate(float (&x)[n], std::int64_t gate, std::int64_t unit) const {
    float h[n];
    sums(x, h, gate, unit);
    for (int k = 0; k < n; ++k) x[k] = gate_of(x[k] + h[k]);
    store(a.gates + gate, x);
  }
  MR_DEVICE_INLINE void step_lstm(std::int64_t units, int row, std::int64_t unit, std::int64_t gates, std::int64_t at,
                                  const float (&before)[n], float (&result)[n]) const {
    float i[n], f[n], g[n], o[n], h[n];
    sigmoid_gate(i, gates, unit);
    sigmoid_gate(f, gates + units, units + unit);
    sums(g, h, gates + 2 * units, 2 * units + unit);
    for (int k = 0; k < n; ++k) g[k] = tanhf(g[k] + h[k]);
    store(a.gates + gates + 2 * units, g);
    sigmoid_gate(o, gates + 3 * units, 3 * units + unit);
    for (int k = 0; k < n; ++k) {
      i[k] = f[k] * before[k] + i[k] * g[k];
      result[k] = o[k] * tanhf(i[k]);
    }
    store(a.state + at, i);
    if (a.cell && row < a.own) store_units<T>(a.cell, row * a.dst_stride + unit, i);
  }
  MR_DEVICE_INLINE void step_gru(std::int64_t units, std::int64_t unit, std::int64_t gates, std::int64_t at,
                                 const float (&before)[n], float (&result)[n]) const {
    float r[n], z[n], c[n], q[n];
    sigmoid_gate(r, gates, unit);
    sigmoid_gate(z, gates + units, units + unit);
    sums(c, q, gates + 2 * units, 2 * units + unit);
    for (int k = 0; k < n; ++k) {
      c[k] = tanhf(c[k] + r[k] * q[k]);
      result[k] = (1 - z[k]) * c[k] + z[k] * before[k];
    }
    store(a.gates + gates + 2 * units, c);
    store(a.query + at, q);
    store(a.state + at, result);
  }
};

template <class T, int n>
struct GateGradient {
  RecurrentBackward a;
  Divider by_packs;
  bool lstm;

  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    int pack = int(i);
    const int row = by_packs.split(pack);
    const std::int64_t units = std::int64_t(by_packs.divisor) * n, unit = std::int64_t(pack) * n;
    const std::int64_t at = row * units + unit, gates = row * units * (lstm ? 4 : 3) + unit;
    float before[n], dh[n], carry[n], more[n];
    load_or_zero(before, a.before ? a.before + at : nullptr);
    load_or_zero(dh, a.diff_hidden ? a.diff_hidden + at : nullptr);
    load_or_zero(carry, a.carries ? a.carry + at : nullptr);
    if (row < a.own) {
      load(more, static_cast<const T*>(a.diff_dst) + row * a.dst_stride + unit);
      for (int k = 0; k < n; ++k) dh[k] += more[k];
      if (a.diff_cell) load(carry, static_cast<const T*>(a.diff_cell) + row * a.dst_stride + unit);
    }
    if (lstm)
      back_lstm(units, gates, at, before, dh, carry);
    else
      back_gru(units, gates, at, before, dh, carry);
    store(a.carry + at, carry);
  }

 private:
  MR_DEVICE_INLINE void write(void* array, std::int64_t at, const float (&values)[n]) const {
    store_units<T>(array, at, values);
  }
  MR_DEVICE_INLINE void back_lstm(std::int64_t units, std::int64_t gates, std::int64_t at, const float (&before)[n],
                                  const float (&dh)[n], float (&carry)[n]) const {
    float i[n], f[n], g[n], o[n], t[n];
    load(i, a.gates + gates);
    load(f, a.gates + gates + units);
    load(g, a.gates + gates + 2 * units);
    load(o, a.gates + gates + 3 * units);
    load(t, a.state + at);
    for (int k = 0; k < n; ++k) {
      const float tanh = tanhf(t[k]), dc = carry[k] + dh[k] * o[k] * (1 - tanh * tanh);
      carry[k] = dc * f[k];
      f[k] = dc * before[k] * f[k] * (1 - f[k]);
      o[k] = dh[k] * tanh * o[k] * (1 - o[k]);
      t[k] = dc * i[k] * (1 - g[k] * g[k]);
      i[k] = dc * g[k] * i[k] * (1 - i[k]);
    }
    write(a.diff_ih, gates, i);
    write(a.diff_ih, gates + units, f);
    write(a.diff_ih, gates + 2 * units, t);
    write(a.diff_ih, gates + 3 * units, o);
  }
  MR_DEVICE_INLINE void back_gru(std::int64_t units, std::int64_t gates, std::int64_t at, const float (&before)[n],
                                 const float (&dh)[n], float (&carry)[n]) const {
    float r[n], z[n], c[n], q[n];
    load(r, a.gates + gates);
    load(z, a.gates + gates + units);
    load(c, a.gates + gates + 2 * units);
    load(q, a.query + at);
    for (int k = 0; k < n; ++k) {
      const float all = dh[k] + carry[k], d = all * (1 - z[k]) * (1 - c[k] * c[k]);
      carry[k] = all * z[k];
      z[k] = all * (before[k] - c[k]) * z[k] * (1 - z[k]);
      q[k] = d * q[k] * r[k] * (1 - r[k]);
      r[k] = d * r[k];
      c[k] = d;
    }
    write(a.diff_ih, gates, q);
    write(a.diff_hh, gates, q);
    write(a.diff_ih, gates + units, z);
    write(a.diff_hh, gates + units, z);
    write(a.diff_ih, gates + 2 * units, c);
    write(a.diff_hh, gates + 2 * units, r);
  }
};

// A block copies whole rows of features. Row r of `steps` is row r % rows of step r / rows.
template <class T, int n>
struct StepRows {
  std::int64_t count;  // rows of all steps
  Divider by_rows;
  int own, steps, width;
  bool reverse, back;
  T *in_steps, *samples;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    for (std::int64_t r = block.index(); r < count; r += block.blocks()) {
      int row = int(r);
      const int step = by_rows.split(row), time = reverse ? steps - 1 - step : step;
      if (row >= own && back) continue;
      T* const a = in_steps + r * width;
      T* const b = samples + (std::int64_t(row) * steps + time) * width;
      for (int c = block.thread() * n; c < width; c += block.threads() * n) {
        Pack<T, n> pack{};
        if (row < own) pack = *reinterpret_cast<const Pack<T, n>*>((back ? a : b) + c);
        store_pack((back ? b : a) + c, pack);
      }
    }
  }
};

void copy_steps(const LaunchContext& context, const RecurrentSpec& s, std::int64_t rows, void* steps, void* samples,
                bool back) {
  dispatch_dtype(s.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto pack) {
      constexpr int n = pack();
      const std::int64_t count = rows * s.steps(), most = std::int64_t(context.multiprocessors) * 16;
      launch<256, 4>(context, count < most ? count : most, even_threads(s.features() / n, 256), 0,
                     StepRows<T, n>{count, Divider(rows), int(s.rows()), int(s.steps()), int(s.features()), s.reverse,
                                    back, static_cast<T*>(steps), static_cast<T*>(samples)});
    };
    if (s.features() % pack_size<T> == 0)
      run(std::integral_constant<int, pack_size<T>>{});
    else
      run(std::integral_constant<int, 1>{});
  });
}

}  // namespace

void recurrent_forward(const LaunchContext& context, const RecurrentSpec& s, const RecurrentForward& a) {
  if (s.plain())
    plain_recurrent_forward(context, s, a);
  else
    run_gates<GateStep>(context, s, a, s.kind == RecurrentSpec::Kind::lstm);
}
void recurrent_backward(const LaunchContext& context, const RecurrentSpec& s, const RecurrentBackward& a) {
  if (s.plain())
    plain_recurrent_backward(context, s, a);
  else
    run_gates<GateGradient>(context, s, a, s.kind == RecurrentSpec::Kind::lstm);
}
void to_steps(const LaunchContext& context, const RecurrentSpec& s, std::int64_t rows, void* steps, const void* src) {
  copy_steps(context, s, rows, steps, const_cast<void*>(src), false);
}
void from_steps(const LaunchContext& context, const RecurrentSpec& s, std::int64_t rows, void* src, const void* steps) {
  copy_steps(context, s, rows, const_cast<void*>(steps), src, true);
}

}  // namespace millrace::cuda
