// Imports arrays with a small header: MNIST idx, NumPy .npy, and CIFAR-10's binary records.
#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "data/decode/convert_values.hpp"
#include "data/pack/importers.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace {

// The size of an array in bytes; none if an extent is negative or the size overflows.
std::optional<std::size_t> bytes_of(const std::vector<std::int64_t>& shape, DType dtype) {
  auto bytes = std::int64_t(size_of(dtype));
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return std::size_t(bytes);
}

class ArrayFile : public RowFile {
 public:
  ArrayFile(std::string path, std::string content, std::size_t at, DType dtype, const std::vector<std::int64_t>& shape)
      : path_(std::move(path)), content_(std::move(content)), at_(at), dtype_(dtype), rows_(shape[0]) {
    for (std::size_t a = 1; a < shape.size(); ++a) row_.dims[std::size_t(row_.rank++)] = shape[a];
    const auto needed = bytes_of(shape, dtype);
    if (!needed) fail(Exit::data, "{} has a damaged header ({} a row). fetch it again", path_, row_.str());
    if (content_.size() - at_ != *needed)
      fail(Exit::data, "{} holds {} bytes of data, its header promises {}. fetch it again", path_,
           content_.size() - at_, *needed);
  }
  void swap_bytes() { millrace::swap_bytes(content_.data() + at_, std::size_t(rows_ * row_.count()), size_of(dtype_)); }
  std::int64_t rows() const override { return rows_; }
  Shape row() const override { return row_; }
  DType dtype() const override { return dtype_; }
  void read(std::int64_t begin, std::int64_t count, void* out) const override {
    const std::size_t bytes = std::size_t(row_.count()) * size_of(dtype_);
    std::memcpy(out, content_.data() + at_ + std::size_t(begin) * bytes, std::size_t(count) * bytes);
  }
  const std::string& path() const override { return path_; }

 private:
  std::string path_, content_;
  std::size_t at_;
  DType dtype_;
  std::int64_t rows_;
  Shape row_;
};

std::uint32_t big_endian(const std::string& s, std::size_t at) {
  return std::uint32_t(std::uint8_t(s[at])) << 24 | std::uint32_t(std::uint8_t(s[at + 1])) << 16 |
         std::uint32_t(std::uint8_t(s[at + 2])) << 8 | std::uint32_t(std::uint8_t(s[at + 3]));
}

DType npy_dtype(const std::string& descr, const std::string& path) {
  const std::string kind = descr.substr(1);
  if (kind == "u1") return DType::u8;
  if (kind == "b1") return DType::i8;  // like booleans in HDF5
  if (kind == "i1") return DType::i8;
  if (kind == "u2") return DType::u16;
  if (kind == "i2") return DType::i16;
  if (kind == "i4") return DType::i32;
  if (kind == "i8") return DType::i64;
  if (kind == "f2") return DType::f16;
  if (kind == "f4") return DType::f32;
  if (kind == "f8") return DType::f64;
  fail(Exit::data, "{} has elements of type '{}'. bool, uint8, int8, uint16, int16, int32, int64 and {}", path, descr,
       kind.starts_with('O') ? "floats are read: make one array of the objects, by np.stack(list(a))"
                             : "floats are read: save a.astype(np.int64), or np.float32");
}

// The value of a key in a .npy header, which is a Python literal.
std::string npy_value(const std::string& header, const std::string& key, const std::string& path) {
  const auto at = header.find("'" + key + "'");
  const auto colon = header.find(':', at);
  if (at == std::string::npos || colon == std::string::npos)
    fail(Exit::data, "{} has a header without '{}'", path, key);
  const auto begin = header.find_first_not_of(' ', colon + 1);
  if (begin == std::string::npos) fail(Exit::data, "{} has a header without a value of '{}'", path, key);
  const bool enclosed = header[begin] == '(' || header[begin] == '\'';
  const auto end = header.find_first_of(header[begin] == '(' ? ")" : enclosed ? "'" : ",} ", begin + 1);
  const auto from = begin + (enclosed ? 1 : 0);
  return header.substr(from, end - from);
}

// "60000, 28, 28" or, of one dimension, "60000,".
std::vector<std::int64_t> npy_shape(const std::string& text, const std::string& path) {
  std::vector<std::int64_t> shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at != end && (*at == ' ' || *at == ',')) ++at;
    if (at == end) return shape;
    std::int64_t extent = 0;
    const auto [next, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 0) fail(Exit::data, "{} has a header with the shape '({})'", path, text);
    shape.push_back(extent);
    at = next;
  }
}

