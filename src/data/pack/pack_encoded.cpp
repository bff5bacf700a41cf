// Packs image files as they are. First the ranks exchange the sizes of all files. So every rank knows the position of
// each image in its shard before any image is read.
#include <fmt/core.h>

#include <algorithm>

#include "data/pack/importers.hpp"
#include "data/pack/pack_common.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/base/permutation.hpp"
#include "millrace/base/units.hpp"
#include "millrace/data/decode/image.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/data/index/row_checksums.hpp"
#include "millrace/data/read/encoded_rows.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t buffer_bytes = 64 << 20;  // images that a rank holds at a time

class EncodedPacker {
 public:
  EncodedPacker(World& world, const std::string& folder, const PackOptions& options)
      : world_(world), options_(options), images_(list_images(folder)) {}

  PackReport run() {
    const double began = steady_seconds();
    const auto rows = std::int64_t(images_.files.size());
    log::info(
        fmt::format("packing {} images of {} classes as they are{}", rows, images_.classes.size(),
                    images_.ignored_files > 0 ? fmt::format(", {} other files ignored", images_.ignored_files) : ""));
    prepare_folder(world_, rows, options_);
    const std::int64_t valid = valid_rows(rows, options_);
    order(rows);
    measure(rows);
    write({options_.prefix, 0, rows - valid});
    if (valid > 0) write({"valid", rows - valid, valid});
    shards_.commit();
    report_.rows = rows - valid;
    report_.valid_rows = valid;
    std::int64_t bytes = std::int64_t(report_.own_bytes);
    world_.all_reduce(std::span<std::int64_t>(&bytes, 1), World::Reduce::sum);
    report_.bytes = std::uint64_t(bytes);
    report_.seconds = steady_seconds() - began;
    return report_;
  }

 private:
  using Files = std::vector<ImageFolder::File>;

  void order(std::int64_t rows) {
    if (!options_.shuffle) return;
    const Permutation at(options_.seed, 0, std::uint64_t(rows), RngPurpose::pack);
    Files shuffled(images_.files.size());
    for (std::size_t i = 0; i < shuffled.size(); ++i) shuffled[i] = std::move(images_.files[at(i)]);
    images_.files.swap(shuffled);
  }

  void measure(std::int64_t rows) {
    std::vector<std::int64_t> bytes(std::size_t(rows), 0);
    const std::string problem = message_of([&] {
      for (std::int64_t i = world_.rank(); i < rows; i += world_.size())
        bytes[std::size_t(i)] = std::int64_t(fs::file_size(images_.files[std::size_t(i)].path));
    });
    world_.agree(Exit::data, problem);
    world_.all_reduce(std::span<std::int64_t>(bytes), World::Reduce::sum);
    ends_.assign(1, 0);
    for (const std::int64_t b : bytes) ends_.push_back(ends_.back() + b);
  }

  // Shards of about equal size in bytes.
  void write(const PackSplit& part) {
    const auto at = [&](std::int64_t row) { return ends_[std::size_t(row)]; };
    const std::int64_t first = at(part.begin), end = part.begin + part.rows, total = at(end) - first;
    const auto max_bytes = std::int64_t(options_.shard_bytes);
    const std::int64_t shards = std::max<std::int64_t>(1, (total + max_bytes - 1) / max_bytes);
    std::int64_t row = part.begin, written = 0;
    for (std::int64_t s = 0; s < shards; ++s) {
      const std::int64_t begin = row;
      if (s + 1 == shards) row = end;
      while (row < end && at(row + 1) - first <= total / shards * (s + 1)) ++row;
      if (row == begin) continue;  // an image larger than a shard goes to the next one
      report_.files.push_back(shards_.write(part.prefix, written++,
                                            [&](const fs::path& temporary) { write_shard(temporary, begin, row); }));
      if (world_.rank() == 0)
        log::info(fmt::format("packed {}: {} images, {}", report_.files.back(), row - begin,
                              format_bytes(std::uint64_t(at(row) - at(begin)))));
    }
  }

