// Decoding applies the inverse filters from the last to the first. The same codecs are registered with the HDF5
// library.
#include <fmt/core.h>
#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "io/codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

const Codec* const all_codecs[] = {&gzip_codec,       &shuffle_codec, &fletcher32_codec, &szip_codec, &lzf_codec,
                                   &bitshuffle_codec, &lz4_codec,     &zstd_codec,       &blosc_codec};

// The input size of each filter on writing; 0 where it is unknown, which is so after a compression.
std::vector<std::size_t> sizes_before(const ChunkedLayout& layout, std::uint32_t mask) {
  std::vector<std::size_t> sizes;
  std::size_t bytes = layout.chunk_bytes();
  for (std::size_t f = 0; f < layout.filters.size(); ++f) {
    sizes.push_back(bytes);
    const int id = layout.filters[f].id;
    if (mask >> f & 1 || id == H5Z_FILTER_SHUFFLE) continue;
    bytes = bytes > 0 && id == H5Z_FILTER_FLETCHER32 ? bytes + 4 : 0;
  }
  return sizes;
}

bool reaches_past_end(const ChunkedLayout& layout, std::size_t number) {
  for (std::size_t d = layout.shape.size(); d-- > 0;) {
    const auto along = std::size_t(layout.chunks_along(d));
    if (std::int64_t(number % along + 1) * layout.chunk[d] > layout.shape[d]) return true;
    number /= along;
  }
  return false;
}

// Limits the size of two buffers during its lifetime.
struct SizeLimit {
  ByteBuffer &one, &two;
  SizeLimit(ByteBuffer& a, ByteBuffer& b, std::size_t max_bytes) : one(a), two(b) { set(max_bytes); }
  SizeLimit(const SizeLimit&) = delete;
  ~SizeLimit() { set(SIZE_MAX); }
  void set(std::size_t bytes) const {
    one.set_max_size(bytes);
    two.set_max_size(bytes);
  }
};

std::vector<int> registered;

// A codec as a filter function of HDF5. Memory belongs to HDF5's allocator; the result 0 means failure.
template <const Codec* codec>
std::size_t hdf5_filter(unsigned flags, std::size_t value_count, const unsigned* values, std::size_t bytes,
                        std::size_t* buffer_bytes, void** buffer) {
  const bool encode = !(flags & H5Z_FLAG_REVERSE);
  if (encode && !codec->encode) return 0;
  try {
    ByteBuffer in, out;
    in.resize_uninitialized(bytes);
    std::memcpy(in.data(), *buffer, bytes);
    if (encode)
      codec->encode(codec == &zstd_codec && value_count > 0 ? int(values[0]) : 0, in.data(), bytes, out);
    else
      codec->decode({codec->id, "", {values, values + value_count}}, in, out, 0);
    void* mine = H5allocate_memory(std::max<std::size_t>(1, out.size()), false);
    if (!mine) return 0;
    std::memcpy(mine, out.data(), out.size());
    H5free_memory(*buffer);
    *buffer = mine;
    *buffer_bytes = out.size();
    return out.size();
  } catch (const std::exception& e) {
    H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_PLINE, H5E_CANTFILTER, "%s", e.what());
    return 0;
  }
}

template <const Codec* codec>
void register_one(const char* name) {
  if (codec->package || H5Zfilter_avail(codec->id) > 0) return;
  const H5Z_class2_t filter{H5Z_CLASS_T_VERS, codec->id, codec->encode ? 1u : 0u, 1, name,
                            nullptr,          nullptr,   hdf5_filter<codec>};
  if (H5Zregister(&filter) >= 0) registered.push_back(codec->id);
}

}  // namespace

void ByteBuffer::check(std::size_t bytes) const {
  if (bytes > max_size_) fail(Exit::data, "damaged (it decodes to more than {} bytes)", max_size_);
}

void ByteBuffer::grow(std::size_t min_bytes) {
  check(min_bytes);
  resize(std::max(min_bytes, std::min(2 * size_, max_size_)));
}

void ByteBuffer::resize(std::size_t bytes) {
  check(bytes);
  if (bytes > capacity_) {
    std::unique_ptr<char[]> more(new char[bytes]);
    if (size_ > 0) std::memcpy(more.get(), data_.get(), size_);
    data_ = std::move(more);
    capacity_ = bytes;
  }
  size_ = bytes;
}

void ByteBuffer::resize_uninitialized(std::size_t bytes) {
  check(bytes);
  if (bytes > capacity_) {
    data_.reset(new char[bytes]);
    capacity_ = bytes;
  }
  size_ = bytes;
}

