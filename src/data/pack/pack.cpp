#include "millrace/data/pack/pack.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "data/decode/convert_values.hpp"
#include "data/pack/chunked_shard.hpp"
#include "data/pack/pack_common.hpp"
#include "data/pack/row_reader.hpp"
#include "data/scan/shard_values.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/base/permutation.hpp"
#include "millrace/base/units.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/data/index/row_checksums.hpp"
#include "millrace/data/scan/stored_tokenizer.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t buffer_bytes = 64u << 20;  // rows of x that a rank holds at a time
constexpr std::int64_t statistics_blocks = 64;
constexpr std::size_t default_chunk_bytes = 16u << 10;
constexpr std::int64_t max_chunks = 1 << 14;  // per shard, unless --chunk-rows is given
constexpr double no_label = -std::numeric_limits<double>::infinity();
constexpr double max_classes = 1 << 24;  // a network gets an output for each

struct Column {
  const char* name;
  DType dtype;
  const char* data;
};

class Packer {
 public:
  Packer(World& world, const Importer& in, const PackOptions& options)
      : world_(world),
        in_(in),
        options_(options),
        order_(options.seed, 0, std::uint64_t(std::max<std::int64_t>(1, in.rows())), RngPurpose::pack),
        x_bytes_(std::size_t(in.sample().count()) * size_of(in.x_dtype())),
        y_bytes_(std::size_t(std::max<std::int64_t>(1, in.target().count())) * size_of(in.y_dtype())),
        scale_(in.scale().value_or(in.x_dtype() == DType::u8 && in.sample().rank >= 2 ? 1 / 255.0 : 1)),
        rows_(in, x_bytes_, y_bytes_, std::size_t(world.local_size())) {}

  PackReport run() {
    const double began = steady_seconds();
    if (!labels() && options_.ignore_label >= 0)
      fail(Exit::config, "--ignore-label is for integer labels, but the targets are floating point. remove it");
    prepare_folder(world_, in_.rows(), options_);
    const std::int64_t valid = valid_rows(in_.rows(), options_);
    const std::string problem = message_of([&] { rows_.cache_if_small(); });
    world_.agree(Exit::data, problem);
    measure(in_.rows() - valid);
    write({options_.prefix, 0, in_.rows() - valid});
    if (valid > 0) write({"valid", in_.rows() - valid, valid});
    shards_.commit();
    report_.rows = in_.rows() - valid;
    report_.valid_rows = valid;
    std::int64_t bytes = std::int64_t(report_.own_bytes);
    world_.all_reduce(std::span<std::int64_t>(&bytes, 1), World::Reduce::sum);
    report_.bytes = std::uint64_t(bytes);
    report_.row_bytes = std::uint64_t(in_.rows()) * (x_bytes_ + y_bytes_);
    report_.seconds = steady_seconds() - began;
    return report_;
  }

 private:
  // Reads the rows of the packed positions [begin, begin + count).
  void read(std::int64_t begin, std::int64_t count, char* x, char* y) const {
    rows_.read(
        std::size_t(count), [&](std::size_t i) { return source_row(begin + std::int64_t(i)); }, x, y);
  }

  std::int64_t source_row(std::int64_t position) const {
    return options_.shuffle ? std::int64_t(order_(std::uint64_t(position))) : position;
  }

