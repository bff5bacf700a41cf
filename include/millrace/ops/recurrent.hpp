// One layer and one direction of an LSTM (Hochreiter and Schmidhuber 1997), a GRU (Cho et al. 2014) or a plain
// recurrent network (Elman 1990), with the definitions of torch.nn.LSTM, torch.nn.GRU and torch.nn.RNN. The first state
// is zero. With x = src[0] at one time step, h the result of the step before, s() the sigmoid, and * elementwise:
//
//   lstm   i, f, g, o = s(...), s(...), tanh(...), s(...) of W_ih x + b_ih + W_hh h + b_hh
//          c' = f * c + i * g                h' = o * tanh(c')
//   gru    r, z = s(...), s(...) of W_ih x + b_ih + W_hh h + b_hh
//          n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
//          h' = (1 - z) * n + z * h
//   rnn    h' = f(W_ih x + b_ih + W_hh h + b_hh), f being tanh or ReLU
//
//   src[0]      (N, S, in)
//   dst         (N, S, units): h' of each time step. With cell_state (N, S + 1, units): behind them, in both
//               directions, c' of the step that was computed last
//   weight[0]   W_ih, (gates * units, in) in `dtype`: the rows of i, f, g, o, or of r, z, n; one gate: h'
//   weight[1]   W_hh, (gates * units, units) in `dtype`
//   weight[2]   b_ih, (gates * units) float32, if bias
//   weight[3]   b_hh, the same
//
// Sums, gates and the state are float32 for every dtype; h is rounded to dtype where it is multiplied by W_hh.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct RecurrentSpec {
  enum class Kind { lstm, gru, rnn_tanh, rnn_relu };
  Shape src;
  std::int64_t units = 0;
  Kind kind = Kind::lstm;
  bool bias = true;
  bool reverse = false;  // from the last time step to the first one; dst keeps the order of src
  bool need_diff_src = true;
  bool cell_state = false;  // lstm only
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  std::int64_t rows() const { return src[0]; }
  std::int64_t steps() const { return src[1]; }
  std::int64_t features() const { return src[2]; }
  std::int64_t gates() const { return kind == Kind::lstm ? 4 : kind == Kind::gru ? 3 : 1; }
  bool plain() const { return gates() == 1; }
  std::int64_t width() const { return gates() * units; }  // of all gates
  std::int64_t time_of(std::int64_t step) const { return reverse ? steps() - 1 - step : step; }
  std::int64_t positions() const { return steps() + (cell_state ? 1 : 0); }  // of dst
  Shape dst() const { return {src[0], positions(), units}; }
  // Elements of a row of dst before the state of the cell.
  std::int64_t cell_at() const { return steps() * units; }
  Shape weight_ih() const { return {width(), src[2]}; }
  Shape weight_hh() const { return {width(), units}; }
  double flops() const { return 2.0 * double(rows() * steps()) * double(width()) * double(features() + units); }
  void check() const;  // Error(config): the layer has no time steps, or nothing to compute
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// Where an implementation keeps its arrays, as offsets in bytes. All arrays are in the order of the computation, one
// step after the other, with `rows` rows each: at least those of the Spec. Mode::train: gates, state, hidden and query
// are in `saved`, for all steps. Mode::infer: everything is in the workspace; gates are for all steps, state and hidden
// for two steps that take turns, and query for one.
struct RecurrentLayout {
  RecurrentLayout() = default;
  // scratch: bytes at the beginning of the workspace that the layout leaves free.
  RecurrentLayout(const RecurrentSpec&, std::int64_t rows, std::size_t scratch);

  std::size_t gates = 0;   // (S, rows, width) float32: first W_ih x, then the gates
  std::size_t state = 0;   // (S, rows, units) float32: c of an LSTM, else h
  std::size_t hidden = 0;  // (S, rows, units) dtype: h. In float32 the same as state, but for an LSTM
  std::size_t query = 0;   // (S, rows, units) float32: W_hn h + b_hn of a GRU
  // In the workspace.
  std::size_t src = 0;      // (S, rows, in) dtype; in backward, the gradient at last
  std::size_t product = 0;  // (rows, width) float32: W_hh h of one step
  // Backward only. Gradients before the gates' functions, of what W_ih x and W_hh h are added to. They are one array
  // but for a GRU.
  std::size_t diff_ih = 0, diff_hh = 0;  // (S, rows, width) dtype
  std::size_t diff_hidden = 0;           // (rows, units) float32: of h by the next step's product
  std::size_t carry = 0;                 // (rows, units) float32: of c by the next step, or of h past the gates
  std::size_t saved_bytes = 0, workspace_bytes = 0;
};

}  // namespace millrace