  // Each rank writes about the same number of bytes, in rounds that are collective.
  void write_shard(const fs::path& path, std::int64_t begin, std::int64_t end) {
    io::File file = io::File::create_parallel(path, world_);
    std::string problem = message_of([&] { describe(file, begin, end); });
    world_.agree(Exit::data, problem);
    const auto keep_first = [&](std::string message) {
      if (problem.empty()) problem = std::move(message);
    };
    std::int64_t row = first_row(begin, end, world_.rank());
    const std::int64_t last = first_row(begin, end, world_.rank() + 1);
    std::string images;
    std::vector<std::int64_t> offsets;
    std::vector<std::int32_t> labels, sums;
    for (std::int64_t more = 1; more > 0;) {
      images.clear();
      offsets.clear();
      labels.clear();
      sums.clear();
      const std::int64_t from = row, byte = ends_[std::size_t(from)] - ends_[std::size_t(begin)];
      keep_first(message_of([&] {
        for (; row < last && (row == from || std::int64_t(images.size()) < buffer_bytes); ++row) {
          labels.push_back(images_.files[std::size_t(row)].label);
          offsets.push_back(byte + std::int64_t(images.size()));
          const std::string image = content(row);
          sums.push_back(row_checksum(image.data(), image.size(), &labels.back(), sizeof labels.back()));
          images += image;
        }
      }));
      if (!problem.empty()) {
        images.clear();
        offsets.clear();
        labels.clear();
        sums.clear();
        row = last;
      }
      if (problem.empty() && row == end && from < end) offsets.push_back(byte + std::int64_t(images.size()));
      const auto put = [&](const std::string& name, std::int64_t at, DType dtype, std::size_t count, const void* data) {
        keep_first(message_of(
            [&] { file.write_rows(name, at, std::int64_t(count), dtype, data, io::File::Transfer::collective); }));
      };
      put("/x", byte, DType::u8, images.size(), images.data());
      report_.io_mode = file.last_io_mode();
      put("/" + offsets_name("x"), from - begin, DType::i64, offsets.size(), offsets.data());
      put("/y", from - begin, DType::i32, labels.size(), labels.data());
      put(row_checksums_name, from - begin, DType::i32, sums.size(), sums.data());
      more = last - row;
      world_.all_reduce(std::span<std::int64_t>(&more, 1), World::Reduce::max);
    }
    keep_first(message_of([&] { file.flush(); }));
    keep_first(message_of([&] { file.close(); }));
    report_.own_bytes += file.bytes_written();
    world_.agree(Exit::data, problem);
  }

  // The first row that rank r writes.
  std::int64_t first_row(std::int64_t begin, std::int64_t end, int r) const {
    if (r == world_.size()) return end;
    const auto from = ends_.begin() + begin, to = ends_.begin() + end;
    return std::lower_bound(from, to, *from + (*to - *from) / world_.size() * r) - ends_.begin();
  }

  std::string content(std::int64_t row) const {
    const std::string& path = images_.files[std::size_t(row)].path;
    std::string bytes = read_file(path);
    if (std::int64_t(bytes.size()) != ends_[std::size_t(row) + 1] - ends_[std::size_t(row)])
      fail(Exit::data, "{} changed while it was packed. pack again", path);
    Image size;
    decode_image(bytes, path, size_only, size);
    return bytes;
  }

  void describe(io::File& file, std::int64_t begin, std::int64_t end) {
    file.create_dataset("/x", DType::u8, {ends_[std::size_t(end)] - ends_[std::size_t(begin)]});
    file.create_dataset("/" + offsets_name("x"), DType::i64, {end - begin + 1});
    file.create_dataset("/y", DType::i32, {end - begin});
    file.create_dataset(row_checksums_name, DType::i32, {end - begin});
    file.set("/", "format", std::string("millrace-1"));
    file.set("/", "layout", std::string("channels_last"));
    file.set("/", "scale", 1 / 255.0);
    file.set("/", "classes", std::int64_t(images_.classes.size()));
    file.set("/", "class_names", join_class_names(images_.classes));
  }

  World& world_;
  const PackOptions& options_;
  ShardTransaction shards_{world_, options_};
  ImageFolder images_;              // in the order of the shards
  std::vector<std::int64_t> ends_;  // bytes of all files before file i
  PackReport report_;
};

}  // namespace

PackReport pack_encoded(World& world, const std::string& folder, const PackOptions& options) {
  return EncodedPacker(world, folder, options).run();
}

}  // namespace millrace