  // Measures mean and standard deviation of each channel over the training rows, and the number of classes over all
  // rows. The source is read in blocks whose number depends only on the rows, so that the result does not depend on the
  // ranks.
  void measure(std::int64_t train_rows) {
    std::vector<bool> valid(train_rows < in_.rows() ? std::size_t(in_.rows()) : 0);
    for (std::int64_t p = train_rows; p < in_.rows(); ++p) valid[std::size_t(source_row(p))] = true;
    const Shape sample = in_.sample();
    const std::int64_t channels = in_.channels_first() ? sample[0] : sample[-1];
    const std::int64_t values = sample.count(), blocks = std::min(in_.rows(), statistics_blocks);
    std::vector<double> sums(std::size_t(2 * channels * blocks), 0.0);
    std::vector<double> unused(std::size_t(2 * channels), 0.0);  // sums of the validation rows
    std::vector<double> range{no_label, no_label};               // the negated smallest label, and the largest
    const std::string problem = message_of([&] {
      const std::int64_t piece = std::max<std::int64_t>(1, std::int64_t((4u << 20) / x_bytes_));
      std::vector<char> x, y;
      for (std::int64_t b = world_.rank(); b < blocks; b += world_.size()) {
        const std::int64_t end = in_.rows() * (b + 1) / blocks;
        for (std::int64_t row = in_.rows() * b / blocks; row < end; row += piece) {
          const std::int64_t count = std::min(piece, end - row);
          x.resize(std::size_t(count) * x_bytes_);
          y.resize(std::size_t(count) * y_bytes_);
          rows_.read_consecutive(row, count, x.data(), y.data());
          for (std::int64_t r = 0; r < count; ++r) {
            check_target(y.data() + std::size_t(r) * y_bytes_, row + r, range);
            const bool used = valid.empty() || !valid[std::size_t(row + r)];
            add_row(x.data() + std::size_t(r) * x_bytes_, row + r,
                    used ? sums.data() + 2 * channels * b : unused.data(), channels);
          }
        }
      }
    });
    world_.agree(Exit::data, problem);
    world_.all_reduce(std::span<double>(sums), World::Reduce::sum);  // exact: every block has one contributor
    count_classes(range);
    mean_.assign(std::size_t(channels), 0);
    std_.assign(std::size_t(channels), 0);
    for (std::int64_t b = 0; b < blocks; ++b)
      for (std::int64_t c = 0; c < channels; ++c) {
        mean_[std::size_t(c)] += sums[std::size_t(2 * channels * b + c)];
        std_[std::size_t(c)] += sums[std::size_t(2 * channels * b + channels + c)];
      }
    const double count = double(std::max<std::int64_t>(1, train_rows)) * double(values) / double(channels);
    for (std::size_t c = 0; c < mean_.size(); ++c) {
      mean_[c] /= count;
      std_[c] = std::sqrt(std::max(1e-12, std_[c] / count - mean_[c] * mean_[c]));
    }
  }

  // Adds the values of a row to the sums of each channel, and their squares to the sums behind those.
  void add_row(const char* x, std::int64_t row, double* sums, std::int64_t channels) const {
    add_to_sums({x, in_.x_dtype(), in_.sample().count(), channels, in_.channels_first()},
                {scale_, in_.offset(), options_.transform}, sums, sums + channels);
    if (!std::all_of(sums, sums + 2 * channels, [](double sum) { return std::isfinite(sum); }))
      fail(Exit::data, "{} holds values that are not finite{}. correct them, or leave it out{}",
           in_.place_of(row, false), not_finite_hint(options_.transform),
           options_.transform == Transform::none ? "" : ", or remove --transform");
  }

  void check_target(const char* y, std::int64_t row, std::vector<double>& range) const {
    for (std::int64_t i = 0; i < std::max<std::int64_t>(1, in_.target().count()); ++i) {
      const double value = value_at(y, in_.y_dtype(), i);
      if (labels() && value == double(options_.ignore_label)) continue;
      if (!std::isfinite(value))
        fail(Exit::data, "{} has a target that is not finite. correct it, or leave the row out",
             in_.place_of(row, true));
      range[0] = std::max(range[0], -value);
      range[1] = std::max(range[1], value);
    }
  }

