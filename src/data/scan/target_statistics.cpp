#include <algorithm>
#include <cmath>

#include "data/decode/convert_values.hpp"
#include "data/index/concatenated.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

constexpr std::int64_t max_target_values = std::int64_t(1) << 28;

// Mean and variation of a column, by Welford's update.
struct ColumnMoments {
  double count = 0, mean = 0, variation = 0;
  void add(double value) {
    ++count;
    const double distance = value - mean;
    mean += distance / count;
    variation += distance * (value - mean);
  }
  double deviation() const { return count > 0 ? std::sqrt(variation / count) : 0; }
};

class TargetColumns {
 public:
  TargetColumns(const ShardIndex& index, std::int64_t columns)
      : index_(index), columns_(std::size_t(columns)), width_(index.y.target.count()) {}
  void read_files();
  void read_generated(World&);
  void put(std::vector<double>& mean, std::vector<double>& std) const;

 private:
  struct Rows {
    const io::File& file;
    const Shard& shard;
    std::int64_t first, count;
  };
  void read_part(const TargetPart&, std::int64_t first_column, const Rows&);
  ColumnMoments& column(std::int64_t c) { return columns_[columns_.size() == 1 ? 0 : std::size_t(c)]; }

  const ShardIndex& index_;
  std::vector<ColumnMoments> columns_;
  std::int64_t width_;
  std::vector<char> stored_;
  std::vector<float> values_;
};

void TargetColumns::read_part(const TargetPart& part, std::int64_t first_column, const Rows& rows) {
  const auto count = std::size_t(rows.count * part.count);
  stored_.resize(std::max(stored_.size(), count * size_of(part.dtype)));
  values_.resize(std::max(values_.size(), count));
  rows.file.read_rows(part.name, rows.first, rows.count, part.dtype, stored_.data());
  targets_to_float(stored_.data(), part.dtype, std::int64_t(count), values_.data());
  for (std::int64_t r = 0; r < rows.count; ++r) {
    if (index_.selection && !index_.selection->contains(rows.shard.first + rows.first + r)) continue;
    for (std::int64_t c = 0; c < part.count; ++c) {
      const double value = double(values_[std::size_t(r * part.count + c)]);
      if (!std::isfinite(value))
        fail(
            Exit::data,
            "row {} of {}: a target of '{}' is not finite, so data.normalize_targets has no mean. correct it, or leave "
            "the row out",
            rows.first + r, rows.shard.path, part.name);
      column(first_column + c).add(value);
    }
  }
}

// All rows, or of very many evenly spread blocks.
void TargetColumns::read_files() {
  const std::int64_t block = std::max<std::int64_t>(1, (std::int64_t(1) << 16) / width_);
  const std::int64_t every = std::max<std::int64_t>(1, index_.selected_rows() * width_ / max_target_values);
  std::int64_t number = 0;
  for (const Shard& shard : index_.shards) {
    const io::File file = io::File::open(shard.path);
    const auto parts = targets_of(index_, shard);
    for (std::int64_t row = 0; row < shard.rows; row += block) {
      if (number++ % every != 0) continue;
      std::int64_t first = 0;
      for (const TargetPart& part : parts) {
        if (!part.labels) read_part(part, first, {file, shard, row, std::min(block, shard.rows - row)});
        first += part.count;
      }
    }
  }
}

void TargetColumns::read_generated(World& world) {
  const auto source = make_source(world, index_, Reader::automatic);
  std::vector<char> x(index_.sample_bytes());
  std::vector<float> y = std::vector<float>(std::size_t(width_));
  for (std::int64_t at = 0; at < index_.selected_rows(); ++at) {
    const std::int64_t id = index_.selected(at);
    source->read({&id, 1}, x.data(), y.data());
    for (std::int64_t c = 0; c < width_; ++c) column(c).add(double(y[std::size_t(c)]));
  }
}

// A column of labels has no values, and stays as it is. One of equal targets is only moved.
void TargetColumns::put(std::vector<double>& mean, std::vector<double>& std) const {
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const double deviation = columns_[c].deviation();
    mean[c] = columns_[c].mean;
    std[c] = columns_[c].count == 0 ? 0 : deviation > 0 ? deviation : 1;
  }
}

}  // namespace

void measure_target_statistics(World& world, ShardIndex& index, std::int64_t max_columns) {
  const std::int64_t width = index.y.target.count();
  const bool labels = index.y.has_label_parts();
  if (labels && width > max_columns)
    fail(Exit::config,
         "data.normalize_targets: {} targets lie beside labels, at most {} are possible. set it to off, and normalize "
         "them in the files",
         width, max_columns);
  const std::int64_t columns = width <= max_columns ? width : 1;
  std::vector<double> mean(std::size_t(columns), 0), std(std::size_t(columns), 0);
  const std::string problem = message_of([&] {
    if (world.rank() != 0) return;
    TargetColumns targets(index, columns);
    if (index.synthetic())
      targets.read_generated(world);
    else
      targets.read_files();
    targets.put(mean, std);
  });
  world.agree(Exit::data, problem);
  world.broadcast(mean.data(), mean.size() * sizeof(double), 0);
  world.broadcast(std.data(), std.size() * sizeof(double), 0);
  index.values.target_mean = std::move(mean);
  index.values.target_std = std::move(std);
}

}  // namespace millrace
