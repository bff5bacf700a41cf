// Convolutions of cuDNN's plans, computed on the host in double.
#pragma once
#include <cstdint>
#include <vector>

#include "millrace/base/types.hpp"

namespace millrace::test {

using Numbers = std::vector<std::int64_t>;

// A tensor of the plan: in memory, or virtual between two operations. A convolution reads zeros around a virtual tensor
// too, as cuDNN pads what comes out of the operations before it.
struct View {
  Numbers dims, strides;
  DType type;
  void* data = nullptr;
  std::vector<double> kept;

  double get(std::int64_t i) const {
    if (!data) return kept[std::size_t(i)];
    if (type == DType::f32) return static_cast<float*>(data)[i];
    if (type == DType::i32) return static_cast<std::int32_t*>(data)[i];
    if (type == DType::f16) return float(static_cast<f16*>(data)[i]);
    return float(static_cast<bf16*>(data)[i]);
  }
  void set(std::int64_t i, double value) {
    if (!data)
      kept[std::size_t(i)] = type == DType::f16    ? double(float(f16(float(value))))
                             : type == DType::bf16 ? double(float(bf16(float(value))))
                                                   : value;
    else if (type == DType::f32)
      static_cast<float*>(data)[i] = float(value);
    else if (type == DType::f16)
      static_cast<f16*>(data)[i] = f16(float(value));
    else
      static_cast<bf16*>(data)[i] = bf16(float(value));
  }
  std::int64_t count() const {
    std::int64_t n = 1;
    for (const auto d : dims) n *= d;
    return n;
  }
  std::int64_t extent() const {  // elements from the first to the last
    std::int64_t last = 0;
    for (std::size_t a = 0; a < dims.size(); ++a) last += (dims[a] - 1) * strides[a];
    return last + 1;
  }
};

// Calls body(index) for every index below dims.
template <class Body>
void each(const Numbers& dims, const Body& body) {
  Numbers at(dims.size(), 0);
  for (;;) {
    body(at);
    std::size_t axis = dims.size();
    while (axis > 0 && ++at[axis - 1] == dims[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

inline std::int64_t offset(const View& v, const Numbers& at) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < at.size(); ++i) sum += at[i] * v.strides[i];
  return sum;
}

// Where an index of a tensor (first, channels, spatial...) lies if channels are the last axis.
inline std::size_t channels_last(const Numbers& dims, const Numbers& at) {
  std::int64_t i = at[0];
  for (std::size_t a = 2; a < dims.size(); ++a) i = i * dims[a] + at[a];
  return std::size_t(i * dims[1] + at[1]);
}
inline std::vector<double> values_of(const View& v) {
  std::vector<double> out(std::size_t(v.count()));
  each(v.dims, [&](const Numbers& at) { out[channels_last(v.dims, at)] = v.get(offset(v, at)); });
  return out;
}

struct Windows {
  Numbers pad, stride, dilation;
};

// One position of the output and one position of the kernel: channels of a group are multiplied with those of the other
// tensor. The inner loops are over adjacent values.
struct ConvolvedChannels {
  std::size_t groups, in, out, taps;  // in, out: channels of a group
  // weights (channel in, all channels out)
  void forward(const double* x, const double* weights, double* y) const {
    for (std::size_t g = 0; g < groups; ++g)
      for (std::size_t c = 0; c < in; ++c)
        for (std::size_t k = 0; k < out; ++k) y[g * out + k] += x[g * in + c] * weights[c * groups * out + g * out + k];
  }
  // weights (all channels out, taps, channel in)
  void to_source(const double* y, const double* weights, double* x) const {
    for (std::size_t k = 0; k < groups * out; ++k)
      for (std::size_t c = 0; c < in; ++c) x[k / out * in + c] += y[k] * weights[k * taps * in + c];
  }
  void to_weights(const double* x, const double* y, double* weights) const {
    for (std::size_t k = 0; k < groups * out; ++k)
      for (std::size_t c = 0; c < in; ++c) weights[k * taps * in + c] += y[k] * x[k / out * in + c];
  }
};

// result: one of the three, computed from the other two.
inline void convolve(const Windows& windows, const View& x, const View& w, const View& y, View& result, double beta) {
  const auto& [pad, stride, dilation] = windows;
  const auto size = [](std::int64_t n) { return std::size_t(n); };
  const std::size_t groups = size(x.dims[1] / w.dims[1]);
  const std::size_t taps = size(w.count() / w.dims[0] / w.dims[1]);
  const ConvolvedChannels channels{groups, size(w.dims[1]), size(y.dims[1]) / groups, taps};
  const std::vector<double> of_x = values_of(x), of_w = values_of(w), of_y = values_of(y);
  std::vector<double> by_tap(of_w.size());  // (taps, channel in, all channels out)
  for (std::size_t k = 0; k < size(w.dims[0]); ++k)
    for (std::size_t i = 0; i < taps * channels.in; ++i)
      by_tap[i * size(w.dims[0]) + k] = of_w[k * taps * channels.in + i];
  std::vector<double> sums(size(result.count()), 0.0);
  Numbers positions = y.dims, kernel(w.dims.begin() + 2, w.dims.end()), from(x.dims.size(), 0);
  positions[1] = 1;
  each(positions, [&](const Numbers& to) {
    std::size_t tap = 0;
    const std::size_t at_y = channels_last(y.dims, to);
    each(kernel, [&](const Numbers& k) {
      const std::size_t t = tap++;
      from[0] = to[0];
      for (std::size_t a = 0; a < pad.size(); ++a) {
        from[a + 2] = to[a + 2] * stride[a] - pad[a] + k[a] * dilation[a];
        if (from[a + 2] < 0 || from[a + 2] >= x.dims[a + 2]) return;
      }
      const std::size_t at_x = channels_last(x.dims, from);
      if (&result == &y)
        channels.forward(&of_x[at_x], &by_tap[t * channels.in * size(w.dims[0])], &sums[at_y]);
      else if (&result == &x)
        channels.to_source(&of_y[at_y], &of_w[t * channels.in], &sums[at_x]);
      else
        channels.to_weights(&of_x[at_x], &of_y[at_y], &sums[t * channels.in]);
    });
  });
  each(result.dims, [&](const Numbers& at) {
    const std::int64_t i = offset(result, at);
    result.set(i, sums[channels_last(result.dims, at)] + (beta == 0 ? 0 : beta * result.get(i)));
  });
}

}  // namespace millrace::test
