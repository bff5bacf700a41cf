// Samples that are extracted from an array (sample_view.hpp). Their hyperslabs are read straight into the slot. Only
// patches that extend beyond the edge of a scene, and the targets of pairs, need a buffer of the worker.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "data/decode/convert_values.hpp"
#include "data/read/hyperslab_reader.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/data/read/view_hyperslabs.hpp"

namespace millrace {
namespace {

// Mirrors an index at the edges of [0, n) without repeating the edge: ... 2 1 0 1 2 ... It is less than n outside.
std::int64_t mirrored(std::int64_t i, std::int64_t n) { return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i; }

// Calls out_of_range(i, token) for tokens that are not below `vocabulary`. Writes the last `label_count` tokens.
template <class OutOfRange>
void check_tokens(const void* tokens, DType dtype, std::int64_t count, std::int64_t vocabulary,
                  const OutOfRange& out_of_range, std::int64_t label_count, std::int32_t* labels) {
  const auto check = [&](const auto* t) {
    for (std::int64_t i = 0; i < count; ++i)
      if (const auto token = std::uint32_t(t[i]); std::int64_t(token) >= vocabulary) out_of_range(i, token);
    for (std::int64_t i = count - label_count; i < count; ++i) *labels++ = std::int32_t(t[i]);
  };
  if (dtype == DType::u8)
    check(static_cast<const std::uint8_t*>(tokens));
  else if (dtype == DType::u16)
    check(static_cast<const std::uint16_t*>(tokens));
  else
    check(static_cast<const std::uint32_t*>(tokens));  // also for int32: a negative token becomes a large one
}

class ViewSource : public Source {
 public:
  ViewSource(const ShardIndex& index, bool mapped, std::string why, std::size_t cache_bytes)
      : index_(index),
        mapped_(mapped),
        why_(std::move(why)),
        x_bytes_(index.sample_bytes()),
        y_bytes_(y_batch_bytes(index)),
        slabs_(index_, mapped, cache_bytes) {}

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::size_t s = shard_of(index_, ids[i]);
      char *const to_x = static_cast<char*>(x) + i * x_bytes_, *const to_y = static_cast<char*>(y) + i * y_bytes_;
      if (index_.view.sample == SampleKind::patch)
        read_patch(s, ids[i], to_x, to_y);
      else if (index_.view.sample == SampleKind::tokens)
        read_window(s, ids[i], to_x, to_y);
      else
        read_pair(s, ids[i], to_x, reinterpret_cast<float*>(to_y));
    }
    if (index_.x.big_endian && index_.view.sample != SampleKind::tokens)
      swap_bytes(x, ids.size() * std::size_t(index_.sample.count()), size_of(index_.x.dtype));
  }

  std::string describe() const override {
    return fmt::format("{}: {} from {}, {}, {}{}", mapped_ ? "mmap" : "direct", index_.view.str(),
                       index_.shards[0].array.str(), mapped_ ? "contiguous data" : describe_storage(index_),
                       shard_count_text(index_), why_);
  }
  DecodeStats decoded() const override { return slabs_.decoded(); }
  void reopen(std::size_t s) override { slabs_.reopen(s); }

 private:
  void read_patch(std::size_t s, std::int64_t id, char* x, char* y) {
    const Shard& shard = index_.shards[s];
    const Pixel& pixel = (*shard.pixels)[std::size_t(id - shard.first)];
    std::memcpy(y, &pixel.label, sizeof pixel.label);
    const int rows = index_.x.channels_first ? 1 : 0, columns = rows + 1;
    const Hyperslab slab = patch_hyperslab(index_, shard, id);
    const auto& [first, extent] = slab;
    if (extent[rows] == index_.view.patch && extent[columns] == index_.view.patch) return slabs_.read(s, slab, x, id);
    const std::int64_t half = index_.view.patch / 2;
    const std::int64_t corner[2] = {std::int64_t(pixel.row) - half, std::int64_t(pixel.column) - half};
    thread_local std::vector<char> inside;
    inside.resize(std::size_t(extent.count()) * size_of(index_.x.dtype));
    slabs_.read(s, slab, inside.data(), id);
    // The patch is copied as an array (planes, height, width, bytes of a pixel).
    const std::int64_t planes = index_.x.channels_first ? extent[0] : 1, side = index_.view.patch;
    const std::size_t bytes = size_of(index_.x.dtype) * std::size_t(index_.x.channels_first ? 1 : extent[2]);
    for (std::int64_t p = 0; p < planes; ++p)
      for (std::int64_t r = 0; r < side; ++r) {
        const std::int64_t row = mirrored(corner[0] + r, shard.array[rows]) - first[rows];
        const char* line = inside.data() + std::size_t((p * extent[rows] + row) * extent[columns]) * bytes;
        for (std::int64_t c = 0; c < side; ++c, x += bytes)
          std::memcpy(x, line + std::size_t(mirrored(corner[1] + c, shard.array[columns]) - first[columns]) * bytes,
                      bytes);
      }
  }

