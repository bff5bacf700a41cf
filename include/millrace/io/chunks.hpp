// Chunked data sets read without HDF5: where the chunks lie, how they were filtered, and the decoding of one. What is
// here touches no HDF5 and no lock: any number of threads may decode at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace::io {

// Memory that grows and is never filled: decoding overwrites it.
class ByteBuffer {
 public:
  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  void resize(std::size_t bytes);                // what was there is kept
  void resize_uninitialized(std::size_t bytes);  // a size, whatever it holds
  void grow(std::size_t least);                  // larger, twice as large where `most` allows; what was there is kept
  // Sizes above are Error(data) from now on.
  void set_max_size(std::size_t most) { max_size_ = most; }
  std::size_t max_size() const { return max_size_; }
  void swap(ByteBuffer& other) noexcept { std::swap(*this, other); }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0, capacity_ = 0, max_size_ = SIZE_MAX;
  void check(std::size_t bytes) const;
};

struct ChunkInfo {
  std::uint64_t offset = 0, bytes = 0;  // address in the file, stored size; 0 bytes: never written (fill value)
  std::uint32_t filter_mask = 0;        // bit i: filter i was left out
};

// The chunks of a data set: a list of its own, or one that lies in memory of somebody's, as the ranks of a host share
// it.
class ChunkList {
 public:
  ChunkList() = default;
  ChunkList(std::vector<ChunkInfo> own) : own_(std::move(own)) {}
  ChunkList(std::shared_ptr<const char> memory, std::size_t offset, std::size_t count)
      : memory_(std::move(memory)), there_(reinterpret_cast<const ChunkInfo*>(memory_.get() + offset)), count_(count) {}
  std::size_t size() const { return memory_ ? count_ : own_.size(); }
  const ChunkInfo* begin() const { return memory_ ? there_ : own_.data(); }
  const ChunkInfo* end() const { return begin() + size(); }
  const ChunkInfo& operator[](std::size_t i) const { return begin()[i]; }
  const ChunkInfo& at(std::size_t i) const { return i < size() ? begin()[i] : own_.at(own_.size()); }
  // Of its own list.
  ChunkInfo& operator[](std::size_t i) { return own_[i]; }
  void resize(std::size_t count) { own_.resize(count); }

 private:
  std::vector<ChunkInfo> own_;
  std::shared_ptr<const char> memory_;
  const ChunkInfo* there_ = nullptr;
  std::size_t count_ = 0;
};

struct FilterSpec {
  int id = 0;                    // HDF5's registered number: 1 gzip, 2 shuffle, 32000 LZF, ...
  std::string name;              // "gzip", "shuffle", ...
  std::vector<unsigned> values;  // its parameters, as stored with the data set
};

struct ChunkedLayout {
  std::vector<std::int64_t> shape, chunk;  // in elements
  std::size_t element_bytes = 0;
  std::vector<FilterSpec> filters;         // in the order in which writing applied them
  bool partial_chunks_unfiltered = false;  // chunks that hang over an edge are stored as they are
  ChunkList chunks;                        // row-major over the grid
  std::string fill;                        // an element of chunks never written, in the file's byte order

  std::int64_t chunks_along(std::size_t dimension) const {  // chunks along it
    return (shape[dimension] + chunk[dimension] - 1) / chunk[dimension];
  }
  std::size_t chunk_bytes() const;  // of one decoded chunk, edges included
};

// Why decode_chunk cannot decode these filters ("nbit has no decoder of its own", "install liblz4-dev and build
// again"), or "".
std::string unsupported_filter_reason(const std::vector<FilterSpec>&);

// `raw` holds chunk `number` as stored, and is used up; `out` gets chunk_bytes() in the file's byte order. Not called
// for chunks never written: fill_chunk. Error(data) without the file's name: damaged, or a checksum that differs.
void decode_chunk(const ChunkedLayout&, std::size_t number, ByteBuffer& raw, ByteBuffer& out);
void fill_chunk(const ChunkedLayout&, ByteBuffer& out);

// How chunks are stored: one filter.
struct Encoder {
  FilterSpec filter;
  int level = 0;
};
// "zstd" or "lz4". level: zstd 1 to 19, usually 3; lz4 0 (fast, usual), or 1 to 12 (smaller, slower, as quick to
// decode). Error(config): another name or level, or not in this build.
Encoder make_encoder(const std::string& codec, std::optional<int> level);
// A whole chunk -> as it is stored. Any number of threads at once.
void encode_chunk(const Encoder&, const char* in, std::size_t bytes, ByteBuffer& out);

}  // namespace millrace::io
