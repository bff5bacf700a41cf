// Baseline loops over the stored bytes of a data set: reading and decoding without an engine. Internal to bench/.
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

#include "bench/stored_pieces.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/decode/image_crops.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/data/read/async_reads.hpp"
#include "millrace/data/read/encoded_rows.hpp"
#include "millrace/data/read/shard_files.hpp"
#include "millrace/device/device.hpp"

namespace millrace {

// The work of one thread in a stage. Each call does a piece of it and returns the equivalent number of samples.
using StageWork = std::function<double()>;

// Yields the samples in the order of a sampler, epoch after epoch, `unit` at each call. Thread-safe.
class SampleOrder {
 public:
  SampleOrder(const Sampler& sampler, std::int64_t rows, std::int64_t unit)
      : sampler_(sampler), rows_(rows), unit_(unit) {}
  // Replaces `ids` by the next ids and returns their epoch.
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

// Page-aligned memory, like that of the loader.
inline std::shared_ptr<Buffer> memory(Device& device, std::size_t bytes) {
  return std::make_shared<Buffer>(device, MemoryKind::pinned, bytes);
}

// Reads and decodes the stored bytes of a data set without an engine. Keeps up to 256 samples in memory for decoding.
class StoredSamples {
 public:
  StoredSamples(Device& device, const ShardIndex& index, bool direct_io)
      : device_(device), index_(index), direct_(direct_io), files_(index, direct_io ? O_DIRECT : 0), plain_(index) {
    for (const Shard& s : index_.shards) known_ = known_ && s.hdf5_only_reason.empty();
    if (!known_) return;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(index_.rows, 256); ++i)
      keep(i * index_.rows / 256 % index_.rows);
    block_ = direct_ ? std::max<std::uint64_t>(512, direct_alignment(files_.open(0)).offset) : 1;
  }
  bool known() const { return known_; }  // false: only the HDF5 library can read the data
  bool decodes() const { return index_.encoded() || index_.shards.front().x_chunks; }
  // Stored bytes of a sample, on average.
  double bytes() const { return kept_bytes_ / double(std::max<std::size_t>(1, kept_.size())); }

  // share: a chunk holds several samples, so only this fraction of a sample's chunks is read and decoded for it.
  StageWork reader(SampleOrder& order, double share) {
    auto space = memory(device_, max_piece_bytes_ + 2 * block_);
    return [this, &order, share, space, ids = std::vector<std::int64_t>()]() mutable {
      order.next(ids);
      for (const std::int64_t id : ids) {
        const std::size_t s = shard_of(index_, id);
        for_each_piece(index_, plain_, s, id, [&](const StoredPiece& piece) {
          if (piece.bytes == 0) return;
          const std::uint64_t from = piece.offset / block_ * block_;
          const std::size_t bytes = std::size_t((piece.offset + piece.bytes - from + block_ - 1) / block_ * block_);
          if (::pread(files_.open(s), space->as<char>(), std::min(bytes, space->bytes()), off_t(from)) <= 0)
            fail(Exit::data, "cannot read {}", index_.shards[s].path);
        });
      }
      return double(ids.size()) / share;
    };
  }

  StageWork decoder(double share) {
    struct State {
      std::size_t next = 0;
      io::ByteBuffer raw, out;
      Image image;
      std::vector<std::uint8_t> pixels;
    };
    auto state = std::make_shared<State>();
    state->next = kept_.size() / 2 * (starts_++ % 2);
    return [this, share, state] {
      const Kept& k = kept_[state->next++ % kept_.size()];
      if (index_.encoded()) {
        state->pixels.resize(index_.sample_bytes());
        decode_and_resample(
            k.parts[0], "a sample of the benchmark",
            [&](std::int64_t height, std::int64_t width) {
              return index_.decode.min_area > 0
                         ? random_resized_crop_grid(index_.decode, state->next, k.id, resize_crop_, height, width)
                         : center_crop_grid(resize_crop_, height, width, "a sample of the benchmark");
            },
            DecodeExtent::needed, state->image, state->pixels.data());
        return 1.0;
      }
      for (std::size_t p = 0; p < k.parts.size(); ++p) {
        if (k.parts[p].empty()) continue;  // never written, or plain values
        state->raw.resize_uninitialized(k.parts[p].size());
        std::memcpy(state->raw.data(), k.parts[p].data(), k.parts[p].size());
        io::decode_chunk(*k.pieces[p].chunks, k.pieces[p].chunk, state->raw, state->out);
      }
      return 1.0 / share;
    };
  }

  // How many chunks contain a part of a sample, on average.
  double chunks() const { return chunks_ / double(std::max<std::size_t>(1, kept_.size())); }

 private:
  struct Kept {
    std::int64_t id;
    std::vector<StoredPiece> pieces;
    std::vector<std::string> parts;  // the bytes of each piece that needs decoding
  };

  void keep(std::int64_t id) {
    const std::size_t s = shard_of(index_, id);
    Kept k{id, {}, {}};
    if (index_.encoded()) read_encoded(plain_.open(s), index_.shards[s], id, k.parts.emplace_back());
    for_each_piece(index_, plain_, s, id, [&](const StoredPiece& piece) {
      kept_bytes_ += double(piece.bytes);
      max_piece_bytes_ = std::max(max_piece_bytes_, piece.bytes);
      chunks_ += piece.chunks ? 1 : 0;
      if (index_.encoded()) return;
      k.pieces.push_back(piece);
      std::string& part = k.parts.emplace_back();
      if (!piece.chunks || piece.bytes == 0 || kept_bytes_ > double(256 << 20)) return;
      part.resize(piece.bytes);
      read_fully(plain_.open(s), index_.shards[s], {piece.offset, piece.bytes, id, piece.bytes}, part.data());
    });
    kept_.push_back(std::move(k));
  }

  Device& device_;
  const ShardIndex& index_;
  const bool direct_;
  ShardFiles files_, plain_;
  bool known_ = true;
  std::uint64_t block_ = 1;
  std::size_t max_piece_bytes_ = 0, starts_ = 0;
  double kept_bytes_ = 0, chunks_ = 0;
  std::vector<Kept> kept_;
  const ResizeCrop resize_crop_ = index_.encoded()
                                      ? resize_crop_for(index_.decode.resize, index_.decode.crop, "data.resize",
                                                        "data.crop", index_.sample[0], index_.sample[1])
                                      : ResizeCrop{};
};

}  // namespace millrace
