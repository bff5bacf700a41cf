#include "cpu/tokens/recurrent_gates.hpp"

#include "cpu/common/vector_math.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace::cpu {

MR_TARGET_CLONES void lstm_forward(const GateForward& a, std::int64_t n) {
  const ExpBounds bounds;
  const std::int64_t u = a.units;
  float* __restrict gates = a.gates;
  const float* __restrict product = a.product, * __restrict bias = a.bias, * __restrict before = a.before;
  float* __restrict state = a.state, * __restrict hidden = a.hidden;
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) {
    const float i = fast_sigmoid(gates[k] + product[k] + bias[k], bounds);
    const float f = fast_sigmoid(gates[u + k] + product[u + k] + bias[u + k], bounds);
    const float g = fast_tanh(gates[2 * u + k] + product[2 * u + k] + bias[2 * u + k], bounds);
    const float o = fast_sigmoid(gates[3 * u + k] + product[3 * u + k] + bias[3 * u + k], bounds);
    const float c = f * before[k] + i * g;
    gates[k] = i;
    gates[u + k] = f;
    gates[2 * u + k] = g;
    gates[3 * u + k] = o;
    state[k] = c;
    hidden[k] = o * fast_tanh(c, bounds);
  }
}

MR_TARGET_CLONES void gru_forward(const GateForward& a, std::int64_t n) {
  const ExpBounds bounds;
  const std::int64_t u = a.units;
  float* __restrict gates = a.gates;
  const float* __restrict product = a.product, * __restrict bias = a.bias, * __restrict before = a.before;
  float* __restrict state = a.state, * __restrict query = a.query;
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) {
    const float r = fast_sigmoid(gates[k] + product[k] + bias[k], bounds);
    const float z = fast_sigmoid(gates[u + k] + product[u + k] + bias[u + k], bounds);
    const float q = product[2 * u + k] + bias[3 * u + k];
    const float c = fast_tanh(gates[2 * u + k] + bias[2 * u + k] + r * q, bounds);
    gates[k] = r;
    gates[u + k] = z;
    gates[2 * u + k] = c;
    query[k] = q;
    state[k] = (1 - z) * c + z * before[k];
  }
}

MR_TARGET_CLONES void rnn_tanh_forward(const GateForward& a, std::int64_t n) {
  const ExpBounds bounds;
  float* __restrict gates = a.gates, * __restrict state = a.state;
  const float* __restrict product = a.product, * __restrict bias = a.bias;
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) state[k] = gates[k] = fast_tanh(gates[k] + product[k] + bias[k], bounds);
}

MR_TARGET_CLONES void rnn_relu_forward(const GateForward& a, std::int64_t n) {
  float* __restrict gates = a.gates, * __restrict state = a.state;
  const float* __restrict product = a.product, * __restrict bias = a.bias;
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) {
    const float sum = gates[k] + product[k] + bias[k];
    state[k] = gates[k] = sum < 0 ? 0 : sum;  // not a number stays so
  }
}

MR_TARGET_CLONES void lstm_backward(const GateBackward& a, std::int64_t n) {
  const ExpBounds bounds;
  const std::int64_t u = a.units;
  const float* __restrict gates = a.gates, * __restrict before = a.before, * __restrict state = a.state;
  const float* __restrict diff_dst = a.diff_dst, * __restrict diff_hidden = a.diff_hidden;
  float* __restrict carry = a.carry, * __restrict di = a.diff[0], * __restrict df = a.diff[1];
  float* __restrict dg = a.diff[2], * __restrict d_o = a.diff[3];
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) {
    const float i = gates[k], f = gates[u + k], g = gates[2 * u + k], o = gates[3 * u + k];
    const float t = fast_tanh(state[k], bounds), dh = diff_dst[k] + diff_hidden[k];
    const float dc = carry[k] + dh * o * (1 - t * t);
    di[k] = dc * g * i * (1 - i);
    df[k] = dc * before[k] * f * (1 - f);
    dg[k] = dc * i * (1 - g * g);
    d_o[k] = dh * t * o * (1 - o);
    carry[k] = dc * f;
  }
}

MR_TARGET_CLONES void gru_backward(const GateBackward& a, std::int64_t n) {
  const std::int64_t u = a.units;
  const float* __restrict gates = a.gates, * __restrict before = a.before, * __restrict query = a.query;
  const float* __restrict diff_dst = a.diff_dst, * __restrict diff_hidden = a.diff_hidden;
  float* __restrict carry = a.carry, * __restrict dr = a.diff[0], * __restrict dz = a.diff[1];
  float* __restrict dn = a.diff[2], * __restrict dq = a.diff[3];
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) {
    const float r = gates[k], z = gates[u + k], c = gates[2 * u + k];
    const float dh = diff_dst[k] + diff_hidden[k] + carry[k];
    const float d = dh * (1 - z) * (1 - c * c);
    dr[k] = d * query[k] * r * (1 - r);
    dz[k] = dh * (before[k] - c) * z * (1 - z);
    dn[k] = d;
    dq[k] = d * r;
    carry[k] = dh * z;
  }
}

MR_TARGET_CLONES void rnn_tanh_backward(const GateBackward& a, std::int64_t n) {
  const float* __restrict gates = a.gates, * __restrict diff_dst = a.diff_dst, * __restrict more = a.diff_hidden;
  float* __restrict diff = a.diff[0];
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) diff[k] = (diff_dst[k] + more[k]) * (1 - gates[k] * gates[k]);
}

MR_TARGET_CLONES void rnn_relu_backward(const GateBackward& a, std::int64_t n) {
  const float* __restrict gates = a.gates, * __restrict diff_dst = a.diff_dst, * __restrict more = a.diff_hidden;
  float* __restrict diff = a.diff[0];
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) diff[k] = gates[k] > 0 ? diff_dst[k] + more[k] : 0;
}

}  // namespace millrace::cpu
