// Operations that are linear maps of their source, by their definition, in double. linear_gradient() transposes them.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "millrace/ops/blocks.hpp"
#include "millrace/ops/rotary.hpp"
#include "millrace/ops/upsample.hpp"

namespace millrace::reference {

using Numbers = std::vector<double>;

// The gradient of f, a linear map of `count` numbers: one call for each of them.
inline Numbers linear_gradient(const std::function<Numbers(const Numbers&)>& f, std::size_t count,
                               const Numbers& diff_dst) {
  Numbers x(count, 0.0), out(count, 0.0);
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = 1;
    const Numbers column = f(x);
    for (std::size_t o = 0; o < column.size(); ++o) out[i] += column[o] * diff_dst[o];
    x[i] = 0;
  }
  return out;
}

inline Numbers rotary(const RotarySpec& s, const Numbers& src) {
  Numbers dst = src;
  const std::int64_t width = s.src[-1], size = s.head_size();
  for (std::int64_t at = 0; at < s.src[0] * s.src[1]; ++at)
    for (std::int64_t head = 0; head < s.heads + s.key_heads; ++head)
      for (std::int64_t i = 0; i < size / 2; ++i) {
        const double angle = double(at % s.src[1]) / std::pow(double(s.theta), 2.0 * double(i) / double(size));
        const std::size_t a = std::size_t(at * width + head * size + i), b = a + std::size_t(size / 2);
        dst[a] = src[a] * std::cos(angle) - src[b] * std::sin(angle);
        dst[b] = src[a] * std::sin(angle) + src[b] * std::cos(angle);
      }
  return dst;
}

// Index of an element by its position along each axis.
inline std::size_t index_of(const Shape& shape, const Shape& at) {
  std::int64_t index = 0;
  for (int a = 0; a < shape.rank; ++a) index = index * shape[a] + at[a];
  return std::size_t(index);
}
// Calls body(position) for each element, in order.
inline void each_position(const Shape& shape, const std::function<void(const Shape&)>& body) {
  Shape at = shape;
  for (std::int64_t i = 0; i < shape.count(); ++i) {
    std::int64_t rest = i;
    for (int a = shape.rank - 1; a >= 0; --a) {
      at[a] = rest % shape[a];
      rest /= shape[a];
    }
    body(at);
  }
}

inline Numbers concat(const ConcatSpec& s, const Numbers& a, const Numbers& b) {
  Numbers dst;
  each_position(s.dst(), [&](Shape at) {
    if (at[s.axis] < s.src[s.axis]) return dst.push_back(a[index_of(s.src, at)]);
    at[s.axis] -= s.src[s.axis];
    dst.push_back(b[index_of(s.other, at)]);
  });
  return dst;
}

inline Numbers slice(const SliceSpec& s, const Numbers& src) {
  Numbers dst;
  each_position(s.dst(), [&](Shape at) {
    at[s.axis] += s.begin;
    dst.push_back(src[index_of(s.src, at)]);
  });
  return dst;
}

// The weight of an element of the source along one axis: of `nearest` by the interval that it fills, of `linear` by its
// distance.
inline double upsample_weight(const UpsampleSpec& s, std::int64_t result, std::int64_t source, std::int64_t extent) {
  if (s.kind == UpsampleSpec::Kind::nearest) return result / s.factor == source ? 1 : 0;
  const double x = std::clamp((double(result) + 0.5) / double(s.factor) - 0.5, 0.0, double(extent - 1));
  return std::max(0.0, 1 - std::abs(x - double(source)));
}

inline Numbers upsample(const UpsampleSpec& s, const Numbers& src) {
  Numbers dst;
  each_position(s.dst(), [&](const Shape& to) {
    double sum = 0;
    each_position(s.src, [&](const Shape& from) {
      double weight = from[0] == to[0] && from[-1] == to[-1] ? 1 : 0;
      for (int a = 1; weight > 0 && a + 1 < s.src.rank; ++a) weight *= upsample_weight(s, to[a], from[a], s.src[a]);
      if (weight > 0) sum += weight * src[index_of(s.src, from)];
    });
    dst.push_back(sum);
  });
  return dst;
}

}  // namespace millrace::reference
