// Checks that conv and linear share: operations with a weight, a bias and one input.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "support/op_harness.hpp"

namespace millrace::test {

// Rounds the values of a bias, because a GPU adds the bias in the dtype. Otherwise the result of a relu near zero could
// differ between backends.
inline Values rounded(Values values, DType dtype) {
  for (double& v : values)
    v = dtype == DType::bf16 ? double(float(bf16(float(v)))) : dtype == DType::f16 ? double(float(f16(float(v)))) : v;
  return values;
}

inline void add(Values& sum, const Values& more) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

// Forward and backward give the same bits twice. bias: the number of its elements.
template <class Spec>
void expect_same_bits_twice(const Spec& s, std::int64_t bias) {
  std::vector<Values> first, second;
  for (auto* results : {&first, &second}) {
    OpHarness h(s);
    h.set_src(0, s.src, DType::f32, random_values(s.src.count(), 1));
    h.set_weight(0, s.weight(), DType::f32, random_values(s.weight().count(), 2));
    h.set_weight(1, {bias}, DType::f32, random_values(bias, 3));
    h.set_diff_dst(s.dst(), DType::f32, random_values(s.dst().count(), 4));
    h.want_diff_weight(0, s.weight(), GradMode::write);
    h.want_diff_weight(1, {bias}, GradMode::write);
    h.want_dst(s.dst(), DType::f32);
    h.want_diff_src(0, s.src, DType::f32);
    h.repack();
    h.forward();
    h.backward();
    for (const auto& t : {h.args.dst, h.args.diff_src[0], h.args.diff_weight[0], h.args.diff_weight[1]})
      results->push_back(get(t));
  }
  EXPECT_EQ(first, second);
}

}  // namespace millrace::test
