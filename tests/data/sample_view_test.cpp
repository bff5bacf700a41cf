// Samples that are cut out of an array are compared with a plain implementation of the definition.
#include "millrace/data/index/sample_view.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "data/files.hpp"
#include "millrace/data/load/block_order.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "support/host_device.hpp"

namespace millrace {
namespace {

using test::message_of;
using test::TemporaryFolder;

// A scene (H, W, C), possibly stored as (C, H, W), and its label map.
struct Scene {
  std::int64_t height = 11, width = 7, channels = 5;
  bool first = false, big_endian = false;
  std::vector<hsize_t> chunk = {};
  std::vector<std::int16_t> map;

  Scene() : map(std::size_t(height * width)) {
    for (std::size_t i = 0; i < map.size(); ++i) map[i] = std::int16_t(i % 5 == 2 ? -3 : (i * i + i / 3) % 4);
    map.front() = 2;
    map.back() = 3;
    map[6] = 1;  // corners
  }
  static std::uint16_t value(std::int64_t row, std::int64_t column, std::int64_t channel) {
    return std::uint16_t(1000 * row + 50 * column + channel + 7);
  }
  std::vector<hsize_t> shape() const {
    const hsize_t h = hsize_t(height), w = hsize_t(width), c = hsize_t(channels);
    return first ? std::vector<hsize_t>{c, h, w} : std::vector<hsize_t>{h, w, c};
  }
  void write(const std::string& path) const {
    std::vector<std::uint16_t> x;
    for (std::int64_t p = 0; p < (first ? channels : 1); ++p)
      for (std::int64_t r = 0; r < height; ++r)
        for (std::int64_t c = 0; c < width; ++c)
          for (std::int64_t k = 0; k < (first ? 1 : channels); ++k) x.push_back(value(r, c, first ? p : k));
    test::write_file(path,
                     {{"x", big_endian ? H5T_STD_U16BE : H5T_STD_U16LE, H5T_NATIVE_UINT16, shape(), x.data(), chunk},
                      {"y", H5T_STD_I16LE, H5T_NATIVE_INT16, {hsize_t(height), hsize_t(width)}, map.data()}});
  }
  // The expected samples: bytes of x, then the label.
  std::vector<std::string> patches(std::int64_t side) const {
    const auto mirror = [](std::int64_t i, std::int64_t n) {
      while (i < 0 || i >= n) i = i < 0 ? -i : 2 * (n - 1) - i;
      return i;
    };
    std::vector<std::string> out;
    for (std::int64_t i = 0; i < height * width; ++i) {
      if (map[std::size_t(i)] < 1) continue;
      std::vector<std::uint16_t> x(std::size_t(side * side * channels));
      for (std::int64_t r = 0; r < side; ++r)
        for (std::int64_t c = 0; c < side; ++c)
          for (std::int64_t k = 0; k < channels; ++k)
            x[std::size_t(first ? (k * side + r) * side + c : (r * side + c) * channels + k)] =
                value(mirror(i / width + r - side / 2, height), mirror(i % width + c - side / 2, width), k);
      const std::int32_t label = map[std::size_t(i)] - 1;
      out.push_back(std::string(reinterpret_cast<const char*>(x.data()), 2 * x.size()) +
                    std::string(reinterpret_cast<const char*>(&label), 4));
    }
    return out;
  }
};

SampleView patches_of(std::int64_t side, double holdout = 0) {
  SampleView v;
  v.sample = SampleKind::patch;
  v.patch = side;
  v.holdout = holdout;
  return v;
}
SampleView pairs(std::int64_t lead) {
  SampleView v;
  v.sample = SampleKind::pair;
  v.lead = lead;
  return v;
}
SampleView windows(std::int64_t length, std::int64_t stride, std::int64_t vocabulary = 0) {
  SampleView v;
  v.sample = SampleKind::tokens;
  v.window = length;
  v.stride = stride;
  v.vocabulary = vocabulary;
  return v;
}
ShardIndex index_of(const std::string& path, const SampleView& view, bool validation_part = false) {
  return index_shards(*solo_world(), {.paths = {path}, .view = view, .validation_part = validation_part});
}

std::size_t y_bytes(const ShardIndex& index) { return index.y.labels ? 4 : 4 * std::size_t(index.y.target.count()); }

std::string sample_of(const ShardIndex& index, const char* x, const char* y) {
  return std::string(x, index.sample_bytes()) + std::string(y, y_bytes(index));
}

// Reads all samples in an irregular order with one request.
std::vector<std::string> read_all(const ShardIndex& index, Source& source) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < index.rows; ++i) ids.push_back((i * 7 + 3) % index.rows);
  if (index.rows % 7 == 0)
    for (std::int64_t i = 0; i < index.rows; ++i) ids[std::size_t(i)] = index.rows - 1 - i;
  std::vector<char> x(ids.size() * index.sample_bytes()), y(ids.size() * y_bytes(index));
  source.read(ids, x.data(), y.data());
  std::vector<std::string> out(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    out[std::size_t(ids[i])] = sample_of(index, x.data() + i * index.sample_bytes(), y.data() + i * y_bytes(index));
  return out;
}

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

// Ids and bytes of an epoch, as ranks and workers read them.
std::map<std::int64_t, std::string> epoch_of(const ShardIndex& index, int ranks, int workers, const Sampler& sampler) {
  std::map<std::int64_t, std::string> out;
  test::HostDevice device;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<MicroBatch> all;
    for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step)
      for (const MicroBatch& m : sampler.share(1, step, rank, ranks)) all.push_back(m);
    const auto source = make_source(*solo_world(), index, Reader::automatic);
    LoaderOptions options;
    options.workers = workers;
    options.max_rows = 4;
    Loader loader(device, *source, index, sampler, options,
                  [all, at = std::size_t(0)]() mutable -> std::optional<MicroBatch> {
                    if (at == all.size()) return std::nullopt;
                    return all[at++];
                  });
    while (const Batch* b = loader.next())
      for (std::int64_t r = 0; r < b->item.rows; ++r) {
        const std::int64_t id = b->ids.as<std::int64_t>()[r];
        EXPECT_FALSE(out.contains(id)) << "sample " << id << " comes twice";
        out[id] = sample_of(index, b->x.as<char>() + std::size_t(r) * index.sample_bytes(),
                            b->y.as<char>() + std::size_t(r) * y_bytes(index));
      }
  }
  return out;
}