  void read_pair(std::size_t s, std::int64_t id, char* x, float* y) {
    const Shard& shard = index_.shards[s];
    const std::int64_t row = id - shard.first;
    slabs_.read(s, row_hyperslab(shard, row), x, id);
    thread_local std::vector<char> stored;
    thread_local std::vector<float> values;
    stored.resize(x_bytes_);
    values.resize(std::size_t(index_.sample.count()));
    slabs_.read(s, row_hyperslab(shard, row + index_.view.lead), stored.data(), id);
    if (index_.x.big_endian) swap_bytes(stored.data(), values.size(), size_of(index_.x.dtype));
    targets_to_float(stored.data(), index_.x.dtype, index_.sample.count(), values.data());
    const std::size_t channels = std::size_t(index_.sample[-1]), pixels = values.size() / channels;
    const bool normalize = index_.values.normalize_targets && !index_.values.mean.empty();
    for (std::size_t p = 0; p < pixels; ++p)
      for (std::size_t c = 0; c < channels; ++c) {
        const double raw = values[index_.x.channels_first ? c * pixels + p : p * channels + c];
        const auto value = float(apply(index_.values.transform, raw * index_.values.scale + index_.values.offset));
        *y++ = normalize ? (value - float(index_.values.mean[c])) / float(index_.values.std[c]) : value;
      }
  }

  void read_window(std::size_t s, std::int64_t id, char* x, char* y) {
    const Shard& shard = index_.shards[s];
    const std::int64_t window = index_.view.window;
    const Hyperslab slab = window_hyperslab(index_, shard, id);
    thread_local std::vector<char> stored;
    stored.resize(std::size_t(window + 1) * size_of(index_.x.dtype));
    slabs_.read(s, slab, stored.data(), id);
    if (index_.x.big_endian) swap_bytes(stored.data(), std::size_t(window + 1), size_of(index_.x.dtype));
    const auto out_of_range = [&](std::int64_t at, std::uint32_t token) {
      fail(Exit::data,
           "token {} of {} ({}position {}) is not below the vocabulary of {}. raise data.vocabulary, or check how the "
           "file was written",
           token, shard.path, shard.array.rank > 1 ? fmt::format("row {}, ", slab.first[0]) : "", slab.first[-1] + at,
           index_.classes.count);
    };
    check_tokens(stored.data(), index_.x.dtype, window + 1, index_.classes.count, out_of_range, index_.y.target.count(),
                 reinterpret_cast<std::int32_t*>(y));
    std::memcpy(x, stored.data(), x_bytes_);
  }

  const ShardIndex index_;
  const bool mapped_;
  const std::string why_;
  const std::size_t x_bytes_, y_bytes_;
  HyperslabReader slabs_;
};

}  // namespace

std::unique_ptr<Source> make_view_source(const ShardIndex& index, Reader reader, const ChunkOptions& chunks) {
  const char* const what = index.view.sample == SampleKind::patch  ? "patch"
                           : index.view.sample == SampleKind::pair ? "pair"
                                                                   : "tokens";
  if (reader == Reader::uring || uses_mpi_io(reader))
    fail(Exit::config,
         "data.reader = {} reads whole rows, but data.sample = {} extracts samples from an array. use auto, direct or "
         "mmap",
         name_of(reader), what);
  ReaderFacts facts = reader_facts(index);
  if (!facts.hdf5_only_reason.empty())
    fail(Exit::data,
         "data.sample = {} reads without the HDF5 library, but only the library can read {}. write the file again, "
         "contiguous or in chunks with gzip",
         what, facts.hdf5_only_reason);
  facts.bytes = 0;
  for (const Shard& s : index.shards) facts.bytes += std::uint64_t(s.array.count()) * size_of(index.x.dtype);
  std::string why;
  if (reader == Reader::automatic) {
    const ReaderChoice choice = choose_reader(facts);
    reader = choice.reader == Reader::mmap ? Reader::mmap : Reader::direct;
    why =
        fmt::format(" (auto: {}{})", choice.why, choice.reader == Reader::uring ? ", and uring reads whole rows" : "");
  } else if (const std::string problem = unsupported_reason(reader, facts, index); !problem.empty()) {
    fail(Exit::config, "{}", problem);
  }
  return std::make_unique<ViewSource>(index, reader == Reader::mmap, why, chunks.cache_bytes);
}

}  // namespace millrace
