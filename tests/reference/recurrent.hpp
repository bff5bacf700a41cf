// LSTM, GRU and RNN by their definitions, in double.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/ops/recurrent.hpp"

namespace millrace::reference {

struct RecurrentValues {
  std::vector<double> src, weight_ih, weight_hh, bias_ih, bias_hh;  // biases may be empty
};

class Recurrent {
 public:
  using Values = std::vector<double>;
  Recurrent(const RecurrentSpec& spec, const RecurrentValues& values) : s(spec), v(values) {
    const auto count = std::size_t(s.rows() * s.steps());
    gates.resize(count * std::size_t(s.width()));
    state.resize(count * std::size_t(s.units));
    hidden = query = state;
    dst.resize(std::size_t(s.dst().count()));
    for (std::int64_t row = 0; row < s.rows(); ++row)
      for (std::int64_t step = 0; step < s.steps(); ++step) forward(row, step);
  }

  Values dst;
  RecurrentValues gradients(const Values& diff_dst) {
    RecurrentValues out{Values(v.src.size()), Values(v.weight_ih.size()), Values(v.weight_hh.size()),
                        Values(std::size_t(s.width())), Values(std::size_t(s.width()))};
    for (std::int64_t row = 0; row < s.rows(); ++row) {
      Values dh(std::size_t(s.units)), dc = dh;
      if (s.cell_state) std::copy_n(&diff_dst[cell(row)], s.units, dc.begin());
      for (std::int64_t step = s.steps() - 1; step >= 0; --step) backward(row, step, diff_dst, dh, dc, out);
    }
    return out;
  }

 private:
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  std::size_t place(std::int64_t row, std::int64_t step) const {
    return std::size_t(row * s.steps() + s.time_of(step));
  }
  // In dst, which has more positions than the other arrays if it has the state of the cell.
  std::size_t in_dst(std::int64_t row, std::int64_t step) const {
    return std::size_t((row * s.positions() + s.time_of(step)) * s.units);
  }
  std::size_t cell(std::int64_t row) const { return std::size_t(row * s.positions() * s.units + s.cell_at()); }
  double before(const Values& of, std::int64_t row, std::int64_t step, std::int64_t unit) const {
    return step == 0 ? 0 : of[place(row, step - 1) * std::size_t(s.units) + std::size_t(unit)];
  }
  static double bias(const Values& b, std::size_t k) { return b.empty() ? 0 : b[k]; }

  void forward(std::int64_t row, std::int64_t step) {
    const std::size_t p = place(row, step), in = std::size_t(s.features()), units = std::size_t(s.units);
    Values x(std::size_t(s.width())), h = x;
    for (std::size_t k = 0; k < x.size(); ++k) {
      x[k] = bias(v.bias_ih, k);
      h[k] = bias(v.bias_hh, k);
      for (std::size_t i = 0; i < in; ++i) x[k] += v.weight_ih[k * in + i] * v.src[p * in + i];
      for (std::size_t i = 0; i < units; ++i)
        h[k] += v.weight_hh[k * units + i] * before(hidden, row, step, std::int64_t(i));
    }
    double* const g = &gates[p * x.size()];
    for (std::size_t u = 0; u < units; ++u) {
      const std::size_t at = p * units + u;
      if (s.kind == RecurrentSpec::Kind::lstm) {
        for (std::size_t gate = 0; gate < 4; ++gate) {
          const double sum = x[gate * units + u] + h[gate * units + u];
          g[gate * units + u] = gate == 2 ? std::tanh(sum) : sigmoid(sum);
        }
        state[at] = g[units + u] * before(state, row, step, std::int64_t(u)) + g[u] * g[2 * units + u];
        hidden[at] = g[3 * units + u] * std::tanh(state[at]);
      } else if (s.plain()) {
        const double sum = x[u] + h[u];
        g[u] = hidden[at] = s.kind == RecurrentSpec::Kind::rnn_tanh ? std::tanh(sum) : std::max(sum, 0.0);
      } else {
        g[u] = sigmoid(x[u] + h[u]);
        g[units + u] = sigmoid(x[units + u] + h[units + u]);
        query[at] = h[2 * units + u];
        g[2 * units + u] = std::tanh(x[2 * units + u] + g[u] * query[at]);
        const double z = g[units + u];
        hidden[at] = (1 - z) * g[2 * units + u] + z * before(hidden, row, step, std::int64_t(u));
      }
      dst[in_dst(row, step) + u] = hidden[at];
      if (s.cell_state && step + 1 == s.steps()) dst[cell(row) + u] = state[at];
    }
  }

  // dh and dc: of the results and the state of this step by the later ones; then by this one too, of the step before.
  void backward(std::int64_t row, std::int64_t step, const Values& diff_dst, Values& dh, Values& dc,
                RecurrentValues& out) const {
    const std::size_t p = place(row, step), in = std::size_t(s.features()), units = std::size_t(s.units);
    const double* const g = &gates[p * std::size_t(s.width())];
    Values dx(std::size_t(s.width())), dhh = dx, next(units);
    for (std::size_t u = 0; u < units; ++u) {
      const double d = diff_dst[in_dst(row, step) + u] + dh[u];
      if (s.kind == RecurrentSpec::Kind::lstm) {
        const double i = g[u], f = g[units + u], c = g[2 * units + u], o = g[3 * units + u];
        const double t = std::tanh(state[p * units + u]), all = dc[u] + d * o * (1 - t * t);
        dx[u] = all * c * i * (1 - i);
        dx[units + u] = all * before(state, row, step, std::int64_t(u)) * f * (1 - f);
        dx[2 * units + u] = all * i * (1 - c * c);
        dx[3 * units + u] = d * t * o * (1 - o);
        dc[u] = all * f;
      } else if (s.plain()) {
        dx[u] = s.kind == RecurrentSpec::Kind::rnn_tanh ? d * (1 - g[u] * g[u]) : g[u] > 0 ? d : 0;
      } else {
        const double r = g[u], z = g[units + u], n = g[2 * units + u];
        dx[2 * units + u] = d * (1 - z) * (1 - n * n);
        dx[u] = dx[2 * units + u] * query[p * units + u] * r * (1 - r);
        dx[units + u] = d * (before(hidden, row, step, std::int64_t(u)) - n) * z * (1 - z);
        next[u] = d * z;
      }
    }
    dhh = dx;
    if (s.kind == RecurrentSpec::Kind::gru)
      for (std::size_t u = 0; u < units; ++u) dhh[2 * units + u] *= g[u];
    for (std::size_t k = 0; k < dx.size(); ++k) {
      for (std::size_t i = 0; i < in; ++i) {
        out.weight_ih[k * in + i] += dx[k] * v.src[p * in + i];
        out.src[p * in + i] += dx[k] * v.weight_ih[k * in + i];
      }
      for (std::size_t i = 0; i < units; ++i) {
        out.weight_hh[k * units + i] += dhh[k] * before(hidden, row, step, std::int64_t(i));
        next[i] += dhh[k] * v.weight_hh[k * units + i];
      }
      out.bias_ih[k] += dx[k];
      out.bias_hh[k] += dhh[k];
    }
    dh = next;
  }

  RecurrentSpec s;
  RecurrentValues v;
  Values gates, state, hidden, query;
};

}  // namespace millrace::reference