// Every sample is read once with the same bytes, for any number of ranks and workers and any order.
void expect_the_same_everywhere(const ShardIndex& index) {
  const auto source = make_source(*solo_world(), index, Reader::automatic);
  const auto all = read_all(index, *source);
  const BlockShuffle blocks = block_shuffle(index, 0, 0, 1 << 20);
  for (const int ranks : {1, 2, 3})
    for (const int workers : {0, 1, 3})
      for (const bool block : {false, true}) {
        const Sampler sampler = block ? Sampler(9, 4, std::make_shared<const BlockOrder>(blocks.layout, 5))
                                      : Sampler(index.rows, 9, 4, 5, true);
        const auto epoch = epoch_of(index, ranks, workers, sampler);
        ASSERT_EQ(epoch.size(), all.size());
        for (const auto& [id, bytes] : epoch) ASSERT_EQ(bytes, all[std::size_t(id)]) << "sample " << id;
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

// A series of two features in files of 6, 1 and 4 rows.
struct Series {
  TemporaryFolder folder;
  explicit Series(bool chunked) {
    float at = 1;
    for (const hsize_t rows : {6, 1, 4}) {
      std::vector<float> x(rows * 2);
      for (float& v : x) v = at *= -1.25f;
      test::write_file(folder / ("part" + std::to_string(rows == 6   ? 0
                                                         : rows == 1 ? 1
                                                                     : 2)),
                       {{"x",
                         H5T_IEEE_F32LE,
                         H5T_NATIVE_FLOAT,
                         {rows, 2},
                         x.data(),
                         chunked ? std::vector<hsize_t>{1, 2} : std::vector<hsize_t>{}}});
    }
  }
};

TEST(SampleView, PairsStayInTheirFileAndTargetsAreNormalisedLikeInputs) {
  for (const bool chunked : {false, true}) {
    const Series series(chunked);
    ShardIndex index = index_of(series.folder / "part*", pairs(2));
    EXPECT_EQ(index.rows, 4 + 0 + 2);
    EXPECT_EQ(index.y.target, (Shape{2}));
    EXPECT_FALSE(index.y.labels);
    index.values.mean = {0.5, -1};
    index.values.std = {2, 4};
    index.values.scale = 3;
    const auto power = [](int n) {  // the value number n
      float at = 1;
      for (int i = 0; i <= n; ++i) at *= -1.25f;
      return at;
    };
    const int rows[] = {0, 1, 2, 3, 7, 8};
    for (const bool normalize : {true, false}) {
      index.values.normalize_targets = normalize;
      const auto all = read_all(index, *make_source(*solo_world(), index, Reader::automatic));
      for (std::size_t i = 0; i < 6; ++i)
        for (int f = 0; f < 2; ++f) {
          float x = 0, y = 0;
          std::memcpy(&x, all[i].data() + 4 * f, 4);
          std::memcpy(&y, all[i].data() + 8 + 4 * f, 4);
          EXPECT_EQ(x, power(2 * rows[i] + f));
          const double value = 3.0 * double(power(2 * (rows[i] + 2) + f)), mean = f ? -1 : 0.5, std = f ? 4 : 2;
          EXPECT_NEAR(y, normalize ? (value - mean) / std : value, 1e-5 * std::abs(value)) << "sample " << i;
        }
    }
    expect_the_same_everywhere(index);
  }
}

TEST(SampleView, TargetsOfPairsAreChannelsLast) {
  const TemporaryFolder folder;
  std::vector<std::int16_t> x(3 * 2 * 4 * 5);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::int16_t(i);
  test::write_file(folder / "f.h5", {{"x", H5T_STD_I16BE, H5T_NATIVE_INT16, {3, 2, 4, 5}, x.data()}});
  const ShardIndex index =
      index_shards(*solo_world(), {.paths = {folder / "f.h5"}, .layout = Layout::channels_first, .view = pairs(1)});
  EXPECT_EQ(index.y.target, (Shape{4, 5, 2}));
  const auto all = read_all(index, *make_source(*solo_world(), index, Reader::mmap));
  for (std::size_t p = 0; p < 20; ++p)
    for (std::size_t c = 0; c < 2; ++c) {
      float y = 0;
      std::memcpy(&y, all[1].data() + 80 + 4 * (2 * p + c), 4);
      EXPECT_EQ(y, float(80 + c * 20 + p));
    }
}

struct TokenType {
  hid_t stored;
  DType dtype;
};

// Texts of 23, 5 and 40 tokens, or rows of 10, 4 and 12. The label is the token after the window.
TEST(SampleView, WindowsMatchTheDefinitionForEveryTypeAndStorage) {
  const TemporaryFolder folder;
  const auto token = [](std::int64_t at) { return std::uint32_t((at * 37 + at / 3) % 200); };
  for (const TokenType& type :
       {TokenType{H5T_STD_U8LE, DType::u8}, TokenType{H5T_STD_U16BE, DType::u16}, TokenType{H5T_STD_U32LE, DType::i32},
        TokenType{H5T_STD_U32BE, DType::i32}, TokenType{H5T_STD_I32LE, DType::i32}})
    for (const bool chunked : {false, true})
      for (const auto& shapes : {std::vector<std::vector<hsize_t>>{{23}, {5}, {40}},
                                 std::vector<std::vector<hsize_t>>{{3, 10}, {1, 4}, {2, 12}}}) {
        std::int64_t at = 0;
        std::vector<std::vector<std::uint32_t>> texts;
        for (std::size_t f = 0; f < shapes.size(); ++f) {
          const auto& shape = shapes[f];
          std::vector<std::uint32_t> x;
          for (hsize_t r = 0; r < (shape.size() > 1 ? shape[0] : 1); ++r) {
            texts.emplace_back();
            for (hsize_t i = 0; i < shape.back(); ++i) texts.back().push_back(token(at++));
            x.insert(x.end(), texts.back().begin(), texts.back().end());
          }
          std::vector<hsize_t> chunk = shape;
          for (hsize_t& extent : chunk) extent = std::min<hsize_t>(extent, 3);
          test::write_file(folder / cat("text", f), {{"x", type.stored, H5T_NATIVE_UINT32, shape, x.data(),
                                                      chunked ? chunk : std::vector<hsize_t>{}}});
        }
        std::uint32_t largest = 0;
        for (const auto& text : texts)
          for (const std::uint32_t t : text) largest = std::max(largest, t);
        for (const auto& [length, stride] :
             std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {4, 2}, {9, 1}, {4, 7}}) {
          std::vector<std::vector<std::uint32_t>> expected;
          for (const auto& text : texts)
            for (std::int64_t first = 0; first + length < std::int64_t(text.size()); first += stride)
              expected.emplace_back(text.begin() + first, text.begin() + first + length + 1);
          const ShardIndex index = index_of(folder / "text*", windows(length, stride));
          ASSERT_EQ(index.rows, std::int64_t(expected.size())) << length << " every " << stride;
          EXPECT_EQ(index.sample, (Shape{length}));
          EXPECT_EQ(index.x.dtype, type.dtype);
          EXPECT_EQ(index.classes.count, std::int64_t(largest) + 1);
          for (const Reader reader : {Reader::direct, Reader::mmap}) {
            if (chunked && reader == Reader::mmap) continue;
            const auto all = read_all(index, *make_source(*solo_world(), index, reader));
            for (std::size_t i = 0; i < all.size(); ++i) {
              std::vector<std::uint32_t> found;
              for (std::int64_t t = 0; t < length; ++t) {
                std::uint32_t value = 0;  // assumes a little-endian machine
                std::memcpy(&value, all[i].data() + std::size_t(t) * size_of(type.dtype), size_of(type.dtype));
                found.push_back(value);
              }
              found.emplace_back();
              std::memcpy(&found.back(), all[i].data() + index.sample_bytes(), 4);
              ASSERT_EQ(found, expected[i]) << "sample " << i << " of windows of " << length << " every " << stride;
            }
          }
        }
      }
  expect_the_same_everywhere(index_of(folder / "text*", windows(4, 2)));
}

TEST(SampleView, ATokenAboveTheVocabularyIsADataError) {
  const TemporaryFolder folder;
  const std::vector<std::uint32_t> x{1, 2, 3, 4, 9, 5, 0xffffffffu, 1, 1, 1};
  test::write_file(folder / "small", {{"x", H5T_STD_U16LE, H5T_NATIVE_UINT32, {6}, x.data()}});
  const ShardIndex small = index_of(folder / "small", windows(2, 1, 9));
  const auto source = make_source(*solo_world(), small, Reader::automatic);
  const std::string message = message_of([&] { read_all(small, *source); });
  EXPECT_NE(message.find("token 9 of"), std::string::npos) << message;
  EXPECT_NE(message.find("position 4) is not below the vocabulary of 9"), std::string::npos) << message;
  const auto skip = make_source(*solo_world(), small, Reader::automatic, {.on_error = OnError::skip});
  read_all(small, *skip);
  EXPECT_EQ(skip->faults().skipped_samples, 2u);  // those that contain it or have it as their label
  test::write_file(folder / "large", {{"x", H5T_STD_U32LE, H5T_NATIVE_UINT32, {10}, x.data()}});
  const std::string counted = message_of([&] { index_of(folder / "large", windows(2, 1)); });
  EXPECT_NE(counted.find("4294967295) at position 6"), std::string::npos) << counted;
  const ShardIndex large = index_of(folder / "large", windows(2, 1, 10));
  const auto unsaid = make_source(*solo_world(), large, Reader::automatic);
  const std::string read = message_of([&] { read_all(large, *unsaid); });
  EXPECT_NE(read.find("token 4294967295 of"), std::string::npos) << read;
}

TEST(SampleView, UnsuitableArraysAreRefusedWithTheReason) {
  const TemporaryFolder folder;
  Scene scene;
  scene.write(folder / "scene.h5");
  const auto refused = [&](const std::string& path, const SampleView& view, const std::string& words,
                           Exit code = Exit::data) {
    const std::string message = message_of([&] { index_of(path, view); }, code);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused(folder / "scene.h5", patches_of(4), "data.patch: 4 is not the side", Exit::config);
  refused(folder / "scene.h5", patches_of(15), "patches of 15x15 do not fit a scene of 11x7");
  refused(folder / "scene.h5", patches_of(3, 1), "outside the held-out blocks");
  SampleView mixed = patches_of(3);
  mixed.lead = 2;
  refused(folder / "scene.h5", mixed, "data.lead does nothing without data.sample = pair", Exit::config);
  refused(folder / "scene.h5", pairs(11), "later in its file. lower data.lead");
  refused(folder / "scene.h5", windows(3, 1), "'x' to be one text, or one text per row");
  refused(folder / "scene.h5", windows(0, 1), "data.window", Exit::config);
  const std::vector<std::uint8_t> text(5, 1);
  test::write_file(folder / "text.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {5}, text.data()}});
  refused(folder / "text.h5", windows(5, 1), "no text is longer than a window of 5 tokens");
  refused("synthetic:images:rows=50,shape=4x4x1,classes=2,seed=1", pairs(1), "data.sample", Exit::config);
  scene.map.assign(scene.map.size(), 0);
  scene.map[5] = -1;
  scene.write(folder / "empty.h5");
  refused(folder / "empty.h5", patches_of(3), "no pixel of '/y' is labelled");
  scene.width = 6;
  scene.map.resize(66);
  std::vector<float> floats(66, 1);
  test::write_file(folder / "floats.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {11, 6, 2}, floats.data()},
                                          {"y", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {11, 6}, floats.data()}});
  refused(folder / "floats.h5", patches_of(3), "a map of integers");
  const std::vector<std::uint8_t> map(50, 1);
  test::write_file(folder / "sizes.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {6, 5, 2}, floats.data()},
                                         {"y", H5T_STD_U8LE, H5T_NATIVE_UINT8, {5, 6}, map.data()}});
  refused(folder / "sizes.h5", patches_of(3), "needs the scene's height and width");
  const ShardIndex index = index_of(folder / "scene.h5", patches_of(3));
  for (const Reader reader : {Reader::uring, Reader::mpio}) {
    const std::string message = message_of([&] { make_source(*solo_world(), index, reader); }, Exit::config);
    EXPECT_NE(message.find("data.sample = patch extracts samples from an array"), std::string::npos) << message;
  }
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

}  // namespace
}  // namespace millrace
