// Parts of a data set for training, validation and test.
#include "millrace/data/scan/split_rows.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "data/files.hpp"
#include "data/index/image_shards.hpp"
#include "data/scan/apportion.hpp"
#include "millrace/data/load/block_order.hpp"
#include "millrace/data/load/sampler.hpp"
#include "support/expect_error.hpp"

namespace millrace {
namespace split_rows_test {

using test::index_of;
using test::TemporaryFolder;
using Ids = std::set<std::int64_t>;

Ids ids_of(const RowSelection& selection) {
  Ids out;
  for (std::int64_t i = 0; i < selection.count(); ++i) out.insert(selection.id(i));
  EXPECT_EQ(std::int64_t(out.size()), selection.count());
  return out;
}

// Rows with a label and a group each, in so many files.
struct Rows {
  TemporaryFolder folder;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> groups;

  explicit Rows(int rows) {
    for (int i = 0; i < rows; ++i) {
      labels.push_back(i % 10 == 0 ? 2 : i % 10 < 4 ? 1 : 0);
      groups.push_back(1000 + i * 7 % 41);
    }
  }
  ShardIndex index(hsize_t files) const {
    const std::string name = folder / fmt::format("of{}-", files);
    std::vector<std::string> paths;
    const hsize_t rows = labels.size();
    for (hsize_t f = 0; f < files; ++f) {
      const hsize_t begin = rows * f / files, count = rows * (f + 1) / files - begin;
      const std::vector<float> x(count * 2);
      paths.push_back(fmt::format("{}{}.h5", name, f));
      test::write_file(paths.back(), {{"x", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, {count, 2}, x.data()},
                                      {"y", H5T_NATIVE_INT32, H5T_NATIVE_INT32, {count}, labels.data() + begin},
                                      {"group", H5T_NATIVE_INT64, H5T_NATIVE_INT64, {count}, groups.data() + begin}});
    }
    return index_of({.paths = paths});
  }
};

RowSplit split(const ShardIndex& d, const SplitOptions& o) { return split_rows(*solo_world(), d, o); }

void expect_disjoint_and_complete(const RowSplit& s, std::int64_t rows) {
  const Ids train = ids_of(*s.train), valid = ids_of(*s.valid), test = ids_of(*s.test);
  Ids all = train;
  all.insert(valid.begin(), valid.end());
  all.insert(test.begin(), test.end());
  EXPECT_EQ(std::int64_t(train.size() + valid.size() + test.size()), std::int64_t(all.size()));
  EXPECT_EQ(std::int64_t(all.size()), rows);
}

TEST(ShardsSplit, ASelectionFindsItsSamplesByPosition) {
  for (const int rows : {0, 1, 63, 64, 65, 511, 512, 513, 5000}) {
    std::vector<std::uint16_t> parts;
    for (int i = 0; i < rows; ++i) parts.push_back(std::uint16_t(i > 600 && i < 2200 ? 0 : i * i % 3));
    const RowSelection selection(parts, {false, true, false});
    std::int64_t position = 0;
    for (int i = 0; i < rows; ++i) {
      EXPECT_EQ(selection.count_below(i), position);
      EXPECT_EQ(selection.contains(i), parts[std::size_t(i)] == 1);
      if (parts[std::size_t(i)] == 1) {
        ASSERT_EQ(selection.id(position++), i);
      }
    }
    EXPECT_EQ(selection.count(), position);
    EXPECT_EQ(selection.count_below(rows), position);
  }
}

TEST(ShardsSplit, PartsAreDisjointAndCompleteAndOfTheWantedSizes) {
  const Rows rows(1003);
  const ShardIndex d = rows.index(1);
  for (const SplitBy by : {SplitBy::rows, SplitBy::labels, SplitBy::group})
    for (const std::uint64_t seed : {1, 2}) {
      const RowSplit s = split(d, {.split = {0.8, 0.1, 0.1}, .split_by = by, .split_seed = seed});
      expect_disjoint_and_complete(s, d.rows);
      const double slack = by == SplitBy::group ? 26 : 1;  // a group has 24 or 25 rows
      EXPECT_NEAR(double(s.train->count()), 802.4, slack);
      EXPECT_NEAR(double(s.valid->count()), 100.3, slack);
      EXPECT_NEAR(double(s.test->count()), 100.3, slack);
    }
  const RowSplit part = split(d, {.split = {0.5, 0.25}});
  EXPECT_NEAR(double(part.train->count()), 501.5, 1);
  EXPECT_NEAR(double(part.valid->count()), 250.75, 1);
  EXPECT_EQ(part.test->count(), 0);
  EXPECT_NE(split(d, {.split = {0.5, 0.5}, .split_seed = 1}).crc32c,
            split(d, {.split = {0.5, 0.5}, .split_seed = 2}).crc32c);
}

TEST(ShardsSplit, EachClassIsDividedByTheShares) {
  const Rows rows(1000);
  const ShardIndex d = rows.index(1);
  const RowSplit s = split(d, {.split = {0.8, 0.1, 0.1}, .split_by = SplitBy::labels});
  const double classes[] = {600, 300, 100};
  for (const auto& [selection, share] : {std::pair{s.train, 0.8}, {s.valid, 0.1}, {s.test, 0.1}}) {
    std::map<std::int32_t, double> counts;
    for (const std::int64_t id : ids_of(*selection)) ++counts[rows.labels[std::size_t(id)]];
    for (int c = 0; c < 3; ++c) EXPECT_DOUBLE_EQ(counts[c], share * classes[c]) << c;
  }
  EXPECT_NE(
      s.text.find("800 samples for training, 100 for validation, 100 for the test; of the classes 0: 480, 60, 60; "
                  "1: 240, 30, 30; 2: 80, 10, 10"),
      s.text.npos)
      << s.text;
}

TEST(ShardsSplit, AGroupIsInOnePart) {
  const Rows rows(1000);
  const RowSplit s = split(rows.index(3), {.split = {0.6, 0.2, 0.2}, .split_by = SplitBy::group});
  std::map<std::int64_t, int> part_of;
  int part = 0;
  for (const auto& selection : {s.train, s.valid, s.test}) {
    for (const std::int64_t id : ids_of(*selection)) {
      const auto [place, first] = part_of.emplace(rows.groups[std::size_t(id)], part);
      EXPECT_EQ(place->second, part) << "row " << id;
    }
    ++part;
  }
  EXPECT_EQ(part_of.size(), 41u);
}

TEST(ShardsSplit, EachSampleIsValidatedInOneFoldAndTheTestIsTheSame) {
  const Rows rows(503);
  const ShardIndex d = rows.index(1);
  for (const SplitBy by : {SplitBy::rows, SplitBy::labels, SplitBy::group}) {
    Ids validated;
    std::int64_t sum = 0;
    Ids first_test;
    for (int k = 1; k <= 4; ++k) {
      const RowSplit s = split(d, {.split = {0.8, 0, 0.2}, .split_by = by, .fold = {k, 4}});
      expect_disjoint_and_complete(s, d.rows);
      const Ids valid = ids_of(*s.valid), test = ids_of(*s.test);
      if (k == 1) first_test = test;
      EXPECT_EQ(test, first_test);
      EXPECT_NEAR(double(valid.size()), 100.6, by == SplitBy::group ? 13 : 1.5);
      validated.insert(valid.begin(), valid.end());
      sum += std::int64_t(valid.size());
    }
    EXPECT_EQ(std::int64_t(validated.size()), sum) << "a sample is in two folds";
    EXPECT_EQ(sum + std::int64_t(first_test.size()), d.rows);
  }
}

TEST(ShardsSplit, DoesNotDependOnFilesAndRanks) {
  const Rows rows(700);
  for (const SplitBy by : {SplitBy::rows, SplitBy::labels, SplitBy::group}) {
    const SplitOptions o{.split = {0.7, 0.2, 0.1}, .split_by = by};
    const RowSplit whole = split(rows.index(1), o);
    const ShardIndex many = rows.index(5);
    run_thread_world(3, [&](World& world) {
      const RowSplit s = split_rows(world, many, o);
      EXPECT_EQ(s.crc32c, whole.crc32c);
      EXPECT_EQ(s.valid->bits(), whole.valid->bits());
      EXPECT_EQ(s.train->bits(), whole.train->bits());
    });
  }
}

// The same on every machine and in every later version: checkpoints know their parts by this checksum.
TEST(ShardsSplit, PartsStayAsTheyAre) {
  const Rows rows(700);
  const ShardIndex d = rows.index(1);
  EXPECT_EQ(split(d, {.split = {0.7, 0.2, 0.1}}).crc32c, 2185228246u);
  EXPECT_EQ(split(d, {.split = {0.7, 0.2, 0.1}, .split_by = SplitBy::labels}).crc32c, 3191656483u);
  EXPECT_EQ(split(d, {.split = {0.7, 0.2, 0.1}, .split_by = SplitBy::group}).crc32c, 2987954507u);
  EXPECT_EQ(split(d, {.fold = {2, 3}}).crc32c, 1667993087u);
}

TEST(ShardsSplit, SmallClassesAndGroupsAreInEachPart) {
  std::vector<std::int64_t> owed(4);
  const PartWeights weights{{800000, 100000, 100000, 0}, 1000000, 3};
  std::vector<std::int64_t> sums(4);
  for (int c = 0; c < 30; ++c) {
    const auto counts = apportion(4, weights, true, owed);
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_GE(counts[k], 1);
      sums[k] += counts[k];
    }
    EXPECT_EQ(counts[3], 0);
  }
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 120);
  // Without a minimum the sums follow the shares, although none of the classes has a whole number for a part.
  owed.assign(4, 0);
  sums.assign(4, 0);
  for (int c = 0; c < 30; ++c) {
    const auto counts = apportion(4, weights, false, owed);
    for (std::size_t k = 0; k < 4; ++k) sums[k] += counts[k];
  }
  EXPECT_EQ(sums, (std::vector<std::int64_t>{96, 12, 12, 0}));
  EXPECT_EQ(apportion_groups({100, 100, 100}, weights), (std::vector<std::uint16_t>{0, 1, 2}));
}

