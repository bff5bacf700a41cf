#include "millrace/data/pack.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/base/units.hpp"
#include "millrace/data/sampler.hpp"
#include "millrace/io/hdf5.hpp"
#include "raw_rows.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t buffer_bytes = 64u << 20;  // of x rows, a rank
constexpr std::int64_t statistics_block =
    4096;  // rows: sums are made block by block, so that they are the same on any number of ranks

struct Part {  // a run of packed positions that becomes one set of shards
  std::string prefix;
  std::int64_t begin = 0, rows = 0;
};

class Packer {
 public:
  Packer(World& world, const Importer& in, const PackOptions& options)
      : world_(world),
        in_(in),
        options_(options),
        order_(options.seed ^ 0x7061636Bull, 0, std::uint64_t(std::max<std::int64_t>(1, in.rows()))),
        x_bytes_(std::size_t(in.sample().count()) * size_of(in.x_dtype())),
        y_bytes_(std::size_t(std::max<std::int64_t>(1, in.target().count())) * size_of(in.y_dtype())),
        scale_(in.x_dtype() == DType::u8 && in.sample().rank >= 2 ? 1 / 255.0 : 1) {}

  PackReport run() {
    const auto began = std::chrono::steady_clock::now();
    prepare();
    const std::int64_t valid = std::llround(options_.valid_fraction * double(in_.rows()));
    measure(in_.rows() - valid);
    write({options_.prefix, 0, in_.rows() - valid});
    if (valid > 0) write({"valid", in_.rows() - valid, valid});
    report_.rows = in_.rows() - valid, report_.valid_rows = valid;
    std::int64_t bytes = std::int64_t(report_.own_bytes);
    world_.all_reduce(std::span<std::int64_t>(&bytes, 1), World::Reduce::sum);
    report_.bytes = std::uint64_t(bytes);
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return report_;
  }

 private:
  void prepare() {
    std::string problem;
    if (in_.rows() < 1) problem = "there are no rows to pack";
    if (!(options_.valid_fraction >= 0 && options_.valid_fraction < 1))
      problem = "--valid-fraction must be at least 0 and below 1";
    if (world_.rank() == 0 && problem.empty()) {
      std::error_code error;
      fs::create_directories(options_.out, error);
      if (error) problem = cat("cannot make ", options_.out.string(), " (", error.message(), ")");
      std::vector<std::string> prefixes{options_.prefix};
      if (options_.valid_fraction > 0) prefixes.push_back("valid");
      for (const auto& prefix : prefixes)
        for (const std::string& old : expand_glob((options_.out / (prefix + "-[0-9]*.h5")).string())) {
          if (!options_.overwrite) {
            problem = cat(old, " is there already. --overwrite packs anew");
            break;
          }
          fs::remove(old, error);
        }
    }
    world_.agree(Exit::data, problem);
  }

  std::int64_t source_row(std::int64_t position) const {
    return options_.shuffle ? std::int64_t(order_(std::uint64_t(position))) : position;
  }

