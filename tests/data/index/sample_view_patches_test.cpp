// Patches of a scene are compared with a plain implementation of their definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "data/index/sample_views.hpp"

namespace millrace {
namespace sample_view_patches_test {

using test::expect_the_same_everywhere;
using test::index_of;
using test::message_of;
using test::patches_of;
using test::read_all;
using test::Scene;
using test::TemporaryFolder;

TEST(SampleView, PatchesMatchTheDefinitionForEveryReaderAndStorage) {
  const TemporaryFolder folder;
  for (const bool first : {false, true})
    for (const bool big : {false, true})
      for (const bool chunked : {false, true}) {
        Scene scene;
        scene.first = first;
        scene.big_endian = big;
        if (chunked) scene.chunk = {3, 4, 2};
        scene.write(folder / "scene.h5");
        for (const std::int64_t side : {1, 3, 5, 13}) {
          const ShardIndex index = index_of(folder / "scene.h5", patches_of(side));
          ASSERT_EQ(index.x.channels_first, first);
          EXPECT_EQ(index.x.layout_decided_by, "by the label map");
          EXPECT_EQ(index.sample, (Shape{side, side, 5}));
          EXPECT_EQ(index.classes.count, 3);
          const auto expected = scene.patches(side);
          for (const Reader reader : {Reader::automatic, Reader::direct, Reader::mmap}) {
            if (chunked && reader == Reader::mmap) continue;
            const auto source = make_source(*solo_world(), index, reader);
            EXPECT_EQ(read_all(index, *source), expected) << source->describe() << ", patches of " << side;
          }
        }
      }
}

TEST(SampleView, PatchesDoNotDependOnRanksAndWorkers) {
  const TemporaryFolder folder;
  Scene scene;
  scene.write(folder / "a.h5");
  scene.chunk = {3, 4, 2};
  scene.write(folder / "b.h5");
  expect_the_same_everywhere(index_of(folder / "*.h5", patches_of(5)));
  std::vector<ShardIndex> all(3);
  run_thread_world(3, [&](World& w) {
    all[std::size_t(w.rank())] = index_shards(w, {.paths = {folder / "a.h5"}, .view = patches_of(5)});
  });
  for (const ShardIndex& d : all) {
    ASSERT_EQ(d.rows, all[0].rows);
    EXPECT_EQ(d.view.patch, 5);
    EXPECT_EQ(
        std::memcmp(d.shards[0].pixels->data(), all[0].shards[0].pixels->data(), std::size_t(d.rows) * sizeof(Pixel)),
        0);
  }
}

TEST(SampleView, HeldOutAndTrainingPatchesShareNoPixel) {
  const TemporaryFolder folder;
  Scene scene;
  scene.height = 60;
  scene.width = 50;
  scene.channels = 1;
  scene.map.assign(3000, 0);
  for (std::size_t i = 0; i < scene.map.size(); ++i) scene.map[i] = std::int16_t(i % 3 == 0 ? 0 : i % 2 + 1);
  scene.write(folder / "scene.h5");
  const std::int64_t labelled = index_of(folder / "scene.h5", patches_of(3)).rows;
  const ShardIndex train = index_of(folder / "scene.h5", patches_of(3, 0.25)),
                   valid = index_of(folder / "scene.h5", patches_of(3, 0.25), true);
  EXPECT_GE(valid.rows, labelled / 4);
  EXPECT_LE(valid.rows, labelled / 4 + 12 * 12);  // at most one block more
  EXPECT_GT(train.rows, labelled / 3);            // the rest without the margins
  EXPECT_LT(train.rows + valid.rows, labelled);
  for (const Pixel& a : *train.shards[0].pixels)
    for (const Pixel& b : *valid.shards[0].pixels)
      ASSERT_GE(std::max(std::abs(int(a.row) - int(b.row)), std::abs(int(a.column) - int(b.column))), 3)
          << "patches around " << a.row << ", " << a.column << " and " << b.row << ", " << b.column << " overlap";
}

// A file that is truncated while in use is an error, and its samples are skipped with on_error = skip.
TEST(SampleView, ATruncatedFileIsReportedOrSkipped) {
  const TemporaryFolder folder;
  Scene scene;
  scene.write(folder / "scene.h5");
  const ShardIndex index = index_of(folder / "scene.h5", patches_of(3));
  const std::uint64_t whole = index.shards[0].file_bytes;
  std::filesystem::resize_file(folder / "scene.h5", index.shards[0].x_offset + 2 * 5 * 7 * 9);  // nine rows of eleven
  const auto expected = scene.patches(3);
  for (const Reader reader : {Reader::direct, Reader::mmap}) {
    const auto stop = make_source(*solo_world(), index, reader);
    const std::string message = message_of([&] { read_all(index, *stop); });
    EXPECT_NE(message.find("scene.h5 ends before sample"), std::string::npos) << message;
    const auto skip = make_source(*solo_world(), index, reader, {.on_error = OnError::skip});
    const auto all = read_all(index, *skip);
    std::size_t skipped = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool here = (*index.shards[0].pixels)[i].row <= 7;
      std::int32_t label = 0;
      std::memcpy(&label, all[i].data() + index.sample_bytes(), 4);
      EXPECT_EQ(all[i] == expected[i], here);
      EXPECT_EQ(label == -1, !here);
      skipped += !here;
    }
    EXPECT_EQ(skip->faults().skipped_samples, skipped);
    EXPECT_GT(skipped, 0u);
  }
  std::filesystem::resize_file(folder / "scene.h5", whole);
}

}  // namespace sample_view_patches_test
}  // namespace millrace
