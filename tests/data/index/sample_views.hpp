// Samples that are cut out of an array: views with one option each, a scene with the patches that are expected of it,
// and all samples of an index as bytes.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/files.hpp"
#include "millrace/data/index/sample_view.hpp"
#include "millrace/data/load/block_order.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "support/host/device.hpp"

namespace millrace::test {

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
    write_file(path, {{"x", big_endian ? H5T_STD_U16BE : H5T_STD_U16LE, H5T_NATIVE_UINT16, shape(), x.data(), chunk},
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

inline SampleView patches_of(std::int64_t side, double holdout = 0) {
  SampleView v;
  v.sample = SampleKind::patch;
  v.patch = side;
  v.holdout = holdout;
  return v;
}
inline SampleView pairs(std::int64_t lead) {
  SampleView v;
  v.sample = SampleKind::pair;
  v.lead = lead;
  return v;
}
inline SampleView windows(std::int64_t length, std::int64_t stride, std::int64_t vocabulary = 0) {
  SampleView v;
  v.sample = SampleKind::tokens;
  v.window = length;
  v.stride = stride;
  v.vocabulary = vocabulary;
  return v;
}
inline ShardIndex index_of(const std::string& path, const SampleView& view, bool validation_part = false) {
  return index_shards(*solo_world(), {.paths = {path}, .view = view, .validation_part = validation_part});
}

inline std::size_t y_bytes(const ShardIndex& index) {
  return index.y.labels ? 4 : 4 * std::size_t(index.y.target.count());
}

inline std::string sample_of(const ShardIndex& index, const char* x, const char* y) {
  return std::string(x, index.sample_bytes()) + std::string(y, y_bytes(index));
}

// Reads all samples in an irregular order with one request.
inline std::vector<std::string> read_all(const ShardIndex& index, Source& source) {
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

// Ids and bytes of an epoch, as ranks and workers read them.
inline std::map<std::int64_t, std::string> epoch_of(const ShardIndex& index, int ranks, int workers,
                                                    const Sampler& sampler) {
  std::map<std::int64_t, std::string> out;
  HostDevice device;
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
inline void expect_the_same_everywhere(const ShardIndex& index) {
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

}  // namespace millrace::test