class Cifar10 : public Importer {
 public:
  explicit Cifar10(const std::vector<std::string>& paths) : paths_(paths) {
    for (const auto& path : paths) {
      const std::string file = read_file(path);
      if (file.empty() || file.size() % record != 0)
        fail(Exit::data,
             "{} is not CIFAR-10's binary format ({} bytes are not a multiple of {}). for tokens, give the type: "
             "--tokens uint16",
             path, file.size(), record);
      for (std::size_t at = 0; at < file.size(); at += record)
        if (std::uint8_t(file[at]) > 9)
          fail(Exit::data,
               "{} is not CIFAR-10's binary format (a label above 9). for tokens, give the type: --tokens uint16",
               path);
      content_ += file;
    }
  }
  std::int64_t rows() const override { return std::int64_t(content_.size() / record); }
  Shape sample() const override { return {32, 32, 3}; }
  bool channels_first() const override { return false; }
  DType x_dtype() const override { return DType::u8; }
  DType y_dtype() const override { return DType::u8; }
  Shape target() const override { return {}; }
  void read(std::int64_t begin, std::int64_t count, void* x, void* y) const override {
    for (std::int64_t r = 0; r < count; ++r) {
      const char* from = content_.data() + std::size_t(begin + r) * record;
      static_cast<char*>(y)[r] = from[0];
      char* to = static_cast<char*>(x) + std::size_t(r) * 3072;
      for (std::size_t pixel = 0; pixel < 1024; ++pixel)  // planes -> channels last
        for (std::size_t c = 0; c < 3; ++c) to[pixel * 3 + c] = from[1 + c * 1024 + pixel];
    }
  }
  std::string describe() const override { return fmt::format("{}: {} rows of CIFAR-10", paths_[0], rows()); }

 private:
  static constexpr std::size_t record = 3073;
  std::vector<std::string> paths_;
  std::string content_;
};

}  // namespace

// gzip or plain: zlib reads both.
std::string read_maybe_gzip(const std::string& path) {
  gzFile file = ::gzopen(path.c_str(), "rb");
  if (!file) fail(Exit::data, "cannot open {} (no such file, or not readable)", path);
  ::gzbuffer(file, 1 << 20);
  std::string content;
  std::vector<char> block(1 << 20);
  int n = 0;
  while ((n = ::gzread(file, block.data(), unsigned(block.size()))) > 0) content.append(block.data(), std::size_t(n));
  int code = 0;
  const std::string why = n < 0 ? ::gzerror(file, &code) : "";
  const bool cut = ::gzclose(file) != Z_OK;
  if (n < 0 || cut)
    fail(Exit::data, "{} is damaged or cut off ({}). fetch it again", path, why.empty() ? "unexpected end" : why);
  return content;
}

std::unique_ptr<RowFile> open_idx(const std::string& path) {
  std::string content = read_maybe_gzip(path);
  if (content.size() < 8 || content[0] != 0 || content[1] != 0)
    fail(Exit::data, "{} is not an idx file (wrong magic number)", path);
  const int type = std::uint8_t(content[2]), dimensions = std::uint8_t(content[3]);
  DType dtype = DType::u8;
  switch (type) {
    case 0x08:
      dtype = DType::u8;
      break;
    case 0x09:
      dtype = DType::i8;
      break;
    case 0x0B:
      dtype = DType::i16;
      break;
    case 0x0C:
      dtype = DType::i32;
      break;
    case 0x0D:
      dtype = DType::f32;
      break;
    case 0x0E:
      dtype = DType::f64;
      break;
    default:
      fail(Exit::data, "{} is not an idx file (element type {})", path, type);
  }
  const std::size_t header = 4 + 4 * std::size_t(dimensions);
  if (dimensions < 1 || dimensions > Shape::max_rank - 1 || content.size() < header)
    fail(Exit::data, "{} is not an idx file ({} dimensions)", path, dimensions);
  std::vector<std::int64_t> shape;
  for (int d = 0; d < dimensions; ++d) shape.push_back(big_endian(content, 4 + 4 * std::size_t(d)));
  auto file = std::make_unique<ArrayFile>(path, std::move(content), header, dtype, shape);
  if (size_of(dtype) > 1) file->swap_bytes();
  return file;
}

std::unique_ptr<RowFile> open_npy(const std::string& path) { return open_npy(path, read_file(path)); }

std::unique_ptr<RowFile> open_npy(const std::string& path, std::string content) {
  if (content.size() < 12 || content.compare(0, 6, "\x93NUMPY") != 0)
    fail(Exit::data, "{} is not a .npy file (wrong magic string)", path);
  const int version = content[6];
  std::size_t length = std::uint8_t(content[8]) | std::size_t(std::uint8_t(content[9])) << 8, begin = 10;
  if (version >= 2) {
    length |= std::size_t(std::uint8_t(content[10])) << 16 | std::size_t(std::uint8_t(content[11])) << 24;
    begin = 12;
  }
  if (begin + length > content.size()) fail(Exit::data, "{} is cut off in its header. write it again", path);
  const std::string header = content.substr(begin, length);
  const std::string descr = npy_value(header, "descr", path), order = npy_value(header, "fortran_order", path),
                    text = npy_value(header, "shape", path);
  if (descr.size() < 2) fail(Exit::data, "{} has elements of type '{}', which is not read", path, descr);
  if (order != "False") fail(Exit::data, "{} is in Fortran order. save np.ascontiguousarray(a)", path);
  const auto shape = npy_shape(text, path);
  if (shape.empty() || shape.size() > Shape::max_rank - 1) fail(Exit::data, "{} has {} dimensions", path, shape.size());
  auto file = std::make_unique<ArrayFile>(path, std::move(content), begin + length, npy_dtype(descr, path), shape);
  if (descr[0] == '>') file->swap_bytes();
  return file;
}

std::unique_ptr<Importer> import_cifar10(const std::vector<std::string>& paths) {
  return std::make_unique<Cifar10>(paths);
}

}  // namespace millrace
