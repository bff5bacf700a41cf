// Samples that are JPEG or PNG files, from the HDF5 file to the loader's slot.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "data/encoded_set.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/open/open_source.hpp"
#include "support/host/device.hpp"

#if defined(MILLRACE_WITH_JPEG) && defined(MILLRACE_WITH_PNG)
namespace millrace {
namespace encoded_test {

using test::EncodedSet;
using test::message_of;

TEST(Encoded, EveryStorageAndAnyWorkersGiveTheSameSamples) {
  const EncodedSet set;
  const auto world = solo_world();
  for (const std::string& path : {set.blob(), set.blob("listed.h5", {}, -1, {5}), set.sequences("plain.h5", {}, 0),
                                  set.sequences("block.h5", {}, 1024), set.sequences("chunked.h5", {5}, 512)})
    for (const double min_area : {0.0, 0.3})
      for (const int workers : {0, 1, 3}) {
        const ShardIndex d = set.index({path}, min_area);
        ASSERT_EQ(d.sample, (Shape{32, 32, 3})) << path;
        test::HostDevice device;
        const auto source = make_source(*world, d, Reader::automatic);
        const Sampler sampler(23, 8, 8, 5, true);
        std::int64_t epoch = 0, step = 0, rows = 0;
        Loader loader(device, *source, d, sampler, {workers, 3, 8}, [&]() -> std::optional<MicroBatch> {
          if (step == 3) {
            ++epoch;
            step = 0;
          }
          if (epoch == 2) return std::nullopt;
          const std::int64_t first = 8 * step;
          return MicroBatch{epoch, step++, first, std::min<std::int64_t>(8, 23 - first)};
        });
        while (const Batch* b = loader.next()) {
          std::vector<std::int64_t> ids(std::size_t(b->item.rows));
          sampler.ids(b->item, ids.data());
          for (std::size_t r = 0; r < ids.size(); ++r, ++rows) {
            const auto want = set.expected(d, b->item.epoch, ids[r]);
            ASSERT_EQ(std::memcmp(want.data(), static_cast<const char*>(b->x.data) + r * want.size(), want.size()), 0)
                << path << ", crops of at least " << min_area << ", " << workers << " workers, sample " << ids[r];
            ASSERT_EQ(static_cast<const std::int32_t*>(b->y.data)[r], set.labels[std::size_t(ids[r])]);
          }
        }
        EXPECT_EQ(rows, 46);
      }
}

// The memory per file does not depend on the number of images, unless their locations are stored in chunks.
TEST(Encoded, LocationsAreReadWithTheImages) {
  const EncodedSet set;
  using Locator = EncodedRows::Locator;
  const auto told = [&](const std::string& path) { return set.index({path}).shards.front().x_encoded; };
  EXPECT_EQ(told(set.blob())->locator, Locator::offsets);
  EXPECT_EQ(told(set.sequences("plain.h5", {}, 0))->locator, Locator::references);
  EXPECT_EQ(told(set.blob())->list, nullptr);
  EXPECT_EQ(told(set.blob("listed.h5", {}, -1, {5}))->list->size(), 23u);
  EXPECT_EQ(told(set.sequences("chunked.h5", {5}, 512))->list->size(), 23u);
  // Descending offsets only affect the images between them.
  std::string path = set.blob("descend.h5"), bytes = test::content(path);
  const std::int64_t third = std::int64_t(set.files[0].size() + set.files[1].size() + set.files[2].size()), zero = 0;
  const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&third), 8));
  ASSERT_LT(at, bytes.size());
  std::memcpy(&bytes[at], &zero, 8);
  std::ofstream(path, std::ios::binary) << bytes;
  const auto world = solo_world();
  const auto source = make_source(*world, set.index({path}), Reader::automatic);
  std::vector<char> x(32 * 32 * 3);
  std::int32_t y;
  const auto read = [&](std::int64_t id) { source->read({&id, 1}, x.data(), &y); };
  EXPECT_NO_THROW(read(1));
  EXPECT_NE(message_of([&] { read(2); }).find("x_offsets': image 2 spans bytes"), std::string::npos);
  EXPECT_NO_THROW(read(4));
}

TEST(Encoded, DamageIsReportedWithFileAndImage) {
  EncodedSet set;
  const auto world = solo_world();
  const auto reading = [&](std::int64_t id) {
    const auto source = make_source(*world, set.index({set.blob()}), Reader::automatic);
    std::vector<char> x(32 * 32 * 3);
    std::int32_t y;
    source->read({&id, 1}, x.data(), &y);
  };
  const auto expect = [&](const std::string& message, std::vector<std::string> words) {
    for (const auto& word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  const std::string good = set.files[2];
  set.files[2] = good.substr(0, good.size() / 2);
  expect(message_of([&] { reading(2); }), {"image 2 of ", "blob.h5 (sample 2) cannot be decoded ("});
  set.files[2] = "GIF89a";
  expect(message_of([&] { reading(2); }), {"image 2 of ", "is neither PNG nor JPEG"});
  set.files[2] = "";
  expect(message_of([&] { reading(2); }), {"is neither PNG nor JPEG"});
  set.files[2] = good;
  const std::string path = set.blob();
  expect(message_of([&] { make_source(*world, set.index({path}), Reader::mmap); }, Exit::config),
         {"data.reader = mmap reads samples of one size", "use auto or direct"});
  expect(message_of(
             [&] {
               index_shards(*world, {.paths = {path}, .layout = Layout::channels_first, .decode = {40, 32, 0, 0}});
             },
             Exit::config),
         {"data.layout", "encoded images"});
  expect(message_of([&] { set.index({set.blob("end.h5", {}, 1 << 30)}); }), {"x_offsets': image 22 spans bytes"});
  expect(message_of([&] { set.index({set.blob("chunked.h5", {1000})}); }), {"'/x' holds encoded images, but is not"});
  const std::string sequences = set.sequences("v.h5", {}, 0);
  std::string bytes = test::content(sequences);
  for (std::size_t at; (at = bytes.find("GCOL")) != std::string::npos;) bytes[at] = 'g';
  std::ofstream(sequences, std::ios::binary) << bytes;
  const auto broken = make_source(*world, set.index({sequences}), Reader::automatic);
  std::vector<char> x(32 * 32 * 3);
  std::int32_t y;
  const std::int64_t id = 4;
  expect(message_of([&] { broken->read({&id, 1}, x.data(), &y); }), {"image 4 of ", "no heap collection at byte"});
  // An image whose end overflows to the beginning of the file.
  const std::string far = set.sequences("far.h5", {}, 0);
  bytes = test::content(far);
  std::uint32_t count = std::uint32_t(set.files[4].size());
  std::uint64_t collection = 0;
  std::size_t at = 0;
  do {  // its reference: size, collection, object number
    at = bytes.find(std::string(reinterpret_cast<const char*>(&count), 4), at + 1);
    ASSERT_LT(at, bytes.size() - 16);
    std::memcpy(&collection, &bytes[at + 4], 8);
  } while (collection >= bytes.size() || bytes.compare(collection, 4, "GCOL") != 0);
  collection = ~std::uint64_t(0) - count / 2;
  std::memcpy(&bytes[at + 4], &collection, 8);
  std::ofstream(far, std::ios::binary) << bytes;
  const auto wrapped = make_source(*world, set.index({far}), Reader::automatic);
  expect(message_of([&] {
           wrapped->read({&id, 1}, x.data(), &y);
         }),
         {"far.h5:", "image 4 would be at byte 18446744073709", "damaged"});
}

}  // namespace encoded_test
}  // namespace millrace
#endif
