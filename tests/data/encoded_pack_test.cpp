// Packing of image files as they are, and of packed image files as pixels.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "data/encoded_set.hpp"
#include "millrace/data/index/row_checksums.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/io/hdf5.hpp"

#if defined(MILLRACE_WITH_JPEG) && defined(MILLRACE_WITH_PNG)
namespace millrace {
namespace encoded_pack_test {

using test::EncodedSet;
using test::message_of;

void write_photos(const EncodedSet& set) {
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    const std::string name = fmt::format("photos/{}/{}{}", char('a' + set.labels[i]), i, i % 4 == 3 ? ".png" : ".jpg");
    std::filesystem::create_directories(std::filesystem::path(set.folder / name).parent_path());
    std::ofstream(set.folder / name, std::ios::binary) << set.files[i];
  }
}

// Images that are packed as files and then as pixels give the same shards as images that are packed as pixels directly.
TEST(Encoded, EncodedShardsCanBePackedAsPixels) {
  const EncodedSet set;
  const auto world = solo_world();
  write_photos(set);
  PackOptions options{.out = set.folder.path / "kept"};
  options.shuffle = false;
  options.valid_fraction = 0;
  options.shard_bytes = 30000;
  pack_encoded(*world, set.folder / "photos", options);
  ImportOptions folder, shards;
  folder.x = {set.folder / "photos"};
  shards.x = {set.folder / "kept/train-*.h5"};
  for (ImportOptions* o : {&folder, &shards}) {
    o->resize = 24;
    o->crop = 20;
    o->grey = true;
  }
  const auto expected = make_importer(folder), found = make_importer(shards);
  ASSERT_EQ(found->rows(), expected->rows());
  EXPECT_EQ(found->sample(), (Shape{20, 20, 1}));
  EXPECT_EQ(found->class_names(), expected->class_names());
  EXPECT_GT(std::distance(std::filesystem::directory_iterator(set.folder.path / "kept"), {}), 1);
  const auto rows_of = [](const Importer& in) {
    std::vector<std::uint8_t> x(std::size_t(in.rows() * in.sample().count()));
    std::vector<std::int32_t> y(std::size_t(in.rows()));
    in.read(0, in.rows(), x.data(), y.data());
    return std::pair(x, y);
  };
  EXPECT_EQ(rows_of(*found), rows_of(*expected));
  for (const auto& entry : std::filesystem::directory_iterator(set.folder.path / "kept")) {
    const VerifiedRows verified = verify_rows(entry.path().string());
    EXPECT_GT(verified.rows, 0);
    EXPECT_EQ(verified.damaged, 0);
  }
  shards.layout = Layout::channels_first;
  EXPECT_NE(message_of([&] { make_importer(shards); }, Exit::config).find("remove --layout"), std::string::npos);
}

TEST(Encoded, PackKeepsEveryImageOnceWithItsBytesAndLabel) {
  const EncodedSet set;
  const auto world = solo_world();
  write_photos(set);
  PackOptions options{.out = set.folder.path / "packed"};
  options.shard_bytes = 30000;
  options.valid_fraction = 0.2;
  const PackReport report = pack_encoded(*world, set.folder / "photos", options);
  EXPECT_EQ(report.rows, 18);
  EXPECT_EQ(report.valid_rows, 5);
  EXPECT_GT(report.files.size(), 3u);
  std::vector<int> found(set.files.size(), 0);
  for (const std::string& path : report.files) {
    const io::File file = io::File::open(path);
    EXPECT_EQ(file.get_string("/", "class_names"), "a\nb\nc");
    const std::int64_t rows = file.info("y").shape[0];
    std::vector<std::int64_t> offsets(std::size_t(rows) + 1);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(rows));
    std::string x(std::size_t(file.info("x").shape[0]), '\0');
    file.read_rows("x_offsets", 0, rows + 1, DType::i64, offsets.data());
    file.read_rows("y", 0, rows, DType::i32, labels.data());
    file.read_rows("x", 0, std::int64_t(x.size()), DType::u8, x.data());
    ASSERT_EQ(offsets.back(), std::int64_t(x.size()));
    for (std::size_t r = 0; r < labels.size(); ++r) {
      const std::string bytes = x.substr(std::size_t(offsets[r]), std::size_t(offsets[r + 1] - offsets[r]));
      const auto at = std::find(set.files.begin(), set.files.end(), bytes) - set.files.begin();
      ASSERT_LT(at, 23);
      ++found[std::size_t(at)];
      EXPECT_EQ(labels[r], set.labels[std::size_t(at)]);
    }
  }
  EXPECT_EQ(found, std::vector<int>(23, 1));
  EXPECT_EQ(set.index({set.folder / "packed/train-*.h5"}).rows, 18);
  std::ofstream(set.folder / "photos/a/0.jpg") << "?";
  options.overwrite = true;
  const std::string message = message_of([&] { pack_encoded(*world, set.folder / "photos", options); });
  EXPECT_NE(message.find("photos/a/0.jpg is neither PNG nor JPEG"), std::string::npos) << message;
}

}  // namespace encoded_pack_test
}  // namespace millrace
#endif
