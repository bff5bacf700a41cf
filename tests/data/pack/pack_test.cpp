#include "millrace/data/pack/pack.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "data/files.hpp"
#include "millrace/data/index/row_checksums.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace pack_test {

using test::message_of;
using test::TemporaryFolder;

// Reads every packed row and finds it among the importer's rows by its contents.
std::vector<std::int64_t> source_rows(const ShardIndex& d, const test::Rows& in) {
  const auto world = solo_world();
  const auto source = make_source(*world, d, Reader::automatic);
  std::vector<char> x(d.sample_bytes()), expected(x.size()), y(8), ignored(8);
  std::vector<std::int64_t> out;
  for (std::int64_t id = 0; id < d.rows; ++id) {
    source->read({&id, 1}, x.data(), y.data());
    std::int64_t found = -1;
    for (std::int64_t row = 0; row < in.rows() && found < 0; ++row) {
      in.read(row, 1, expected.data(), ignored.data());
      if (expected == x) found = row;
    }
    if (found >= 0 && d.y.labels) {
      std::int32_t label;
      std::memcpy(&label, y.data(), 4);
      EXPECT_EQ(label, found % 7);
    } else if (found >= 0) {
      float target[2];
      std::memcpy(target, y.data(), 8);
      EXPECT_EQ(target[0], float(found));
      EXPECT_EQ(target[1], -float(found));
    }
    out.push_back(found);
  }
  return out;
}

bool is_every_row(std::vector<std::int64_t> rows) {
  std::sort(rows.begin(), rows.end());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i] != std::int64_t(i)) return false;
  return true;
}

TEST(Pack, PacksEveryRowOnceInTheShuffledOrderOfTheSeed) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  std::vector<std::vector<std::int64_t>> orders;
  for (const auto& [shuffle, seed] : {std::pair{true, 1}, {true, 1}, {true, 2}, {false, 1}}) {
    test::Rows in;
    const PackReport report = pack(*world, in,
                                   {.out = folder.path / fmt::format("{}", orders.size()),
                                    .shard_bytes = 24 * 30,
                                    .shuffle = shuffle,
                                    .seed = std::uint64_t(seed)});
    EXPECT_EQ(report.files.size(), 4u);
    EXPECT_EQ(report.rows, 100);
    EXPECT_EQ(report.bytes, 100u * (24 + 8 + 4));
    EXPECT_EQ(report.own_bytes, report.bytes);
    const ShardIndex d = index_shards(*world, {.paths = {folder / fmt::format("{}/train-*.h5", orders.size())}});
    ASSERT_EQ(d.rows, 100);
    EXPECT_EQ(d.sample, in.one);
    for (const Shard& s : d.shards) EXPECT_EQ(s.rows, 25);
    orders.push_back(source_rows(d, in));
    EXPECT_TRUE(is_every_row(orders.back()));
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_NE(orders[0], orders[2]);
  EXPECT_TRUE(std::is_sorted(orders[3].begin(), orders[3].end()));
  EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
  EXPECT_EQ(test::content(folder / "0/train-00002.h5"), test::content(folder / "1/train-00002.h5"));
}

// Rows that can be compressed, unlike those of test::Rows.
class Stripes : public test::Rows {
 public:
  void read(std::int64_t begin, std::int64_t n, void* x, void* y) const override {
    test::Rows::read(begin, n, x, y);
    for (std::int64_t i = 0; i < n * one.count(); ++i)
      if (i / 8 % 3) static_cast<char*>(x)[i] = char(begin + i / one.count());
  }
};

std::vector<std::string> codecs_of_this_build() {
  std::vector<std::string> out;
#ifdef MILLRACE_WITH_ZSTD
  out.push_back("zstd");
#endif
#ifdef MILLRACE_WITH_LZ4
  out.push_back("lz4");
#endif
  return out;
}