  // The label -1 means that there is none: tokens, and samples whose class is not known.
  void count_classes(std::vector<double>& range) {
    world_.all_reduce(std::span<double>(range), World::Reduce::max);
    if (!labels()) return;
    const double smallest = -range[0], largest = range[1];
    if (smallest < -1 || largest >= max_classes)
      fail(Exit::data,
           "the labels reach from {:.0f} to {:.0f} (class numbers reach from 0 to at most {:.0f}; -1: no label). "
           "number the classes from 0, or store targets of a regression as floating point",
           smallest, largest, max_classes - 1);
    classes_ = std::max(std::int64_t(largest) + 1, in_.vocabulary());
  }

  bool labels() const { return is_integer(in_.y_dtype()); }  // the importer has checked them

  void write(const PackSplit& part) {
    const std::size_t sample_bytes = x_bytes_ + (in_.target().count() > 1 ? y_bytes_ : 0);
    const std::int64_t per_shard =
        std::max<std::int64_t>(1, std::int64_t(options_.shard_bytes / std::max<std::size_t>(1, sample_bytes)));
    const std::int64_t shards = (part.rows + per_shard - 1) / per_shard;
    if (options_.codec) choose_chunk((part.rows + shards - 1) / shards);
    for (std::int64_t s = 0; s < shards; ++s) {
      // Shards of equal size, so that the last one is not tiny.
      const std::int64_t begin = part.begin + part.rows * s / shards, end = part.begin + part.rows * (s + 1) / shards;
      const std::string path = shards_.write(part.prefix, s, [&](const fs::path& temporary) {
        if (options_.codec)
          write_chunks(temporary, begin, end - begin);
        else
          write_shard(temporary, begin, end - begin);
      });
      report_.files.push_back(path);
      if (world_.rank() == 0)
        log::info(fmt::format("packed {}: {} rows, {}", path, end - begin,
                              format_bytes(std::uint64_t(end - begin) * x_bytes_)));
    }
  }

  // Chunks must not be so small that their overhead matters, nor so many that HDF5 takes long to list them.
  void choose_chunk(std::int64_t shard_rows) {
    const auto by_size = std::int64_t(default_chunk_bytes / x_bytes_), by_number = (shard_rows - 1) / max_chunks + 1;
    chunk_rows_ = options_.chunk_rows > 0 ? options_.chunk_rows : std::max({std::int64_t(1), by_size, by_number});
    if (const auto chunks = (shard_rows - 1) / chunk_rows_ + 1; chunks > io::fast_chunk_listing_limit())
      fail(Exit::config,
           "chunks of {} rows make {} chunks per shard; this HDF5 lists {} within seconds. raise --chunk-rows or lower "
           "--shard-size",
           chunk_rows_, chunks, io::fast_chunk_listing_limit());
  }

  void write_chunks(const fs::path& path, std::int64_t begin, std::int64_t rows) {
    report_.own_bytes += write_chunked_shard(
        world_, path,
        {*options_.codec, rows, chunk_rows_, in_.y_dtype(), x_bytes_, y_bytes_,
         [&](io::File& file) { describe(file, rows); },
         [&](std::int64_t row, std::int64_t count, char* x, char* y) { read(begin + row, count, x, y); }});
    report_.io_mode = fmt::format("chunks of {} rows, one rank after the other", std::min(chunk_rows_, rows));
  }