TEST(ShardsSplit, RefusesWhatCannotBeDivided) {
  Rows rows(100);
  const auto refusal = [&](const SplitOptions& o, Exit code = Exit::config) {
    return test::message_of([&] { split(rows.index(1), o); }, code);
  };
  rows.labels[50] = 3;
  EXPECT_EQ(refusal({.split = {0.8, 0.1, 0.1}, .split_by = SplitBy::labels}),
            "data.split: class 3 has 1 samples, too few for 3 parts. add some, or set data.split_by = rows");
  EXPECT_EQ(refusal({.split = {0.7, 0.1, 0.2}, .fold = {1, 5}}),
            "data.fold: a fold is the validation part, so its share in data.split must be 0, not 0.1. set data.split = "
            "0.8,0,0.2");
  EXPECT_EQ(refusal({.fold = {1, 200}}), "data.split: there are 100 samples, too few for 200 parts. use fewer parts");
  EXPECT_NE(refusal({.split = {0.5, 0.5}, .split_by = SplitBy::group, .group = "patient"}, Exit::data)
                .find("of1-0.h5 has no data set 'patient'. name the one with the group of each row"),
            std::string::npos);
  std::ranges::fill(rows.groups, 7);
  EXPECT_EQ(refusal({.split = {0.5, 0.5}, .split_by = SplitBy::group}),
            "data.group: 'group' has 1 different values, too few for 2 parts. lower the number of parts");
  const TemporaryFolder folder;
  const std::vector<float> x(20);
  const std::vector<std::int32_t> y(10);
  test::write_file(folder / "short.h5", {{"x", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, {10, 2}, x.data()},
                                         {"y", H5T_NATIVE_INT32, H5T_NATIVE_INT32, {10}, y.data()},
                                         {"group", H5T_NATIVE_INT32, H5T_NATIVE_INT32, {9}, y.data()},
                                         {"weight", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, {10}, x.data()}});
  const ShardIndex d = index_of({.paths = {folder / "short.h5"}});
  const auto of_group = [&](const char* name) {
    return test::message_of([&] { split(d, {.split = {0.5, 0.5}, .split_by = SplitBy::group, .group = name}); });
  };
  EXPECT_NE(of_group("group").find("short.h5 has 9 values, but there are 10 rows. store one for each row"),
            std::string::npos);
  EXPECT_NE(of_group("weight").find("does not hold integers that can be read"), std::string::npos);
}

