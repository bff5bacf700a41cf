// Stored values become the input of a network: types, layouts, channels, parts of samples, normalization.
#include <fmt/core.h>

#include "ops/input_checks.hpp"

namespace millrace {
namespace input_test {

using namespace test;

TEST(InputOp, EveryStoredTypeMatchesReference) {
  for (const DType raw :
       {DType::u8, DType::i8, DType::u16, DType::i16, DType::i32, DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const bool augment : {false, true})
      for (const bool channels_first : {false, true})
        expect_reference(input({5, 9, 7, 3}, raw, augment, channels_first),
                         fmt::format("{} augment {} channels_first {}", name_of(raw), augment, channels_first));
}

// Values as in scientific files: temperatures as int16, counts, and floats.
TEST(InputOp, OffsetTransformAndScalesPerChannelMatchReference) {
  for (const DType raw : {DType::u16, DType::i16, DType::f16, DType::f32, DType::f64})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Transform transform : {Transform::none, Transform::log1p})
        for (const bool augment : {false, true})
          for (const bool own : {false, true}) {
            if (dtype != DType::f32 && (raw != DType::i16 || own)) continue;
            InputSpec s = input({4, 9, 7, 3}, raw, augment);
            s.transform = transform;
            s.scale = raw == DType::u16 || raw == DType::i16 ? 1e-3f : 1;
            s.offset = 40;
            if (augment) {
              s.brightness = 0.3f;
              s.contrast = 0.2f;
              s.cutout = 3;
            }
            if (own) {
              s.channel_scale = {s.scale, s.scale / 2, s.scale / 3};
              s.channel_offset = {33, 273.15f, 13};
            }
            const auto what =
                fmt::format("{} to {} {}{}{}", name_of(raw), name_of(dtype), name_of(transform), own, augment);
            expect_reference(s, what, {6e-6, 4e-3, 2e-3});  // normalised values are as large as 1500
          }
}

// Four fields in a volume, with rows that are whole packs and rows that are not.
TEST(InputOp, FourFieldsOfAVolumeMatchReference) {
  for (const Shape& shape : {Shape{3, 4, 6, 8, 4}, Shape{2, 3, 5, 7, 4}})
    for (const DType raw : {DType::i16, DType::f32, DType::i32})
      for (const DType dtype : {DType::f32, DType::f16})
        for (const Transform transform : {Transform::none, Transform::log1p})
          for (const bool channels_first : {false, true}) {
            InputSpec s = input(shape, raw, true, channels_first);
            s.dtype = dtype;
            s.scale = raw == DType::f32 ? 1 : raw == DType::i16 ? 1.0f / 32768 : 1e-6f;
            s.offset = 2;
            s.transform = transform;
            s.flip_axes = {0, 1, 2};
            s.brightness = 0.3f;
            const auto what =
                fmt::format("{} {} to {} {}", shape.str(), name_of(raw), name_of(dtype), name_of(transform));
            expect_reference(s, what, {6e-6, 4e-3, 2e-3});
          }
}

// Selections of channels that are evenly and unevenly spaced, from one or several parts, in both stored layouts, with
// crop, flip and random resized crop.
TEST(InputOp, SelectedChannelsOfConcatenatedPartsMatchReference) {
  using Numbers = std::vector<std::int64_t>;
  for (const Shape& shape : {Shape{3, 9, 7, 5}, Shape{3, 700, 5}, Shape{2, 4, 5, 6, 5}, Shape{4, 5}})
    for (const Numbers& parts : {Numbers{}, {1, 1, 1, 1, 1}, {2, 3}, {1, 3, 1}})
      for (const Numbers& channels : {Numbers{}, {3}, {1, 2, 3}, {0, 2, 4}, {4, 0, 0, 1}})
        for (const bool channels_first : {false, true})
          for (const float min_area : {0.0f, 0.5f}) {
            if (min_area > 0 && shape.rank != 4) continue;
            InputSpec s = input(shape, DType::i16, true, channels_first);
            s.scale = 1.0f / 32768;
            s.parts = parts;
            s.channels = channels;
            s.random_resized_crop = min_area;
            s.mean.resize(std::size_t(s.used_channels()));
            s.std.resize(s.mean.size());
            expect_reference(
                s, fmt::format("{} parts {} channels {}{:g}", shape.str(), parts.size(), channels.size(), min_area),
                min_area > 0 ? resized_tolerance : input_tolerance);
            s.mode = Mode::infer;
            expect_reference(s, fmt::format("{} not augmented", shape.str()));
          }
}

TEST(InputOp, SubvolumesAndFlipsOfEveryAxisMatchReference) {
  using Numbers = std::vector<std::int64_t>;
  struct Case {
    Shape src;
    Numbers subvolume, axes;
  };
  for (const Case& c : {Case{{6, 5, 6, 7, 2}, {3, 6, 4}, {0, 1, 2}}, Case{{6, 5, 6, 7, 1}, {}, {0, 2}},
                        Case{{6, 5, 6, 7, 1}, {1, 1, 1}, {1}}, Case{{6, 9, 7, 3}, {4, 7}, {0}},
                        Case{{3, 597, 2}, {100}, {}}, Case{{3, 3, 900, 4}, {2, 850}, {1, 0}}})
    for (const bool channels_first : {false, true})
      for (const bool moves : {false, true})
        for (const std::int64_t pad : {0, 2})
          for (const Mode mode : {Mode::train, Mode::infer}) {
            InputSpec s = input(c.src, DType::u8, true, channels_first);
            s.crop_pad = pad;
            s.subvolume = c.subvolume;
            s.random_subvolume = moves;
            s.flip_axes = c.axes;
            s.cutout = pad;
            s.mode = mode;
            expect_reference(s, fmt::format("{} to {} moves {} pad {}", c.src.str(), s.dst().str(), moves, pad));
          }
}

TEST(InputOp, SubvolumeIsInTheMiddleOrAtAnyPosition) {
  InputSpec s = input({1, 12, 1}, DType::i16, false);
  s.scale = 1;
  s.mean.clear();
  s.std.clear();
  s.subvolume = {5};
  const auto first = [&](double id) {
    OpHarness h(s);
    h.set_src(0, s.src, s.raw, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    h.set_src(1, {1}, DType::i64, {id});
    h.want_dst(s.dst(), s.dtype);
    h.forward();
    return get(h.args.dst)[0];
  };
  EXPECT_EQ(first(1), 3);
  s.random_subvolume = true;
  std::vector<int> seen(12, 0);
  for (int id = 0; id < 200; ++id) ++seen[std::size_t(first(id))];
  for (int place = 0; place < 12; ++place) EXPECT_EQ(seen[std::size_t(place)] > 0, place <= 7) << place;
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

TEST(InputOp, PaddingChannelsFollowTheChannelsOfEachPixel) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t zeros : {1, 2, 5})
      for (const auto& [augment, min_area] : {std::pair{false, 0.0f}, {true, 0.0f}, {true, 0.5f}})
        for (const bool channels_first : {false, true}) {
          InputSpec plain =
              input(zeros == 1 ? Shape{3, 9, 7, 3} : Shape{3, 6, 8, 3}, DType::u8, augment, channels_first);
          plain.dtype = dtype;
          plain.random_resized_crop = min_area;
          plain.cutout = augment ? 3 : 0;
          if (augment) {
            plain.saturation = 0.4f;
            plain.brightness = 0.2f;
          }
          InputSpec wide = plain;
          wide.padded_channels = zeros;
          Values results[2];
          for (const InputSpec* s : {&plain, &wide}) {
            OpHarness h(*s);
            h.set_src(0, s->src, s->raw, raw_values(*s, true));
            h.set_src(1, {3}, DType::i64, {1, 2, 3});
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

TEST(InputOp, WithoutMeanAndStdOnlyScales) {
  InputSpec s = input({2, 6, 5, 3}, DType::u8);
  s.mean.clear();
  s.std.clear();
  expect_reference(s, "scaled");
}

TEST(InputOp, InferenceNeitherAugmentsNorReadsIds) {
  InputSpec s = input({4, 9, 7, 3}, DType::u8);
  s.cutout = 3;
  s.brightness = 0.5f;
  s.contrast = 0.5f;
  s.saturation = 0.5f;
  s.hue = 0.5f;
  s.random_resized_crop = 0.3f;
  s.mode = Mode::infer;
  OpHarness h(s);
  const auto raw = h.set_src(0, s.src, s.raw, raw_values(s, true));
  h.want_dst(s.src, s.dtype);
  h.forward();
  expect_close(get(h.args.dst), reference::input(s, raw, {}, h.state), input_tolerance.f32, "inference");
}

TEST(InputOp, RejectsInvalidSpecs) {
  EXPECT_THROW(OpHarness(input({2, 4, 4, 3}, DType::i64)), Error);
  InputSpec s = input({2, 4, 4, 3}, DType::u8);
  s.mean.pop_back();
  EXPECT_THROW(OpHarness{s}, Error);
  s = input({2, 4, 4, 4, 3}, DType::u8);
  s.random_resized_crop = 0.5f;  // a volume
  EXPECT_THROW(OpHarness{s}, Error);
  for (const std::vector<std::int64_t>& part : {std::vector<std::int64_t>{4}, {4, 0}, {4, 5}}) {
    s = input({2, 4, 4, 3}, DType::u8);
    s.subvolume = part;
    EXPECT_THROW(OpHarness{s}, Error);
  }
  s = input({2, 4, 4, 1}, DType::u8);
  s.hue = 0.1f;
  EXPECT_THROW(OpHarness{s}, Error);
  s = input({2, 4, 4, 3}, DType::u8);
  s.flip_axes = {2};
  EXPECT_THROW(OpHarness{s}, Error);
  s = input({2, 4, 4, 3}, DType::u8);
  s.channels = {0, 1, 3};
  EXPECT_THROW(OpHarness{s}, Error);
}

}  // namespace input_test
}  // namespace millrace
