#include "reference/input.hpp"

#include "support/op_harness.hpp"

namespace millrace {
namespace {

using namespace test;

InputSpec input(Shape src, DType raw, bool augment = true, bool channels_first = false) {
  InputSpec s;
  s.src = src, s.raw = raw, s.channels_first = channels_first, s.seed = 7;
  if (augment) s.crop_pad = 2, s.flip = true;
  if (raw == DType::u8) s.scale = 1.0f / 255;
  if (raw == DType::i32) s.scale = 1e-6f;
  for (std::int64_t c = 0; c < src[-1]; ++c)
    s.mean.push_back(0.4f + 0.05f * float(c % 3)), s.std.push_back(0.2f + 0.03f * float(c % 5));
  return s;
}

Values raw_values(const InputSpec& s, bool fractions) {
  Values v = random_values(s.src.count(), 1);
  for (double& e : v) {
    if (s.raw == DType::u8)
      e = std::floor(128 + 128 * e);
    else if (s.raw == DType::i8)
      e = std::floor(128 * e);
    else if (s.raw == DType::u16)
      e = std::floor(32768 + 32768 * e);
    else if (s.raw == DType::i16)
      e = std::floor(32768 * e);
    else if (s.raw == DType::i32)
      e = std::floor(1e6 * e);
    else if (!fractions)
      e = std::floor(e);
  }
  return v;
}

// float32: the factor and the offset are rounded, and the result; 16 bits: the result's own rounding.
constexpr Tolerance tolerance{5e-7, 4e-3, 5e-4};

void expect_reference(const InputSpec& s, const std::string& what) {
  OpHarness h(s);
  h.state.epoch = 3;
  Values ids;
  for (std::int64_t i = 0; i < s.src[0]; ++i) ids.push_back(double(i * 3000000000 + 11));
  const auto raw = h.set_src(0, s.src, s.raw, raw_values(s, true));
  h.set_src(1, {s.src[0]}, DType::i64, ids);
  h.want_dst(s.src, s.dtype);
  h.forward();
  expect_close(get(h.args.dst), reference::input(s, raw, ids, h.state), tolerance.of(s.dtype), what);
}

TEST(InputOp, EveryStoredTypeMatchesReference) {
  for (const DType raw :
       {DType::u8, DType::i8, DType::u16, DType::i16, DType::i32, DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const bool augment : {false, true})
      for (const bool channels_first : {false, true})
        expect_reference(input({5, 9, 7, 3}, raw, augment, channels_first),
                         cat(name_of(raw), " augment ", augment, " channels_first ", channels_first));
}

TEST(InputOp, EveryShapeMatchesReference) {
  for (const Shape& shape : {Shape{4, 28, 28, 1}, Shape{3, 597, 2}, Shape{3, 43}, Shape{2, 5001}, Shape{2, 5, 6, 7, 2},
                             Shape{2, 3, 900, 4}, Shape{2, 3, 4, 2100}, Shape{1, 1, 1, 1}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const bool channels_first : {false, true}) {
        InputSpec s = input(shape, DType::u8, true, channels_first);
        s.dtype = dtype;
        expect_reference(s, shape.str() + " to " + name_of(dtype));
      }
}

TEST(InputOp, ChannelsOfZerosFollowThePixels) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t zeros : {1, 5})
      for (const bool augment : {false, true})
        for (const bool channels_first : {false, true}) {
          InputSpec plain = input({3, 9, 7, 3}, DType::u8, augment, channels_first);
          plain.dtype = dtype;
          InputSpec wide = plain;
          wide.zero_channels = zeros;
          Values results[2];
          for (const InputSpec* s : {&plain, &wide}) {
            OpHarness h(*s);
            h.set_src(0, s->src, s->raw, raw_values(*s, true)), h.set_src(1, {3}, DType::i64, {1, 2, 3});
            h.want_dst(s->dst(), s->dtype);
            h.forward();
            results[s == &wide] = get(h.args.dst);
          }
          Values expected;
          for (std::size_t pixel = 0; pixel < results[0].size() / 3; ++pixel) {
            for (std::size_t c = 0; c < 3; ++c) expected.push_back(results[0][3 * pixel + c]);
            expected.insert(expected.end(), std::size_t(zeros), 0.0);
          }
          EXPECT_EQ(results[1], expected) << name_of(dtype) << " " << zeros << " " << augment << channels_first;
        }
}

TEST(InputOp, WithoutStatisticsOnlyScales) {
  InputSpec s = input({2, 6, 5, 3}, DType::u8);
  s.mean.clear(), s.std.clear();
  expect_reference(s, "scaled");
}

TEST(InputOp, InferenceNeitherCropsNorFlipsNorReadsIds) {
  InputSpec s = input({4, 9, 7, 3}, DType::u8);
  s.mode = Mode::infer;
  OpHarness h(s);
  const auto raw = h.set_src(0, s.src, s.raw, raw_values(s, true));
  h.want_dst(s.src, s.dtype);
  h.forward();
  expect_close(get(h.args.dst), reference::input(s, raw, {}, h.state), tolerance.f32, "inference");
}

TEST(InputOp, AugmentationFollowsTheSampleAndTheEpoch) {
  const InputSpec s = input({1, 12, 12, 3}, DType::u8);
  const auto pixels = [&](double id, std::uint64_t epoch) {
    OpHarness h(s);
    h.state.epoch = epoch;
    h.set_src(0, s.src, s.raw, raw_values(s, true)), h.set_src(1, {1}, DType::i64, {id});
    h.want_dst(s.src, s.dtype);
    h.forward();
    return get(h.args.dst);
  };
  EXPECT_EQ(pixels(5, 1), pixels(5, 1));
  int changed = 0;
  for (int i = 0; i < 8; ++i) changed += pixels(5, 1) != pixels(5, std::uint64_t(2 + i));
  EXPECT_GE(changed, 6);  // one of 50 positions each time
}

TEST(InputOp, RefusesWhatItCannotRead) {
  EXPECT_THROW(OpHarness(input({2, 4, 4, 3}, DType::i64)), Error);
  InputSpec s = input({2, 4, 4, 3}, DType::u8);
  s.mean.pop_back();
  EXPECT_THROW(OpHarness{s}, Error);
}

}  // namespace
}  // namespace millrace
