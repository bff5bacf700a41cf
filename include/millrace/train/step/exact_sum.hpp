// Sums whose result does not depend on the order and grouping of the additions, for run.reproducible = strict.
//
// A value is rounded to a multiple of 2^-58 and split into a multiple of 2^-16 and a rest below 2^-16. Sums of each
// part are kept in a double, in which they are exact as long as there are at most 4096 values below 2^25: the sums then
// need at most 53 bits. So any all-reduce of doubles gives the same bits. This is the pre-rounding of Demmel & Nguyen
// 2013 ("Fast Reproducible Floating-Point Summation") with fixed bins. A value that is too large or not finite makes
// the sum infinite or NaN, as an overflow does.
#pragma once
#include <array>
#include <cstdint>

#include "millrace/comm/collective.hpp"

namespace millrace {

constexpr std::int64_t max_exact_terms = 4096;

// The sum of doubles below 2^64, with a third part: multiples of 2^24.
struct ExactDouble {
  std::array<double, 3> parts{};
  void add(double value);
  double value() const { return parts[0] + (parts[1] + parts[2]); }
};

// The sums of vectors of floats, over micro-batches and ranks.
class ExactSum {
 public:
  ExactSum(Collective&, std::int64_t count);  // allocates; collective
  static std::size_t bytes(std::int64_t count) { return 2 * std::size_t(count) * sizeof(double); }
  void clear();
  void add(const float* values);  // `count` values
  void all_reduce_async(int tag);
  void round_to(float* out) const;  // `count` values, each rounded once

 private:
  Collective& collective_;
  std::int64_t count_;
  SharedRegion parts_;  // all high parts, then all low parts
};

}  // namespace millrace
