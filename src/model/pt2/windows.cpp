// Weighted sums of elements of an axis: pools whose windows overlap, and interpolation. The elements of all windows are
// copied, multiplied by their weights, and added up.
#include <algorithm>
#include <cmath>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {

Value windows_of_axis(Context& c, const Call& call, Value x, int axis, const WeightedWindows& windows) {
  std::size_t width = 1;
  for (const auto& window : windows) width = std::max(width, window.size());
  checked_count({std::int64_t(windows.size()), std::int64_t(width)});
  std::vector<std::int32_t> index;
  std::vector<double> weights;  // that of a mean is 1
  for (const auto& window : windows)
    for (std::size_t i = 0; i < width; ++i) {
      index.push_back(i < window.size() ? std::int32_t(window[i].first) : -1);
      weights.push_back(i < window.size() ? window[i].second * double(width) : 0);
    }
  x = c.take(call, c.plain(call, x), axis, std::move(index));
  Sizes sizes = x.axes.sizes(), of_weights(sizes.size() + 1, 1);
  sizes[std::size_t(axis)] = std::int64_t(windows.size());
  sizes.insert(sizes.begin() + axis + 1, std::int64_t(width));
  if (!x.axes.view(sizes)) call.refuse("has windows of an axis that is divided");
  of_weights[std::size_t(axis)] = std::int64_t(windows.size());
  of_weights[std::size_t(axis) + 1] = std::int64_t(width);
  if (std::ranges::any_of(weights, [](double weight) { return std::abs(weight - 1) > 1e-12; }))
    x = affine(c, call, x, Constant::of(of_weights, std::move(weights), Constant::Type::real), Constant::filled({}, 0));
  return mean_over(c, call, x, {axis + 1}, false);
}

WeightedWindows adaptive_windows(std::int64_t from, std::int64_t to) {
  checked_count({from});
  WeightedWindows out(std::size_t(checked_count({to})));
  for (std::int64_t i = 0; i < to; ++i) {
    const std::int64_t begin = i * from / to, end = ((i + 1) * from + to - 1) / to;
    for (std::int64_t at = begin; at < end; ++at) out[std::size_t(i)].emplace_back(at, 1 / double(end - begin));
  }
  return out;
}

// PyTorch computes the index in float32.
WeightedWindows nearest_windows(std::int64_t from, std::int64_t to, double scale) {
  WeightedWindows out(std::size_t(checked_count({to})));
  for (std::int64_t i = 0; i < to; ++i) {
    const auto at = std::int64_t(std::floor(float(i) * float(scale)));
    out[std::size_t(i)].emplace_back(std::min(at, from - 1), 1.0);
  }
  return out;
}

WeightedWindows linear_windows(std::int64_t from, std::int64_t to, double scale, bool align_corners) {
  WeightedWindows out(std::size_t(checked_count({to})));
  if (align_corners) scale = to > 1 ? double(from - 1) / double(to - 1) : 0;
  for (std::int64_t i = 0; i < to; ++i) {
    const double place = align_corners ? double(i) * scale : std::max((double(i) + 0.5) * scale - 0.5, 0.0);
    const std::int64_t first = std::min(std::int64_t(place), from - 1), second = std::min(first + 1, from - 1);
    const double share = std::clamp(place - double(first), 0.0, 1.0);
    out[std::size_t(i)].emplace_back(first, 1 - share);
    out[std::size_t(i)].emplace_back(second, share);
  }
  return out;
}

}  // namespace millrace::pt2
