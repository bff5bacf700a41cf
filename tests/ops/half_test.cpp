#include "support/op_harness.hpp"

namespace millrace {
namespace half_test {

using namespace test;

// The CPU may take these for 0. By the bits, because comparisons do so too.
bool is_denormal(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  return bits > 0 && bits < 0x800000u;
}

template <class T>
void expect_round_trip(DType dtype) {
  const DeviceVector<T> all(65536), back(65536);
  const DeviceVector<float> wide(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = std::uint16_t(i);
  all.to_device();
  backend().convert(wide.data(), DType::f32, all.data(), dtype, 65536);
  backend().convert(back.data(), dtype, wide.data(), DType::f32, 65536);
  wide.to_host();
  back.to_host();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float value = float(all[i]);
    if (is_denormal(value)) continue;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(wide[i]) && std::isnan(float(back[i]))) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(value)) << i;
      ASSERT_EQ(back[i].bits, all[i].bits) << i;
    }
  }
}

TEST(HalfConversion, EveryBf16SurvivesTheRoundTrip) { expect_round_trip<bf16>(DType::bf16); }
TEST(HalfConversion, EveryF16SurvivesTheRoundTrip) { expect_round_trip<f16>(DType::f16); }

// Random values, exact ties between neighbours of both 16-bit formats, and values that overflow or underflow.
TEST(HalfConversion, BulkConversionRoundsLikeSingleConversions) {
  std::vector<float> chosen;
  for (std::uint64_t i = 0; i < 20011; ++i) chosen.push_back(std::bit_cast<float>(philox(7, 0, i).v[0]));
  for (std::uint32_t i = 0; i < 30000; ++i)  // ties
    chosen.push_back(std::bit_cast<float>(((philox(8, 0, i).v[0] & 0xffffu) << 16) | ((i & 1u) ? 0x8000u : 0x1000u)));
  for (const float v : {65519.f, 65520.f, 65536.f, 3.4e38f, 6e-8f, 2.9e-8f, 0.f, -0.f}) chosen.push_back(v);
  const DeviceVector<float> values(chosen);
  const auto count = std::int64_t(values.size());
  const DeviceVector<bf16> b(values.size());
  const DeviceVector<f16> h(values.size()), from_b(values.size());
  values.to_device();
  backend().convert(b.data(), DType::bf16, values.data(), DType::f32, count);
  backend().convert(h.data(), DType::f16, values.data(), DType::f32, count);
  backend().convert(from_b.data(), DType::f16, b.data(), DType::bf16, count);
  b.to_host();
  h.to_host();
  from_b.to_host();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) || is_denormal(values[i])) continue;
    ASSERT_EQ(b[i].bits, bf16(values[i]).bits) << values[i];
    ASSERT_EQ(h[i].bits, f16(values[i]).bits) << values[i];
    ASSERT_EQ(from_b[i].bits, f16(float(b[i])).bits) << values[i];
  }
}

TEST(HalfConversion, CopiesWhenTypesAreEqual) {
  const DeviceVector<float> from({1, 2, 3}), to(3);
  from.to_device();
  backend().convert(to.data(), DType::f32, from.data(), DType::f32, 3);
  to.to_host();
  EXPECT_EQ(to.copy(), from.copy());
}

TEST(HalfOps, RejectIntegerTypes) {
  LinearSpec s;
  s.src = {4, 16};
  s.out_features = 8;
  s.dtype = DType::u8;
  EXPECT_THROW(backend().make(s), Error);
}

}  // namespace half_test
}  // namespace millrace
