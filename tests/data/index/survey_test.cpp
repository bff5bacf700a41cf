#include "millrace/data/scan/survey.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "data/files.hpp"
#include "data/index/image_shards.hpp"
#include "millrace/base/clock.hpp"

namespace millrace {
namespace survey_test {

using test::index_of;
using test::TemporaryFolder;
using Lines = std::vector<std::string>;

// A file of samples of two numbers with these labels or targets, `width` of them a row.
template <class T>
ShardIndex stored(const TemporaryFolder& folder, std::vector<T> y, hid_t type, hsize_t width = 1,
                  std::vector<float> x = {}) {
  const hsize_t rows = y.size() / width;
  for (hsize_t i = x.size(); i < 2 * rows; ++i) x.push_back(float(i % 7));
  const std::vector<hsize_t> shape = width == 1 ? std::vector<hsize_t>{rows} : std::vector<hsize_t>{rows, width};
  test::write_file(folder / "a.h5", {{"x", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, {rows, 2}, x.data()},
                                     {"y", type, type, shape, y.data()}});
  return index_of({.paths = {folder / "a.h5"}});
}

std::string concern_of_labels(std::vector<std::int32_t> labels) {
  const TemporaryFolder folder;
  const ShardIndex d = stored(folder, labels, H5T_NATIVE_INT32);
  const Lines found = concerns(d, survey_targets(d));
  return found.empty() ? "" : found.front();
}

std::string concern_of_targets(std::vector<float> targets, hsize_t width = 1) {
  const TemporaryFolder folder;
  const ShardIndex d = stored(folder, targets, H5T_NATIVE_FLOAT, width);
  const Lines found = concerns(d, survey_targets(d));
  return found.empty() ? "" : found.front();
}

std::vector<std::int32_t> repeated(std::vector<std::int32_t> labels, int times) {
  std::vector<std::int32_t> out;
  for (int t = 0; t < times; ++t) out.insert(out.end(), labels.begin(), labels.end());
  return out;
}

TEST(ShardsSurvey, RowsOfEachClassAreCounted) {
  const TemporaryFolder folder;
  const ShardIndex d = stored(folder, std::vector<std::int32_t>{0, 2, 1, 2, -1}, H5T_NATIVE_INT32);
  EXPECT_EQ(describe(d, survey_targets(d)), "rows per class: -1: 1, 0: 1, 1: 1, 2: 2");
}

TEST(ShardsSurvey, SoundLabelsAndTargetsGiveNoConcern) {
  EXPECT_EQ(concern_of_labels(repeated({0, 1, 2}, 20)), "");
  EXPECT_EQ(concern_of_targets({0.5f, -1, 2.25f, 3, 1, 0}), "");
}

TEST(ShardsSurvey, EachLikelyMistakeInLabelsIsNamed) {
  EXPECT_EQ(
      concern_of_labels(repeated({1, 2, 3}, 20)),
      "'y': the labels begin at 1. classes are numbered from 0: subtract 1, or outputs of the network have nothing "
      "to learn");
  EXPECT_EQ(concern_of_labels(repeated({4}, 9)),
            "'y': all samples have the label 4, so there is nothing to tell apart");
  EXPECT_EQ(
      concern_of_labels(repeated({0, 1, -3}, 20)),
      "'y': 20 of 60 labels are negative, so these samples do not count in the loss. number the classes from 0 if "
      "they should");
  EXPECT_EQ(concern_of_labels(repeated({0, 1, 3}, 20)), "'y': 1 of 4 classes have no sample, the first is 2");
  EXPECT_EQ(concern_of_labels(repeated({0, 1, 1000000}, 20)),
            "'y': 3 different labels reach up to 1000000, and the network gets an output for each number. number the "
            "classes from 0 without gaps");
  EXPECT_EQ(concern_of_labels(repeated({-1, -2}, 4)),
            "'y': all labels are negative, so no sample counts. number the classes from 0");
  std::vector<std::int32_t> numbers(30);
  std::iota(numbers.begin(), numbers.end(), 0);
  EXPECT_EQ(
      concern_of_labels(numbers),
      "'y': there are 30 different labels in 30 samples, fewer than two samples a class. are they numbers of rows, "
      "or targets? store class numbers, or floating-point targets for a regression");
  EXPECT_EQ(concern_of_labels(repeated(numbers, 2)), "");
  auto rare = repeated({0, 1}, 80);
  rare.insert(rare.end(), {2, 2});
  EXPECT_EQ(concern_of_labels(rare), "'y': class 2 has only 2 of 162 samples. add some, or leave it out");
}

TEST(ShardsSurvey, LabelsBeyondTheStoredNumberOfClassesAreNamed) {
  const TemporaryFolder folder;
  ShardIndex d = stored(folder, repeated({0, 1, 5}, 4), H5T_NATIVE_INT32);
  d.classes.count = 3;
  EXPECT_EQ(
      concerns(d, survey_targets(d)),
      Lines{"'y': 4 rows have the label 5, but the files' attribute classes says that there are 3, numbered from 0. "
            "correct the labels or the attribute"});
}

TEST(ShardsSurvey, EachLikelyMistakeInTargetsIsNamed) {
  EXPECT_NE(concern_of_targets({0, 1, 2, 0, 1, 2}).find("whole numbers from 0 to 2, stored as floating point"),
            std::string::npos);
  EXPECT_NE(concern_of_targets({0, 1, 1, 0}).find("the targets are 0 and 1, stored as floating point"),
            std::string::npos);
  EXPECT_EQ(concern_of_targets({0, 0.25f, 1}), "");
  EXPECT_NE(concern_of_targets({0, 1, 0, 1, 0, 0}, 3).find("one-hot labels"), std::string::npos);
  EXPECT_NE(concern_of_targets({3e5f, 2.5e5f, 1e5f})
                .find("reach from 100000 to 300000, and are not normalized. set data.normalize_targets = on"),
            std::string::npos)
      << concern_of_targets({3e5f, 2.5e5f, 1e5f});
  EXPECT_EQ(concern_of_targets({0.5f, 0.5f}), "'y': all targets are 0.5, so there is nothing to learn");
  const std::string bad = concern_of_targets({0.5f, NAN, 0.25f});
  EXPECT_NE(bad.find("1 targets are not finite, the first in row 1 of "), std::string::npos) << bad;
}

TEST(ShardsSurvey, SamplesThatAreNotFiniteOrAllEqualAreNamed) {
  const TemporaryFolder folder;
  const std::vector<float> y{0.5f, 0.25f, 1};
  ShardIndex d = stored(folder, y, H5T_NATIVE_FLOAT, 1, {0, -2, NAN, 3, 4, INFINITY});
  SampleSurvey survey = survey_samples(d);
  EXPECT_EQ(describe(d, survey), "values of 'x' as stored: -2 to 4, 2 of 3 rows with NaN or infinity");
  EXPECT_EQ(concerns(d, survey), Lines{"'x': 2 of 3 rows have values that are not finite, the first is row 1 of " +
                                       (folder / "a.h5") + ". correct them, or leave these rows out"});
  survey = survey_samples(d, steady_seconds() + 60);
  EXPECT_EQ(describe(d, survey), "values of 'x' as stored: -2 to 4, 2 of 3 rows with NaN or infinity");
  EXPECT_EQ(survey.first_not_finite, "row 1 of " + (folder / "a.h5")) << "in any order of reading";
  EXPECT_EQ(survey_samples(d, steady_seconds()).rows, 1) << "the time is over after a row";
  d = stored(folder, y, H5T_NATIVE_FLOAT, 1, std::vector<float>(6, 3));
  EXPECT_EQ(concerns(d, survey_samples(d)), Lines{"'x': all values are 3, so there is nothing to learn from"});
}

TEST(ShardsSurvey, StatisticsNameTheRowThatIsNotFinite) {
  const TemporaryFolder folder;
  ShardIndex d = stored(folder, std::vector<float>{0.5f, 0.25f, 1}, H5T_NATIVE_FLOAT, 1, {0, -2, 3, NAN, 4, 5});
  const auto world = solo_world();
  test::expect_error(Exit::data, "row 1 of " + (folder / "a.h5") + ": values of x, channel 1, are not finite",
                     [&] { measure_statistics(*world, d); });
}

TEST(ShardsSurvey, LongNarrowImagesMayBeSignals) {
  const TemporaryFolder folder;
  const auto concern = [&](hsize_t rows, hsize_t columns) {
    test::write_images(folder / "a.h5", {2, rows, columns}, {2});
    const Lines found = layout_concerns(index_of({.paths = {folder / "a.h5"}}));
    return found.empty() ? "" : found.front();
  };
  EXPECT_EQ(
      concern(24, 2),
      "'x': samples of 24x2 are taken for images of one channel. if they are signals of 2 channels, set data.layout "
      "(--layout) = channels_last");
  EXPECT_TRUE(concern(2, 24).ends_with("(--layout) = channels_first"));
  EXPECT_EQ(concern(8, 6), "");
}

TEST(ShardsSurvey, LargeDataSetsAreReadInParts) {
  const TemporaryFolder folder;
  const std::int64_t rows = (1 << 22) + 64000;
  const std::vector<std::uint8_t> x(std::size_t(rows), 1), y(std::size_t(rows), 1);
  test::write_file(folder / "a.h5", {{"x", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {hsize_t(rows), 1}, x.data()},
                                     {"y", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {hsize_t(rows)}, y.data()}});
  const ShardIndex d = index_of({.paths = {folder / "a.h5"}});
  const TargetSurvey survey = survey_targets(d);
  EXPECT_LE(survey.rows, 1 << 22);
  EXPECT_GT(survey.rows, 1 << 21);
  EXPECT_EQ(concerns(d, survey), Lines{}) << "other labels may lie between the rows that were read";
  const TargetSurvey shorter = survey_targets(d, steady_seconds());
  EXPECT_GT(shorter.rows, 0);
  EXPECT_LT(shorter.rows, survey.rows) << "the time is over after a block";
}

// 12 label maps of 2^20 labels are more than 2^22: four blocks of one map are read.
TEST(ShardsSurvey, FewerWideRowsAreRead) {
  const TemporaryFolder folder;
  const hsize_t rows = 12, side = 1 << 10;
  const std::vector<std::uint8_t> x(rows * side * side, 1), y(rows * side * side, 1);
  test::write_file(folder / "a.h5", {{"x", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {rows, side, side, 1}, x.data()},
                                     {"y", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {rows, side, side}, y.data()}});
  const ShardIndex d = index_of({.paths = {folder / "a.h5"}});
  EXPECT_EQ(survey_targets(d).rows, 4);
  EXPECT_EQ(survey_targets(d, steady_seconds()).rows, 1);
}

TEST(ShardsSurvey, TheFirstTargetThatIsNotFiniteIsNamedInAnyOrderOfReading) {
  const TemporaryFolder folder;
  constexpr hsize_t rows = 24, width = 1 << 16;  // six blocks
  std::vector<float> y(rows * width, 0.5f);
  for (const hsize_t row : {5u, 13u, 22u}) y[row * width + 7] = NAN;
  const ShardIndex d = stored(folder, y, H5T_NATIVE_FLOAT, width);
  for (const double deadline : {no_deadline, steady_seconds() + 600}) {
    const TargetSurvey survey = survey_targets(d, deadline);
    EXPECT_EQ(survey.targets.not_finite, 3);
    EXPECT_EQ(survey.first_not_finite, "row 5 of " + (folder / "a.h5"));
  }
}

}  // namespace survey_test
}  // namespace millrace
