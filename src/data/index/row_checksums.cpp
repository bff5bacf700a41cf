#include "millrace/data/index/row_checksums.hpp"

#include <algorithm>
#include <bit>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

constexpr std::int64_t buffer_bytes = 16 << 20;

std::size_t bytes_of_row(const io::DatasetInfo& info) {
  std::size_t bytes = size_of(info.dtype);
  for (std::size_t a = 1; a < info.shape.size(); ++a) bytes *= std::size_t(info.shape[a]);
  return bytes;
}

// Reads the samples of a shard by rows: of equal size, or the bytes between two offsets (encoded images).
class Rows {
 public:
  explicit Rows(const io::File& file) : file_(file), x_(file.info("/x")), y_(file.info("/y")) {
    rows_ = y_.shape.at(0);
    y_bytes_ = bytes_of_row(y_);
    if (!file.has("/x_offsets")) return;
    ends_.resize(std::size_t(rows_ + 1));
    file.read_rows("/x_offsets", 0, rows_ + 1, DType::i64, ends_.data());
    for (std::size_t r = 0; r + 1 < ends_.size(); ++r)
      if (ends_[r] < 0 || ends_[r] > ends_[r + 1] || ends_[r + 1] > x_.shape.at(0))
        fail(Exit::data, "{}: /x_offsets is damaged at row {}", file.path(), r);
  }
  std::int64_t count() const { return rows_; }

  // The checksums of as many rows from `begin` as fit into the buffer, at least one.
  std::vector<std::int32_t> checksums(std::int64_t begin) {
    const std::int64_t end = end_of_block(begin), rows = end - begin;
    const std::int64_t first = ends_.empty() ? begin : ends_[std::size_t(begin)];
    const std::int64_t last = ends_.empty() ? end : ends_[std::size_t(end)];
    const std::size_t unit = ends_.empty() ? bytes_of_row(x_) : 1;
    bytes_.resize(std::size_t(last - first) * unit);
    targets_.resize(std::size_t(rows) * y_bytes_);
    file_.read_rows("/x", first, last - first, x_.dtype, bytes_.data());
    file_.read_rows("/y", begin, rows, y_.dtype, targets_.data());
    if (ends_.empty()) return row_checksums(bytes_.data(), unit, targets_.data(), y_bytes_, rows);
    std::vector<std::int32_t> out;
    for (std::int64_t r = begin; r < end; ++r)
      out.push_back(row_checksum(bytes_.data() + (ends_[std::size_t(r)] - first),
                                 std::size_t(ends_[std::size_t(r) + 1] - ends_[std::size_t(r)]),
                                 targets_.data() + std::size_t(r - begin) * y_bytes_, y_bytes_));
    return out;
  }

 private:
  std::int64_t end_of_block(std::int64_t begin) const {
    if (ends_.empty())
      return std::min(rows_, begin + std::max<std::int64_t>(1, buffer_bytes / std::int64_t(bytes_of_row(x_))));
    std::int64_t end = begin + 1;
    while (end < rows_ && ends_[std::size_t(end) + 1] - ends_[std::size_t(begin)] <= buffer_bytes) ++end;
    return end;
  }

  const io::File& file_;
  io::DatasetInfo x_, y_;
  std::int64_t rows_ = 0;
  std::size_t y_bytes_ = 0;
  std::vector<std::int64_t> ends_;  // of encoded images; else empty
  std::vector<char> bytes_, targets_;
};

}  // namespace

std::int32_t row_checksum(const void* x, std::size_t x_bytes, const void* y, std::size_t y_bytes) {
  return std::bit_cast<std::int32_t>(crc32c(y, y_bytes, crc32c(x, x_bytes)));
}

std::vector<std::int32_t> row_checksums(const char* x, std::size_t x_bytes, const char* y, std::size_t y_bytes,
                                        std::int64_t count) {
  std::vector<std::int32_t> out;
  for (std::int64_t r = 0; r < count; ++r)
    out.push_back(row_checksum(x + std::size_t(r) * x_bytes, x_bytes, y + std::size_t(r) * y_bytes, y_bytes));
  return out;
}

VerifiedRows verify_rows(const std::string& path) {
  VerifiedRows out;
  const io::File file = io::File::open(path);
  if (!file.has(row_checksums_name)) return out;
  Rows rows(file);
  if (file.info(row_checksums_name).shape != std::vector<std::int64_t>{rows.count()})
    fail(Exit::data, "{}: {} has another number of rows than /y", path, row_checksums_name);
  std::vector<std::int32_t> stored(std::size_t(rows.count()));
  file.read_rows(row_checksums_name, 0, rows.count(), DType::i32, stored.data());
  while (out.rows < rows.count())
    for (const std::int32_t found : rows.checksums(out.rows)) {
      if (found != stored[std::size_t(out.rows)] && out.damaged++ == 0) out.first = out.rows;
      ++out.rows;
    }
  return out;
}

}  // namespace millrace
