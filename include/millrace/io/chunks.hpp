// Chunked data sets that are read without the HDF5 library: the addresses and filters of the chunks, and functions that
// decode or encode a chunk. Needs no lock: any number of threads may decode at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace::io {

// A growing buffer that does not initialize its memory: decoding overwrites it.
class ByteBuffer {
 public:
  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  void resize(std::size_t bytes);                // keeps the contents
  void resize_uninitialized(std::size_t bytes);  // the contents are undefined
  void grow(std::size_t min_bytes);  // to twice the size if max_size() allows, at least min_bytes; keeps the contents
  // Larger sizes are an Error(data) from now on.
  void set_max_size(std::size_t bytes) { max_size_ = bytes; }
  std::size_t max_size() const { return max_size_; }
  void swap(ByteBuffer& other) noexcept { std::swap(*this, other); }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0, capacity_ = 0, max_size_ = SIZE_MAX;
  void check(std::size_t bytes) const;
};

struct ChunkInfo {
  std::uint64_t offset = 0, bytes = 0;  // address in the file, stored size; 0 bytes: the chunk was never written
  std::uint32_t filter_mask = 0;        // bit i: filter i was not applied
};

// The chunks of a data set: a vector, or a view of memory that the ranks of a node share.
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
  // Only for a list that is not a view.
  ChunkInfo& operator[](std::size_t i) { return own_[i]; }
  void resize(std::size_t count) { own_.resize(count); }

 private:
  std::vector<ChunkInfo> own_;
  std::shared_ptr<const char> memory_;
  const ChunkInfo* there_ = nullptr;
  std::size_t count_ = 0;
};

struct FilterSpec {
  int id = 0;                    // number registered with HDF5: 1 gzip, 2 shuffle, 32000 LZF, ...
  std::string name;              // "gzip", "shuffle", ...
  std::vector<unsigned> values;  // parameters, as stored with the data set
};

struct ChunkedLayout {
  std::vector<std::int64_t> shape, chunk;  // in elements
  std::size_t element_bytes = 0;
  std::vector<FilterSpec> filters;         // in the order of writing
  bool partial_chunks_unfiltered = false;  // chunks that reach past the end are stored without filters
  ChunkList chunks;                        // in row-major order of the grid of chunks
  std::string fill;                        // the value of unwritten elements, in the file's byte order

  std::int64_t chunks_along(std::size_t dimension) const {
    return (shape[dimension] + chunk[dimension] - 1) / chunk[dimension];
  }
  std::size_t chunk_bytes() const;  // of a decoded chunk; those at the edges have the full size too
};

// Why decode_chunk cannot decode these filters ("only the HDF5 library can decode nbit", "... install liblz4-dev and
// build again"); "" if it can.
std::string unsupported_filter_reason(const std::vector<FilterSpec>&);

// Decodes chunk `number`: `raw` holds it as stored and loses its contents; `out` gets chunk_bytes() in the file's byte
// order. For chunks that were never written, use fill_chunk. Error(data) without the file's name: damaged data or a
// wrong checksum.
void decode_chunk(const ChunkedLayout&, std::size_t number, ByteBuffer& raw, ByteBuffer& out);
void fill_chunk(const ChunkedLayout&, ByteBuffer& out);

// The filter that pack compresses chunks with.
struct Encoder {
  FilterSpec filter;
  int level = 0;
};
// codec: "zstd" or "lz4". level: 1 to 19 for zstd (default 3); for lz4 0 (fast, default) or 1 to 12 (smaller files,
// slower to encode, equally fast to decode). Error(config): unknown name or level, or the codec is not in this build.
Encoder make_encoder(const std::string& codec, std::optional<int> level);
// Encodes a whole chunk to its stored form. Any number of threads may call it at once.
void encode_chunk(const Encoder&, const char* in, std::size_t bytes, ByteBuffer& out);

}  // namespace millrace::io
