#include "millrace/train/step/exact_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "millrace/base/target_clones.hpp"

namespace millrace {
namespace {

// Adding and subtracting 1.5 * 2^(52 - k) rounds to a multiple of 2^-k, because a double of this size has no smaller
// ones.
constexpr double round_high = 1.5 * 68719476736.0;  // 2^36, k = 16
constexpr double round_low = 1.5 / 64;              // 2^-6, k = 58
constexpr double limit = 33554432;                  // 2^25

MR_TARGET_CLONES void add_split(double* __restrict high, double* __restrict low, const float* __restrict values,
                                std::int64_t count) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = double(values[i]);
    const double coarse = (value + round_high) - round_high;
    const double fine = ((value - coarse) + round_low) - round_low;
    high[i] += std::abs(value) < limit ? coarse : infinity;
    low[i] += fine;
  }
}

}  // namespace

void ExactDouble::add(double value) {
  constexpr double round_top = 1.5 * 68719476736.0 * 1099511627776.0;  // 2^76, k = -24
  constexpr double top_limit = 18446744073709551616.0;                 // 2^64
  if (!(std::abs(value) < top_limit)) {
    parts[0] += value * std::numeric_limits<double>::infinity();
    return;
  }
  for (std::size_t i = 0; const double rounder : {round_top, round_high, round_low}) {
    const double part = (value + rounder) - rounder;
    parts[i++] += part;
    value -= part;
  }
}

ExactSum::ExactSum(Collective& collective, std::int64_t count)
    : collective_(collective), count_(count), parts_(collective.allocate(std::max<std::size_t>(64, bytes(count)))) {}

void ExactSum::clear() { std::memset(parts_.data, 0, bytes(count_)); }

void ExactSum::add(const float* values) {
  auto* parts = static_cast<double*>(parts_.data);
  add_split(parts, parts + count_, values, count_);
}

void ExactSum::all_reduce_async(int tag) {
  if (count_ > 0) collective_.all_reduce_async(parts_, 0, 2 * std::size_t(count_), DType::f64, tag);
}

void ExactSum::round_to(float* out) const {
  const auto* parts = static_cast<const double*>(parts_.data);
  for (std::int64_t i = 0; i < count_; ++i) out[i] = float(parts[i] + parts[count_ + i]);
}

}  // namespace millrace