std::size_t ChunkedLayout::chunk_bytes() const {
  std::size_t bytes = element_bytes;
  for (const auto extent : chunk) bytes *= std::size_t(extent);
  return bytes;
}

const Codec* find_codec(int id) {
  for (const Codec* codec : all_codecs)
    if (codec->id == id) return codec;
  return nullptr;
}

const char* missing_package(const FilterSpec& filter) {
  const Codec* codec = find_codec(filter.id);
  if (!codec || codec->package) return codec ? codec->package : nullptr;
  const unsigned inside = codec == &bitshuffle_codec && filter.values.size() > 4 ? filter.values[4] : 0;
  return inside == 2 ? lz4_codec.package : inside == 3 ? zstd_codec.package : nullptr;
}

std::string unsupported_filter_reason(const std::vector<FilterSpec>& filters) {
  for (const FilterSpec& filter : filters) {
    const Codec* codec = find_codec(filter.id);
    if (!codec) return fmt::format("only the HDF5 library can decode {}", filter.name);
    if (const char* package = missing_package(filter))
      return fmt::format("this build cannot decode this {}: install {} and build again", filter.name, package);
  }
  return "";
}

void decode_chunk(const ChunkedLayout& layout, std::size_t number, ByteBuffer& raw, ByteBuffer& out) {
  std::uint32_t mask = layout.chunks[number].filter_mask;
  if (layout.partial_chunks_unfiltered && reaches_past_end(layout, number)) mask = ~0u;
  const auto sizes = sizes_before(layout, mask);
  // No filter doubles the size of its input. Without a limit, damaged data behind several filters could ask for
  // gigabytes.
  const SizeLimit limit(raw, out, 2 * std::max(layout.chunk_bytes(), raw.size()) + 65536);
  for (std::size_t f = layout.filters.size(); f-- > 0;) {
    if (mask >> f & 1) continue;
    const FilterSpec& filter = layout.filters[f];
    const Codec* codec = find_codec(filter.id);
    MR_CHECK(codec && !codec->package, "{}", filter.name);
    codec->decode(filter, raw, out, sizes[f]);
    raw.swap(out);
  }
  if (raw.size() != layout.chunk_bytes())
    fail(Exit::data, "damaged (it decodes to {} bytes instead of {})", raw.size(), layout.chunk_bytes());
  raw.swap(out);
}

void fill_chunk(const ChunkedLayout& layout, ByteBuffer& out) {
  const std::size_t bytes = layout.chunk_bytes();
  out.resize_uninitialized(bytes);
  for (std::size_t at = 0; at < bytes; at += layout.fill.size())
    std::memcpy(out.data() + at, layout.fill.data(), layout.fill.size());
}

Encoder make_encoder(const std::string& codec, std::optional<int> level) {
  struct Kind {
    const char* name;
    const Codec& codec;
    int min_level, max_level, default_level;
  };
  for (const Kind& kind : {Kind{"zstd", zstd_codec, 1, 19, 3}, Kind{"lz4", lz4_codec, 0, 12, 0}}) {
    if (codec != kind.name) continue;
    if (kind.codec.package)
      fail(Exit::config, "this build has no {}. install {} and build again", codec, kind.codec.package);
    const int chosen = level.value_or(kind.default_level);
    if (chosen < kind.min_level || chosen > kind.max_level)
      fail(Exit::config, "level {} of {} is not from {} to {}", chosen, codec, kind.min_level, kind.max_level);
    // The file keeps the level of Zstandard as a filter parameter, for programs that add to it. LZ4's filter has none.
    return {{kind.codec.id, codec,
             chosen > 0 && kind.codec.id == zstd_codec.id ? std::vector{unsigned(chosen)} : std::vector<unsigned>{}},
            chosen};
  }
  fail(Exit::config, "unknown codec '{}'. choose none, zstd or lz4", codec);
}

void encode_chunk(const Encoder& encoder, const char* in, std::size_t bytes, ByteBuffer& out) {
  const Codec* codec = find_codec(encoder.filter.id);
  MR_CHECK(codec && codec->encode, "{}", encoder.filter.name);
  codec->encode(encoder.level, in, bytes, out);
}

void register_codecs() {
  register_one<&lzf_codec>("LZF");
  register_one<&bitshuffle_codec>("bitshuffle");
  register_one<&lz4_codec>("LZ4");
  register_one<&zstd_codec>("Zstandard");
  register_one<&blosc_codec>("Blosc");
  H5Eclear2(H5E_DEFAULT);
}

bool is_registered(int id) { return std::find(registered.begin(), registered.end(), id) != registered.end(); }

}  // namespace millrace::io
