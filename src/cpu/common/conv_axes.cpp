#include "cpu/common/conv_axes.hpp"

namespace millrace::cpu {

Shape with_three_axes(const Shape& s) {
  Shape out{s[0], 1, 1, 1, s[-1]};
  for (int a = 1; a + 1 < s.rank; ++a) out[5 - s.rank + a] = s[a];
  return out;
}

ConvAxes::ConvAxes(const ConvSpec& s) : src(with_three_axes(s.src)), dst(with_three_axes(s.dst())) {
  const auto set = [&](std::array<std::int64_t, 3>& to, const std::array<std::int64_t, 3>& from) {
    for (int a = 0; a < s.window.rank; ++a) to[std::size_t(3 - s.window.rank + a)] = from[std::size_t(a)];
  };
  set(kernel, s.window.kernel);
  set(stride, s.window.stride);
  set(pad, s.window.pad);
  set(dilation, s.window.dilation);
}

}  // namespace millrace::cpu
