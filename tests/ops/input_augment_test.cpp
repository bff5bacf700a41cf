// Random changes of samples: crops at another size, cutouts, brightness and colours.
#include <fmt/core.h>

#include <algorithm>

#include "ops/input_checks.hpp"

namespace millrace {
namespace input_augment_test {

using namespace test;

// Cutouts with odd and even sides, and one larger than the sample, with brightness and contrast, and mostly with crop
// and flip.
TEST(InputOp, CutoutBrightnessAndContrastMatchReference) {
  for (const Shape& shape :
       {Shape{6, 28, 28, 1}, Shape{5, 9, 7, 3}, Shape{4, 597, 2}, Shape{4, 5, 6, 7, 2}, Shape{3, 3, 900, 4}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const bool channels_first : {false, true})
        for (const std::int64_t cutout : {0, 3, 4, 50})
          for (const float jitter : {0.0f, 0.4f}) {
            InputSpec s = input(shape, DType::u8, cutout != 4, channels_first);
            s.dtype = dtype;
            s.cutout = cutout;
            s.brightness = jitter;
            s.contrast = jitter / 2;
            expect_reference(
                s, fmt::format("{} to {} cutout {} jitter {:g}", shape.str(), name_of(dtype), cutout, jitter));
          }
}

// With and without random resized crop, with selected channels that are unevenly spaced, with a transform, and with
// lines longer than a tile.
TEST(InputOp, SaturationAndHueMatchReference) {
  using Numbers = std::vector<std::int64_t>;
  for (const Shape& shape : {Shape{6, 9, 7, 3}, Shape{2, 14, 12, 4}, Shape{2, 2, 800, 3}, Shape{3, 1500, 3}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const bool channels_first : {false, true})
        for (const auto& [saturation, hue] : {std::pair{0.5f, 0.0f}, {0.0f, 0.5f}, {0.4f, 0.1f}})
          for (const float min_area : {0.0f, 0.3f}) {
            if (min_area > 0 && (shape.rank != 4 || shape[2] > 100)) continue;
            InputSpec s = input(shape, DType::u8, hue > 0, channels_first);
            s.dtype = dtype;
            s.saturation = saturation;
            s.hue = hue;
            s.random_resized_crop = min_area;
            if (shape[-1] == 4) {
              s.channels = Numbers{3, 0, 1};
              s.mean.pop_back();
              s.std.pop_back();
            }
            if (hue > 0) {
              s.brightness = 0.2f;
              s.contrast = 0.3f;
              s.cutout = 3;
            }
            if (shape[0] == 6) s.transform = Transform::log1p;
            // Each value is a sum of three others of magnitude up to 7.
            const Tolerance exact{3e-6, 4e-3, 6e-4}, enlarged{2e-4, 4e-3, 1e-3};
            expect_reference(
                s, fmt::format("{} to {} {:g} {:g} {:g}", shape.str(), name_of(dtype), saturation, hue, min_area),
                min_area > 0 ? enlarged : exact);
          }
}

TEST(InputOp, HueRotatesColoursAndKeepsGreysAndLuminance) {
  InputSpec s = input({64, 1, 2, 3}, DType::f32, false);
  s.scale = 1;
  s.mean.clear();
  s.std.clear();
  s.hue = 0.5f;
  OpHarness h(s);
  Values raw, ids;
  for (int i = 0; i < 64; ++i) {
    ids.push_back(i);
    raw.insert(raw.end(), {0.5, 0.5, 0.5, 1, 0, 0});  // grey, red
  }
  h.set_src(0, s.src, s.raw, raw);
  h.set_src(1, {64}, DType::i64, ids);
  h.want_dst(s.src, s.dtype);
  h.forward();
  const auto y = get(h.args.dst);
  double least_red = 1, most_blue = 0;
  for (std::size_t n = 0; n < 64; ++n) {
    for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(y[6 * n + c], 0.5, 1e-6);
    EXPECT_NEAR(0.213 * y[6 * n + 3] + 0.715 * y[6 * n + 4] + 0.072 * y[6 * n + 5], 0.213, 1e-3);
    least_red = std::min(least_red, y[6 * n + 3]);
    most_blue = std::max(most_blue, y[6 * n + 5]);
  }
  EXPECT_LT(least_red, -0.4);  // rotated by half a turn, red is 2 * 0.213 - 1
  EXPECT_GT(most_blue, 0.6);
}

TEST(InputOp, CutoutIsAPatchOfZerosAtAnyPosition) {
  InputSpec s = input({1, 20, 16, 2}, DType::u8, false);
  s.cutout = 6;
  int smallest = 36, largest = 0, in_corner = 0;
  for (int id = 0; id < 400; ++id) {
    OpHarness h(s);
    h.set_src(0, s.src, s.raw, Values(std::size_t(s.src.count()), 250));
    h.set_src(1, {1}, DType::i64, {double(id)});
    h.want_dst(s.src, s.dtype);
    h.forward();
    const auto y = get(h.args.dst);
    const int zeros = int(std::count(y.begin(), y.end(), 0.0));
    smallest = std::min(smallest, zeros / 2);
    largest = std::max(largest, zeros / 2);
    in_corner += y[0] == 0;
  }
  EXPECT_EQ(largest, 36);
  EXPECT_LE(smallest, 15);  // clipped at a corner to at least 3x3
  EXPECT_GE(smallest, 9);
  EXPECT_GT(in_corner, 0);
}

TEST(InputOp, BrightnessScalesAllPixelsOfASampleByOneFactor) {
  InputSpec s = input({64, 4, 4, 1}, DType::f32, false);
  s.scale = 1;
  s.mean = {0.5f};
  s.std = {0.25f};
  s.brightness = 0.5f;
  OpHarness h(s);
  Values raw, ids;
  for (int i = 0; i < 64 * 16; ++i) raw.push_back(i % 16 / 16.0);
  for (int i = 0; i < 64; ++i) ids.push_back(i);
  h.set_src(0, s.src, s.raw, raw);
  h.set_src(1, {64}, DType::i64, ids);
  h.want_dst(s.src, s.dtype);
  h.forward();
  const auto y = get(h.args.dst);
  double low = 9, high = 0;
  for (std::size_t n = 0; n < 64; ++n) {
    const double light = (y[16 * n + 15] * 0.25 + 0.5) / raw[15];
    for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(y[16 * n + i] * 0.25 + 0.5, raw[i] * light, 1e-6);
    low = std::min(low, light);
    high = std::max(high, light);
  }
  EXPECT_NEAR(low, 0.5, 0.1);  // the smallest of 64 draws
  EXPECT_NEAR(high, 1.5, 0.1);
}

TEST(InputOp, RandomResizedCropMatchesReference) {
  for (const Shape& shape :
       {Shape{4, 28, 28, 1}, Shape{5, 9, 7, 3}, Shape{3, 1, 5, 2}, Shape{3, 6, 1, 2}, Shape{2, 3, 400, 4}})
    for (const DType raw : {DType::u8, DType::i16, DType::f16, DType::f32, DType::f64})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const bool channels_first : {false, true})
          for (const float min_area : {0.08f, 0.9f}) {
            if (dtype != DType::f32 && raw != DType::u8) continue;
            InputSpec s = input(shape, raw, true, channels_first);
            if (raw == DType::i16) s.scale = 1.0f / 32768;  // the largest fp16 number is 65504
            s.dtype = dtype;
            s.random_resized_crop = min_area;
            s.cutout = min_area < 0.5f ? 2 : 0;
            s.brightness = min_area < 0.5f ? 0.2f : 0;
            expect_reference(
                s, fmt::format("{} {} to {} min_area {:g}", shape.str(), name_of(raw), name_of(dtype), min_area),
                resized_tolerance);
          }
}

TEST(InputOp, RandomResizedCropOfARampStaysBetweenItsEnds) {
  InputSpec s = input({200, 40, 40, 1}, DType::f32, false);
  s.scale = 1;
  s.mean.clear();
  s.std.clear();
  s.random_resized_crop = 0.25f;
  OpHarness h(s);
  Values raw, ids;
  for (int i = 0; i < 200 * 1600; ++i) raw.push_back(i % 40);
  for (int i = 0; i < 200; ++i) ids.push_back(i);
  h.set_src(0, s.src, s.raw, raw);
  h.set_src(1, {200}, DType::i64, ids);
  h.want_dst(s.src, s.dtype);
  h.forward();
  const auto y = get(h.args.dst);
  double narrowest = 40, widest = 0, first = 40, last = 0;
  for (std::size_t n = 0; n < 200; ++n) {
    const double width = (y[1600 * n + 25] - y[1600 * n + 15]) * 4;  // of the crop, from the slope in the middle
    narrowest = std::min(narrowest, width);
    widest = std::max(widest, width);
    first = std::min(first, y[1600 * n]);
    last = std::max(last, y[1600 * n + 39]);
  }
  EXPECT_NEAR(narrowest, 40 * std::sqrt(0.25 * 0.75), 2);
  EXPECT_NEAR(widest, 40, 0.01);
  EXPECT_NEAR(first, 0, 0.5);
  EXPECT_NEAR(last, 39, 0.5);
}

TEST(InputOp, AugmentationDependsOnTheSampleAndTheEpoch) {
  const InputSpec s = input({1, 12, 12, 3}, DType::u8);
  const auto pixels = [&](double id, std::uint64_t epoch) {
    OpHarness h(s);
    h.state.epoch = epoch;
    h.set_src(0, s.src, s.raw, raw_values(s, true));
    h.set_src(1, {1}, DType::i64, {id});
    h.want_dst(s.src, s.dtype);
    h.forward();
    return get(h.args.dst);
  };
  EXPECT_EQ(pixels(5, 1), pixels(5, 1));
  int changed = 0;
  for (int i = 0; i < 8; ++i) changed += pixels(5, 1) != pixels(5, std::uint64_t(2 + i));
  EXPECT_GE(changed, 6);  // each time one of 50 positions, so two epochs may draw the same
}

}  // namespace input_augment_test
}  // namespace millrace