// In random order, as stored and in blocks: an epoch has each selected sample once, and no other.
TEST(ShardsSplit, AnEpochHasTheSelectedSamples) {
  const Rows rows(300);
  ShardIndex d = rows.index(3);
  d.selection = split(d, {.split = {0.6, 0.4}}).train;
  const BlockShuffle blocks = block_shuffle(d, 16, 64, 1 << 20);
  std::vector<Sampler> samplers;
  samplers.emplace_back(d.selected_rows(), 32, 8, 1, true);
  samplers.emplace_back(d.selected_rows(), 32, 8, 1, false);
  samplers.emplace_back(32, 8, std::make_shared<const BlockOrder>(blocks.layout, 1));
  for (Sampler& sampler : samplers) {
    sampler.select(d.selection);
    std::vector<std::int64_t> ids(std::size_t(d.selected_rows()));
    sampler.ids({0, 0, 0, d.selected_rows()}, ids.data());
    EXPECT_EQ(Ids(ids.begin(), ids.end()), ids_of(*d.selection));
  }
  // Samples of a block are neighbours in the file: of 16 rows.
  std::vector<std::int64_t> ids(std::size_t(d.selected_rows()));
  const BlockShuffle single = block_shuffle(d, 16, 1, 1 << 20);
  Sampler sampler(32, 8, std::make_shared<const BlockOrder>(single.layout, 1));
  sampler.select(d.selection);
  sampler.ids({0, 0, 0, d.selected_rows()}, ids.data());
  std::set<std::pair<std::int64_t, std::int64_t>> seen;  // file and block
  std::pair<std::int64_t, std::int64_t> last{-1, -1};
  for (const std::int64_t id : ids) {
    const std::pair block{id / 100, id % 100 / 16};
    if (block != last) {
      EXPECT_TRUE(seen.insert(block).second) << "a block is visited twice";
    }
    last = block;
  }
}

}  // namespace split_rows_test
}  // namespace millrace
