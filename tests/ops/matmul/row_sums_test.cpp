// Sums over rows against sums in double, for the registers that this processor and ONEDNN_MAX_CPU_ISA permit.
#include "cpu/tokens/row_sums.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace millrace {
namespace row_sums_test {

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> out(count);
  for (float& v : out) v = values(engine);
  return out;
}

// Of `count` elements that begin one element after that of an aligned vector.
TEST(RowSums, MatchSumsInDouble) {
  const cpu::RowSums& rows = cpu::row_sums();
  constexpr float mean = 0.25f, inverse = 1.5f;
  for (const std::int64_t count : {0, 1, 7, 15, 16, 17, 31, 32, 33, 64, 1031}) {
    SCOPED_TRACE(count);
    const auto a = random_floats(std::size_t(count) + 1, 1), b = random_floats(std::size_t(count) + 1, 2),
               c = random_floats(std::size_t(count) + 1, 3);
    const float *x = a.data() + 1, *y = b.data() + 1, *z = c.data() + 1;
    double sum = 0, squares = 0, dot = 0, g = 0, gx = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      sum += x[i];
      squares += (double(x[i]) - mean) * (double(x[i]) - mean);
      dot += double(x[i]) * y[i];
      g += double(x[i]) * z[i];
      gx += double(x[i]) * z[i] * (double(y[i]) - mean) * inverse;
    }
    const double tolerance = 1e-6 * std::sqrt(double(count));
    EXPECT_NEAR(rows.sum(x, count), sum, tolerance);
    EXPECT_NEAR(rows.squares(x, mean, count), squares, 1e-6 * squares);
    EXPECT_NEAR(rows.dot(x, y, count), dot, tolerance);
    const cpu::NormProducts products = rows.norm_products(x, y, z, mean, inverse, count);
    EXPECT_NEAR(products.g, g, tolerance);
    EXPECT_NEAR(products.gx, gx, tolerance);
  }
}

TEST(RowSums, FindTheLargestAnywhere) {
  const cpu::RowSums& rows = cpu::row_sums();
  constexpr float none = -std::numeric_limits<float>::infinity();
  for (const std::int64_t count : {16, 32, 48, 256}) {
    std::vector<float> x(std::size_t(count) + 1, none);
    EXPECT_EQ(rows.largest(x.data() + 1, count), none);
    for (std::int64_t at = 0; at < count; ++at) {
      auto values = random_floats(std::size_t(count) + 1, 4);
      values[0] = 3;  // not among them
      values[std::size_t(at) + 1] = 2;
      EXPECT_EQ(rows.largest(values.data() + 1, count), 2) << at;
    }
  }
}

}  // namespace row_sums_test
}  // namespace millrace
