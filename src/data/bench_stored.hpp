// Bare loops over what is stored of a data set: reading and decoding without an engine. Private to the data room.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "async_reads.hpp"
#include "encoded_rows.hpp"
#include "image_views.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/sampler.hpp"
#include "millrace/device/device.hpp"
#include "shard_files.hpp"

namespace millrace {

// One thread's part of a stage: each call does a piece of it and returns how many samples that was worth.
using Piece = std::function<double()>;

// The sampler's order, a few samples at each call, of any thread; epoch after epoch.
class Order {
 public:
  Order(const Sampler& sampler, std::int64_t rows, std::int64_t unit) : sampler_(sampler), rows_(rows), unit_(unit) {}
  std::int64_t next(std::vector<std::int64_t>& ids) {
    const std::int64_t units = (rows_ + unit_ - 1) / unit_, number = next_++;
    const MicroBatch item{number / units, 0, number % units * unit_, std::min(unit_, rows_ - number % units * unit_)};
    ids.resize(std::size_t(item.rows));
    sampler_.ids(item, ids.data());
    return item.epoch;
  }
  std::int64_t unit() const { return unit_; }

 private:
  const Sampler& sampler_;
  const std::int64_t rows_, unit_;
  std::atomic<std::int64_t> next_{0};
};

// Memory as the loader's: page-aligned, of one thread.
inline std::shared_ptr<Buffer> memory(Device& device, std::size_t bytes) {
  return std::make_shared<Buffer>(device, MemoryKind::pinned, bytes);
}

// What is stored of a set, and how it is read and decoded, without an engine.
class Stored {
 public:
  Stored(Device& device, const ShardIndex& index, bool direct_io)
      : device_(device), index_(index), direct_(direct_io), files_(index, direct_io ? O_DIRECT : 0), plain_(index) {
    for (const Shard& s : index_.shards) known_ = known_ && s.hdf5_only.empty();
    if (!known_) return;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(index_.rows, 256); ++i)
      keep(i * index_.rows / 256 % index_.rows);
    block_ = direct_ ? std::max<std::uint64_t>(512, direct_alignment(files_.open(0)).offset) : 1;
  }
  bool known() const { return known_; }
  bool decodes() const { return index_.encoded() || index_.shards.front().x_chunks; }
  double bytes() const { return kept_bytes_ / double(std::max<std::size_t>(1, kept_.size())); }  // mean, of a sample

  // share: the part of what holds a sample that is read and decoded for it: chunks hold several.
  Piece reader(Order& order, double share) {
    auto space = memory(device_, most_ + 2 * block_);
    return [this, &order, share, space, ids = std::vector<std::int64_t>()]() mutable {
      order.next(ids);
      for (const std::int64_t id : ids) {
        const std::size_t s = shard_of(index_, id);
        for_parts(s, id - index_.shards[s].first, [&](std::uint64_t offset, std::size_t bytes) {
          const std::uint64_t from = offset / block_ * block_;
          const std::size_t whole = std::size_t((offset + bytes - from + block_ - 1) / block_ * block_);
          if (::pread(files_.open(s), space->as<char>(), std::min(whole, space->bytes()), off_t(from)) <= 0)
            fail(Exit::data, "cannot read ", index_.shards[s].path);
        });
      }
      return double(ids.size()) / share;
    };
  }

  Piece decoder(double share) {
    struct State {
      std::size_t next = 0;
      io::Bytes raw, out;
      Image image;
      std::vector<std::uint8_t> pixels;
    };
    auto state = std::make_shared<State>();
    state->next = kept_.size() / 2 * (starts_++ % 2);
    return [this, share, state] {
      const Kept& k = kept_[state->next++ % kept_.size()];
      if (index_.encoded()) {
        state->pixels.resize(index_.sample_bytes());
        decode_view(
            k.parts[0], "a sample of the bench",
            [&](std::int64_t height, std::int64_t width) {
              return index_.decode.zoom > 0 ? random_view(index_.decode, state->next, k.id, fit_, height, width)
                                            : centre_view(fit_, height, width, "a sample of the bench");
            },
            Decoding::needed, state->image, state->pixels.data());
        return 1.0;
      }
      const io::ChunkedLayout& layout = *index_.shards[k.shard].x_chunks;
      for (std::size_t side = 0; side < k.parts.size(); ++side) {
        if (k.parts[side].empty()) continue;  // never written
        state->raw.discard(k.parts[side].size());
        std::memcpy(state->raw.data(), k.parts[side].data(), k.parts[side].size());
        io::decode_chunk(layout, k.first_chunk + side, state->raw, state->out);
      }
      return 1.0 / share;
    };
  }

  // Chunks side by side that hold the same rows.
  std::size_t sides() const {
    std::size_t sides = 1;
    if (const auto& chunks = index_.shards.front().x_chunks)
      for (std::size_t d = 1; d < chunks->shape.size(); ++d) sides *= std::size_t(chunks->grid(d));
    return sides;
  }

 private:
  struct Kept {
    std::int64_t id;
    std::size_t shard, first_chunk;
    std::vector<std::string> parts;
  };

  std::size_t first_chunk(std::size_t s, std::int64_t row) const {
    return std::size_t(row / index_.shards[s].x_chunks->chunk[0]) * sides();
  }
  template <class F>
  void for_parts(std::size_t s, std::int64_t row, F f) {
    const Shard& shard = index_.shards[s];
    if (shard.x_encoded) {
      const EncodedRow e = encoded_row(plain_.open(s), shard, shard.first + row);
      if (e.bytes > 0) f(e.offset, e.bytes);
    } else if (shard.x_chunks) {
      for (std::size_t side = 0; side < sides(); ++side) {
        const io::ChunkInfo& info = shard.x_chunks->chunks[first_chunk(s, row) + side];
        if (info.bytes > 0) f(info.offset, info.bytes);
      }
    } else {
      f(shard.x_offset + std::uint64_t(row) * index_.sample_bytes(), index_.sample_bytes());
    }
  }

  void keep(std::int64_t id) {
    const std::size_t s = shard_of(index_, id);
    const Shard& shard = index_.shards[s];
    Kept k{id, s, shard.x_chunks ? first_chunk(s, id - shard.first) : 0, {}};
    if (index_.encoded()) read_encoded(plain_.open(s), shard, id, k.parts.emplace_back());
    for_parts(s, id - shard.first, [&](std::uint64_t offset, std::size_t bytes) {
      kept_bytes_ += double(bytes), most_ = std::max(most_, bytes);
      if (!shard.x_chunks || kept_bytes_ > double(256 << 20)) return;
      read_fully(plain_.open(s), shard, offset, k.parts.emplace_back(bytes, '\0').data(), bytes, id, bytes);
    });
    kept_.push_back(std::move(k));
  }

  Device& device_;
  const ShardIndex& index_;
  const bool direct_;
  ShardFiles files_, plain_;
  bool known_ = true;
  std::uint64_t block_ = 1;
  std::size_t most_ = 0, starts_ = 0;
  double kept_bytes_ = 0;
  std::vector<Kept> kept_;
  const Fit fit_ = index_.encoded() ? fit_of(index_.decode.resize, index_.decode.crop, "data.resize", "data.crop",
                                             index_.sample[0], index_.sample[1])
                                    : Fit{};
};

}  // namespace millrace