TEST(Pack, CodecsKeepEveryByteAndAreRegisteredFilters) {
  const auto world = solo_world();
  const auto bytes_of = [&](const ShardIndex& d, Reader reader) {
    std::string x(std::size_t(d.rows) * d.sample_bytes(), '?'), y(std::size_t(d.rows) * 4, '?');
    std::vector<std::int64_t> ids(std::size_t(d.rows));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = std::int64_t(i);
    make_source(*world, d, reader)->read(ids, x.data(), y.data());
    return x + y;
  };
  for (const std::string& codec : codecs_of_this_build())
    for (const auto& [level, chunk_rows, incompressible] :
         {std::tuple{-1, 0, false}, {-1, 7, false}, {5, 7, true}, {12, 1, false}, {-1, 1000, false}}) {
      SCOPED_TRACE(fmt::format("{} at {}, chunks of {}", codec, level, chunk_rows));
      const TemporaryFolder folder;
      const Stripes stripes;
      const test::Rows noise;
      const Importer& in = incompressible ? static_cast<const Importer&>(noise) : stripes;
      PackOptions options{.out = folder.path / "plain", .shard_bytes = 24 * 30, .valid_fraction = 0.13};
      pack(*world, in, options);
      options.out = folder.path / "packed";
      options.chunk_rows = chunk_rows;
      options.codec = io::make_encoder(codec, level < 0 ? std::nullopt : std::optional(level));
      const PackReport report = pack(*world, in, options);
      EXPECT_EQ(report.row_bytes, 100u * (24 + 8));
      EXPECT_EQ(report.own_bytes, report.bytes);
      for (const char* part : {"train", "valid"}) {
        const auto index = [&](const char* which) {
          return index_shards(*world, {.paths = {folder / fmt::format("{}/{}-*.h5", which, part)}});
        };
        const ShardIndex plain = index("plain"), packed = index("packed");
        ASSERT_TRUE(readable_without_hdf5(packed));
        EXPECT_EQ(bytes_of(packed, Reader::direct), bytes_of(plain, Reader::direct));
        EXPECT_EQ(bytes_of(packed, Reader::mpio), bytes_of(plain, Reader::direct));  // read by the HDF5 library
        EXPECT_EQ(packed.values.mean, plain.values.mean);
        EXPECT_EQ(packed.classes.count, plain.classes.count);
        for (const Shard& s : packed.shards) {
          const auto& chunks = *s.x_chunks;
          ASSERT_EQ(chunks.filters.size(), 1u);
          EXPECT_EQ(chunks.filters[0].id, codec == "zstd" ? 32015 : 32004);
          EXPECT_EQ(chunks.chunk[0], chunk_rows == 0 ? s.rows : std::min<std::int64_t>(chunk_rows, s.rows));
        }
      }
    }
}

TEST(Pack, UnknownCodecsAreRefused) {
  for (const auto& [codec, level, words] : {std::tuple{"gzip", 3, "choose none, zstd or lz4"},
#ifdef MILLRACE_WITH_ZSTD
                                            {"zstd", 20, "level 20 of zstd is not from 1 to 19"},
#else
                                            {"zstd", 3, "install libzstd-dev and build again"},
#endif
#ifdef MILLRACE_WITH_LZ4
                                            {"lz4", -1, "level -1 of lz4 is not from 0 to 12"}})
#else
                                            {"lz4", 0, "install liblz4-dev and build again"}})
#endif
  {
    const std::string message = message_of([&, c = codec, l = level] { io::make_encoder(c, l); }, Exit::config);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
}

TEST(Pack, StatisticsAreThoseOfTheTrainingRows) {
  for (const bool first : {false, true}) {
    const TemporaryFolder folder;
    const auto world = solo_world();
    test::Rows in;
    in.first = first;
    in.one = first ? Shape{3, 4, 5} : Shape{4, 5, 3};
    const PackReport report = pack(*world, in, {.out = folder.path, .valid_fraction = 0.25});
    EXPECT_EQ(report.rows, 75);
    EXPECT_EQ(report.valid_rows, 25);
    const ShardIndex train = index_shards(*world, {.paths = {folder / "train-*.h5"}}),
                     valid = index_shards(*world, {.paths = {folder / "valid-*.h5"}});
    EXPECT_EQ(train.sample, (Shape{4, 5, 3}));
    EXPECT_EQ(train.x.channels_first, first);
    EXPECT_EQ(train.classes.count, 7);
    EXPECT_EQ(valid.classes.count, 7);
    EXPECT_EQ(valid.values.mean, train.values.mean);
    auto rows = source_rows(train, in);
    std::vector<double> mean(3), squares(3);
    for (const auto row : rows)
      for (std::int64_t v = 0; v < 60; ++v) {
        const double value = test::Rows::value(row, v) / 255.0;
        const std::size_t c = std::size_t(first ? v / 20 : v % 3);
        mean[c] += value / (75 * 20);
        squares[c] += value * value / (75 * 20);
      }
    ASSERT_EQ(train.values.mean.size(), 3u);
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(train.values.mean[c], mean[c], 1e-12);
      EXPECT_NEAR(train.values.std[c], std::sqrt(squares[c] - mean[c] * mean[c]), 1e-9);
    }
    const auto others = source_rows(valid, in);
    rows.insert(rows.end(), others.begin(), others.end());
    EXPECT_TRUE(is_every_row(rows));
  }
}