  // Packed positions [begin, begin + count) in one go; neighbours in the source are one read.
  void read(std::int64_t begin, std::int64_t count, char* x, char* y) const {
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t row = source_row(begin + i);
      std::int64_t run = 1;
      while (i + run < count && source_row(begin + i + run) == row + run) ++run;
      in_.read(row, run, x + std::size_t(i) * x_bytes_, y + std::size_t(i) * y_bytes_);
      i += run;
    }
  }

  // Mean and deviation per channel over the training rows, and the number of classes over all.
  void measure(std::int64_t train_rows) {
    const Shape sample = in_.sample();
    const bool channels_first = in_.channels_first();
    const std::int64_t channels = sample.rank == 1   ? sample[0]
                                  : channels_first   ? sample[0]
                                  : sample.rank == 2 ? 1
                                                     : sample[-1];
    const std::int64_t values = sample.count(), blocks = (in_.rows() + statistics_block - 1) / statistics_block;
    std::vector<double> sums(std::size_t(2 * channels * blocks), 0.0);
    std::vector<char> x(x_bytes_), y(y_bytes_);
    std::int64_t largest = -1;
    std::string problem;
    try {
      for (std::int64_t b = world_.rank(); b < blocks; b += world_.size()) {
        double* sum = sums.data() + 2 * channels * b;
        for (std::int64_t p = b * statistics_block; p < std::min(in_.rows(), (b + 1) * statistics_block); ++p) {
          in_.read(source_row(p), 1, x.data(), y.data());
          if (labels()) largest = std::max(largest, std::int64_t(value_at(y.data(), in_.y_dtype(), 0)));
          if (p >= train_rows) continue;
          for (std::int64_t v = 0; v < values; ++v) {
            const std::int64_t c = channels_first ? v / (values / channels) : v % channels;
            const double value = value_at(x.data(), in_.x_dtype(), v) * scale_;
            sum[c] += value, sum[channels + c] += value * value;
          }
        }
      }
    } catch (const Error& e) {
      problem = e.what();
    }
    world_.agree(Exit::data, problem);
    world_.all_reduce(std::span<double>(sums), World::Reduce::sum);  // every block has one contributor: exact
    world_.all_reduce(std::span<std::int64_t>(&largest, 1), World::Reduce::max);
    classes_ = largest + 1;
    mean_.assign(std::size_t(channels), 0), std_.assign(std::size_t(channels), 0);
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

  bool labels() const {
    return in_.target().count() == 1 && in_.y_dtype() != DType::f16 && in_.y_dtype() != DType::f32 &&
           in_.y_dtype() != DType::f64;
  }

  void write(const Part& part) {
    const std::int64_t per_shard =
        std::max<std::int64_t>(1, std::int64_t(options_.shard_bytes / std::max<std::size_t>(1, x_bytes_)));
    const std::int64_t shards = (part.rows + per_shard - 1) / per_shard;
    for (std::int64_t s = 0; s < shards; ++s) {
      char name[32];
      std::snprintf(name, sizeof name, "-%05lld.h5", (long long)s);
      const fs::path path = options_.out / (part.prefix + name), aside = path.string() + ".tmp";
      // Equal shards: the last is not a crumb.
      const std::int64_t begin = part.begin + part.rows * s / shards, end = part.begin + part.rows * (s + 1) / shards;
      std::string problem;
      try {
        write_shard(aside, begin, end - begin);
      } catch (const Error& e) {
        problem = e.what();
      }
      try {
        world_.agree(Exit::data, problem);
      } catch (...) {
        std::error_code ignored;
        if (world_.rank() == 0) fs::remove(aside, ignored);
        throw;
      }
      if (world_.rank() == 0) rename_durably(aside, path);
      world_.barrier();
      report_.files.push_back(path.string());
      if (world_.rank() == 0)
        log::info(cat("packed ", path.string(), ": ", end - begin, " rows, ",
                      format_bytes(std::uint64_t(end - begin) * x_bytes_)));
    }
  }

  void write_shard(const fs::path& path, std::int64_t begin, std::int64_t rows) {
    const bool parallel = world_.mpi_comm() != nullptr;
    MR_CHECK(parallel || world_.size() == 1, "packing needs MPI or one rank");
    io::File file = parallel ? io::File::create_parallel(path, world_) : io::File::create(path);
    const auto extents = [&](const Shape& one) {
      std::vector<std::int64_t> out{rows};
      out.insert(out.end(), one.dims.begin(), one.dims.begin() + one.rank);
      return out;
    };
    file.create_dataset("/x", in_.x_dtype(), extents(in_.sample()));
    file.create_dataset("/y", in_.y_dtype(), extents(in_.target().count() == 1 ? Shape{} : in_.target()));
    file.set("/", "format", std::string("millrace-1"));
    file.set("/", "layout", std::string(in_.channels_first() ? "channels_first" : "channels_last"));
    file.set("/", "scale", scale_);
    if (labels()) file.set("/", "classes", classes_);
    file.set("/x", "mean", mean_);
    file.set("/x", "std", std_);

    // Every rank writes its rows; in rounds of bounded memory, all ranks in each.
    const std::int64_t first = rows * world_.rank() / world_.size(), last = rows * (world_.rank() + 1) / world_.size();
    const std::int64_t round =
        std::max<std::int64_t>(1, std::int64_t(buffer_bytes / std::max<std::size_t>(1, x_bytes_)));
    const std::int64_t most = (rows + world_.size() - 1) / world_.size(), rounds = (most + round - 1) / round;
    std::vector<char> x(std::size_t(std::min(round, most)) * x_bytes_),
        y(std::size_t(std::min(round, most)) * y_bytes_);
    const auto transfer = parallel ? io::File::Transfer::collective : io::File::Transfer::independent;
    std::string problem;  // of reading: a rank that fails goes on taking part, with no rows
    for (std::int64_t r = 0; r < rounds; ++r) {
      const std::int64_t from = std::min(last, first + r * round);
      std::int64_t count = std::min(last, from + round) - from;
      try {
        if (problem.empty()) read(begin + from, count, x.data(), y.data());
      } catch (const Error& e) {
        problem = e.what();
      }
      if (!problem.empty()) count = 0;
      file.write_rows("/x", from, count, in_.x_dtype(), x.data(), transfer);
      report_.io_mode = file.last_io_mode();
      file.write_rows("/y", from, count, in_.y_dtype(), y.data(), transfer);
      report_.own_bytes += std::uint64_t(count) * (x_bytes_ + y_bytes_);
    }
    file.flush();
    file.close();
    if (!problem.empty()) fail(Exit::data, problem);
  }

  World& world_;
  const Importer& in_;
  const PackOptions& options_;
  Permutation order_;
  std::size_t x_bytes_, y_bytes_;
  double scale_;
  std::vector<double> mean_, std_;
  std::int64_t classes_ = 0;
  PackReport report_;
};

}  // namespace

PackReport pack(World& world, const Importer& in, const PackOptions& options) {
  return Packer(world, in, options).run();
}

}  // namespace millrace