  // A rank that fails to read or write still takes part in the remaining transfers, with zero rows. The other ranks
  // would wait forever otherwise.
  void write_shard(const fs::path& path, std::int64_t begin, std::int64_t rows) {
    io::File file = io::File::create_parallel(path, world_);
    std::string problem = message_of([&] { describe(file, rows); });
    world_.agree(Exit::data, problem);
    const std::int64_t first = rows * world_.rank() / world_.size(), last = rows * (world_.rank() + 1) / world_.size();
    const std::int64_t round = std::max<std::int64_t>(1, std::int64_t(buffer_bytes / x_bytes_));
    const std::int64_t max_rows = (rows + world_.size() - 1) / world_.size(), rounds = (max_rows + round - 1) / round;
    x_.resize(std::max(x_.size(), std::size_t(std::min(round, max_rows)) * x_bytes_));
    y_.resize(std::max(y_.size(), std::size_t(std::min(round, max_rows)) * y_bytes_));
    const auto keep_first = [&](std::string message) {
      if (problem.empty()) problem = std::move(message);
    };
    for (std::int64_t r = 0; r < rounds; ++r) {
      const std::int64_t from = std::min(last, first + r * round);
      std::int64_t count = problem.empty() ? std::min(last, from + round) - from : 0;
      keep_first(message_of([&] { read(begin + from, count, x_.data(), y_.data()); }));
      if (!problem.empty()) count = 0;
      const std::vector<std::int32_t> sums = row_checksums(x_.data(), x_bytes_, y_.data(), y_bytes_, count);
      for (const Column& c : {Column{"/x", in_.x_dtype(), x_.data()},
                              {"/y", in_.y_dtype(), y_.data()},
                              {row_checksums_name, DType::i32, reinterpret_cast<const char*>(sums.data())}})
        keep_first(message_of([&] {
          file.write_rows(c.name, from, count, c.dtype, c.data, io::File::Transfer::collective);
          if (c.data == x_.data()) report_.io_mode = file.last_io_mode();
        }));
    }
    keep_first(message_of([&] { file.flush(); }));
    keep_first(message_of([&] { file.close(); }));
    report_.own_bytes += file.bytes_written();
    world_.agree(Exit::data, problem);
  }

  void describe(io::File& file, std::int64_t rows) {
    const auto extents = [&](const Shape& one) {
      std::vector<std::int64_t> out{rows};
      out.insert(out.end(), one.dims.begin(), one.dims.begin() + one.rank);
      return out;
    };
    if (options_.codec)
      file.create_chunked("/x", in_.x_dtype(), extents(in_.sample()), chunk_rows_, options_.codec->filter);
    else
      file.create_dataset("/x", in_.x_dtype(), extents(in_.sample()));
    file.create_dataset("/y", in_.y_dtype(), extents(in_.target().count() == 1 ? Shape{} : in_.target()));
    file.create_dataset(row_checksums_name, DType::i32, {rows});
    file.set("/", "format", std::string("millrace-1"));
    file.set("/", "layout", std::string(in_.channels_first() ? "channels_first" : "channels_last"));
    file.set("/", "scale", scale_);
    if (in_.offset() != 0) file.set("/", "offset", in_.offset());
    if (labels()) file.set("/", "classes", classes_);
    if (labels() && options_.ignore_label >= 0) file.set("/", "ignore_label", options_.ignore_label);
    if (const auto names = in_.class_names(); !names.empty()) file.set("/", "class_names", join_class_names(names));
    file.set("/x", "mean", mean_);
    file.set("/x", "std", std_);
    if (options_.transform != Transform::none) file.set("/x", "transform", std::string(name_of(options_.transform)));
    // Last, because a failed write of rank 0 must not keep it from what all ranks create.
    if (const std::string text = in_.tokenizer(); !text.empty()) {
      const auto bytes = std::int64_t(text.size());
      file.create_dataset(tokenizer_name, DType::u8, {bytes});
      file.write_rows(tokenizer_name, 0, world_.rank() == 0 ? bytes : 0, DType::u8, text.data(),
                      io::File::Transfer::collective);
    }
  }

  World& world_;
  const Importer& in_;
  const PackOptions& options_;
  ShardTransaction shards_{world_, options_};
  Permutation order_;
  std::size_t x_bytes_, y_bytes_;
  double scale_;
  std::vector<double> mean_, std_;
  std::int64_t classes_ = 0, chunk_rows_ = 1;
  RowReader rows_;
  std::vector<char> x_, y_;
  PackReport report_;
};

}  // namespace

PackReport pack(World& world, const Importer& in, const PackOptions& options) {
  return Packer(world, in, options).run();
}

}  // namespace millrace
