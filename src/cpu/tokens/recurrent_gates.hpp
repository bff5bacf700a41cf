// The gates of recurrent layers over arrays of float: n units of one row at one time step.
#pragma once
#include <cstdint>

namespace millrace::cpu {

// lstm: i, f, g, o; gru: r, z, n; rnn: one. Arrays of one row: gate q begins at q * units.
struct GateForward {
  std::int64_t units;
  float* gates;          // in: W_ih x; out: the gates
  const float* product;  // W_hh h
  const float* bias;     // b_ih + b_hh; gru: with b_ih alone for n, and b_hh of n as a fourth part
  const float* before;   // c of an LSTM, else h, one step before
  float* state;          // the same at this step
  float* hidden;         // h
  float* query;          // gru: W_hn h + b_hn
};
void lstm_forward(const GateForward&, std::int64_t n);
void gru_forward(const GateForward&, std::int64_t n);
void rnn_tanh_forward(const GateForward&, std::int64_t n);
void rnn_relu_forward(const GateForward&, std::int64_t n);

struct GateBackward {
  std::int64_t units;
  const float *gates, *before, *state, *query;
  const float* diff_dst;
  const float* diff_hidden;  // of h, by W_hh of the next step
  float* carry;              // in and out: of c, or of h past the gates
  float* diff[4];            // of each gate before its function; gru: the fourth is that of query
};
void lstm_backward(const GateBackward&, std::int64_t n);
void gru_backward(const GateBackward&, std::int64_t n);
void rnn_tanh_backward(const GateBackward&, std::int64_t n);
void rnn_relu_backward(const GateBackward&, std::int64_t n);

}  // namespace millrace::cpu
