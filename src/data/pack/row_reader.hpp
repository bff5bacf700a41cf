// RowReader: reads the rows of an importer in any order. A small data set is first read to memory in its own order:
// foreign files are often compressed, so that a random row would cost a whole chunk. Private to the data room.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "millrace/data/pack/importer.hpp"

namespace millrace {

class RowReader {
 public:
  RowReader(const Importer& in, std::size_t x_bytes, std::size_t y_bytes, std::size_t ranks_on_host)
      : in_(in), x_bytes_(x_bytes), y_bytes_(y_bytes), ranks_on_host_(ranks_on_host) {}

  void cache_if_small() {
    const std::size_t rows = std::size_t(in_.rows()), max_bytes = (std::size_t(2) << 30) / ranks_on_host_;
    if (rows * (x_bytes_ + y_bytes_) > max_bytes) return;
    // Reading its own rows twice costs a rank no more than reading all rows once.
    if (in_.random_access() && ranks_on_host_ > 1) return;
    x_.resize(rows * x_bytes_);
    y_.resize(rows * y_bytes_);
    const std::size_t piece = std::max<std::size_t>(1, (16u << 20) / x_bytes_);
    for (std::size_t r = 0; r < rows; r += piece)
      in_.read(std::int64_t(r), std::int64_t(std::min(piece, rows - r)), x_.data() + r * x_bytes_,
               y_.data() + r * y_bytes_);
  }

  void read_consecutive(std::int64_t row, std::int64_t count, char* x, char* y) const {
    if (x_.empty()) return in_.read(row, count, x, y);
    std::memcpy(x, x_.data() + std::size_t(row) * x_bytes_, std::size_t(count) * x_bytes_);
    std::memcpy(y, y_.data() + std::size_t(row) * y_bytes_, std::size_t(count) * y_bytes_);
  }

  // Reads the rows row_of(0), ..., row_of(count - 1). Consecutive rows of the source are one read.
  template <class RowOf>
  void read(std::size_t count, const RowOf& row_of, char* x, char* y) const {
    for (std::size_t i = 0; i < count;) {
      const std::int64_t row = row_of(i);
      std::size_t run = 1;
      while (i + run < count && row_of(i + run) == row + std::int64_t(run)) ++run;
      read_consecutive(row, std::int64_t(run), x + i * x_bytes_, y + i * y_bytes_);
      i += run;
    }
  }

 private:
  const Importer& in_;
  std::size_t x_bytes_, y_bytes_, ranks_on_host_;
  std::vector<char> x_, y_;
};

}  // namespace millrace