TEST(Pack, FloatsAndTargetsSurvive) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  test::Rows in;
  in.floats = in.targets = true;
  in.one = Shape{11};
  in.count = 13;
  pack(*world, in, {.out = folder.path, .prefix = "mine"});
  const ShardIndex d = index_shards(*world, {.paths = {folder / "mine-00000.h5"}});
  EXPECT_EQ(d.x.dtype, DType::f32);
  EXPECT_FALSE(d.y.labels);
  EXPECT_EQ(d.y.target, (Shape{2}));
  EXPECT_EQ(d.values.mean.size(), 11u);
  EXPECT_DOUBLE_EQ(d.values.scale, 1);
  EXPECT_TRUE(is_every_row(source_rows(d, in)));
}

TEST(Pack, DataAreContiguousAndAligned) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  test::Rows in;
  in.count = 1000;
  pack(*world, in, {.out = folder.path});
  const ShardIndex d = index_shards(*world, {.paths = {folder / "train-*.h5"}});
  EXPECT_FALSE(d.shards.at(0).x_chunks || d.shards[0].y_chunks);
  EXPECT_EQ(d.shards[0].hdf5_only_reason, "");
  EXPECT_EQ(d.shards[0].x_offset % 4096, 0u);
  EXPECT_EQ(d.shards[0].y_offset % 4096, 0u);
}

// Changes one byte of the file.
void flip(const std::string& path, std::int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  char byte = 0;
  file.seekg(at).get(byte);
  file.seekp(at).put(char(byte ^ 4));
}

TEST(Pack, ChangedSamplesAndLabelsAreFoundByTheirChecksums) {
  std::vector<std::string> codecs = codecs_of_this_build();
  codecs.emplace_back();
  for (const std::string& codec : codecs)
    for (const int ranks : {1, 3}) {
      if (codec.empty() && ranks > 1)
        continue;  // contiguous shards of several ranks need MPI; app.cli.readers has some
      SCOPED_TRACE(fmt::format("codec '{}', {} ranks", codec, ranks));
      const TemporaryFolder folder;
      PackOptions options{.out = folder.path / "out"};
      if (!codec.empty()) options.codec = io::make_encoder(codec, std::nullopt);
      options.chunk_rows = codec.empty() ? 0 : 4;
      run_thread_world(ranks, [&](World& world) {
        test::Rows in;
        in.count = 50;
        pack(world, in, options);
      });
      const std::string path = folder / "out/train-00000.h5";
      const VerifiedRows whole = verify_rows(path);
      EXPECT_EQ(whole.rows, 50);
      EXPECT_EQ(whole.damaged, 0);
      const auto offset_of = [&](const char* name) { return *io::File::open(path).info(name).offset; };
      flip(path, std::int64_t(offset_of("/y")) + 7 * 8);
      EXPECT_EQ(verify_rows(path).damaged, 1);
      EXPECT_EQ(verify_rows(path).first, 7);
      if (codec.empty()) {
        flip(path, std::int64_t(offset_of("/x")) + 5 * 24 + 3);
        EXPECT_EQ(verify_rows(path).damaged, 2);
        EXPECT_EQ(verify_rows(path).first, 5);
      }
    }
}

}  // namespace pack_test
}  // namespace millrace
