// Maps of labels move as the images. The reference moves an image whose values are the labels, or their coordinates.
#include <fmt/core.h>

#include <cmath>

#include "ops/input_checks.hpp"

namespace millrace {
namespace move_labels_test {

using namespace test;

Shape maps_of(const Shape& images) {
  Shape out = images;
  --out.rank;
  return out;
}

Values some_ids(std::int64_t rows) {
  Values ids;
  for (std::int64_t i = 0; i < rows; ++i) ids.push_back(double(i * 3000000000 + 11));
  return ids;
}

// The moved labels by the operation.
Values moved(const InputSpec& images, const Values& labels) {
  const MoveLabelsSpec s{maps_of(images.src), images};
  OpHarness h(s);
  h.state.epoch = 3;
  h.set_src(0, s.src, DType::i32, labels);
  h.set_src(1, {s.src[0]}, DType::i64, some_ids(s.src[0]));
  h.want_dst(s.dst(), DType::i32);
  h.forward();
  return get(h.args.dst);
}

// The images that the reference makes of these values, without normalisation. The padding is 0.
Values moved_image(InputSpec s, const Values& values) {
  s.raw = DType::f64;
  s.scale = 1;
  s.mean.clear();
  s.std.clear();
  s.cutout = 0;
  s.brightness = s.contrast = s.saturation = s.hue = 0;
  StepState state;
  state.epoch = 3;
  return reference::InputPass(s, values, some_ids(s.src[0]), state).run();
}

Values labels_of(const Shape& maps) {  // 1 to 9, and some that do not count
  Values out;
  for (std::int64_t i = 0; i < maps.count(); ++i) out.push_back(i % 11 == 10 ? -1 : double(1 + i * i % 9));
  return out;
}

// Signals, images and volumes, with extents that are odd or longer than a block. Colours and cutout leave labels alone.
TEST(InputLabels, CropsFlipsAndSubvolumesMoveLabelsAsTheReferenceMovesImages) {
  for (const Shape& shape : {Shape{5, 9, 7, 3}, Shape{4, 597, 2}, Shape{3, 5, 6, 7, 2}, Shape{2, 3, 900, 4}})
    for (const bool channels_first : {false, true})
      for (const bool cut : {false, true})
        for (const Mode mode : {Mode::train, Mode::infer}) {
          InputSpec s = input(shape, DType::u8, true, channels_first);
          s.mode = mode;
          s.cutout = 3;
          s.brightness = 0.3f;
          for (int axis = 0; axis < shape.spatial_rank(); ++axis) s.flip_axes.push_back(axis);
          if (cut) {
            for (int axis = 1; axis + 1 < shape.rank; ++axis) s.subvolume.push_back(shape[axis] * 2 / 3);
            s.random_subvolume = true;
          }
          const Values labels = labels_of(maps_of(shape));
          InputSpec alone = s;
          alone.src[-1] = 1;
          Values image = labels;
          for (double& value : image) value += 2;  // so that the padding, 0, is not among them
          Values expected = moved_image(alone, image);
          for (double& value : expected) value = value == 0 ? -1 : value - 2;
          EXPECT_EQ(moved(s, labels), expected)
              << shape.str() << " channels first " << channels_first << " subvolume " << cut << " mode " << int(mode);
        }
}

TEST(InputLabels, RandomResizedCropTakesTheNearestLabel) {
  for (const Shape& shape : {Shape{6, 28, 28, 1}, Shape{5, 9, 7, 1}, Shape{3, 1, 5, 1}, Shape{3, 6, 1, 1}}) {
    InputSpec s = input(shape, DType::u8);
    s.random_resized_crop = 0.2f;
    const Shape maps = maps_of(shape);
    Values rows, columns, labels = labels_of(maps);
    for (std::int64_t i = 0; i < maps.count(); ++i) {
      rows.push_back(double(i / shape[2] % shape[1]));
      columns.push_back(double(i % shape[2]));
    }
    const Values row = moved_image(s, rows), column = moved_image(s, columns), found = moved(s, labels);
    ASSERT_EQ(found.size(), row.size());
    int compared = 0, changed = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto halfway = [](double place) { return std::abs(place - std::floor(place) - 0.5) < 1e-4; };
      if (halfway(row[i]) || halfway(column[i])) continue;  // both neighbours are as near
      const std::int64_t place = (std::int64_t(i) / (shape[1] * shape[2]) * shape[1] + std::lround(row[i])) * shape[2] +
                                 std::lround(column[i]);
      ASSERT_EQ(found[i], labels[std::size_t(place)]) << shape.str() << " position " << i;
      ++compared;
      changed += place != std::int64_t(i);
    }
    EXPECT_GT(compared, int(found.size()) / 2) << shape.str();
    EXPECT_GT(changed, int(found.size()) / 3) << shape.str();
  }
}

}  // namespace move_labels_test
}  // namespace millrace
