#include "bench/shards.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/units.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

std::filesystem::path shard_path(const std::filesystem::path& folder, const std::string& stem, std::int64_t number) {
  return folder / fmt::format("{}-{:05}.h5", stem, number);
}

void write_shard(const std::filesystem::path& path, std::int64_t rows, std::int64_t sample_bytes) {
  const std::filesystem::path part = path.string() + ".part";
  io::File file = io::File::create(part.string());
  file.create_dataset("/x", DType::u8, {rows, sample_bytes});
  file.create_dataset("/y", DType::i32, {rows});
  file.set("/", "classes", std::int64_t(1));
  const std::int64_t piece = std::clamp<std::int64_t>((64 << 20) / sample_bytes, 1, rows);
  std::vector<std::uint8_t> x(std::size_t(piece * sample_bytes));  // not zeros: file systems may not store those
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::uint8_t((i * 2654435761u) >> 11);
  const std::vector<std::int32_t> y(std::size_t(piece), 0);
  for (std::int64_t row = 0; row < rows; row += piece) {
    const std::int64_t count = std::min(piece, rows - row);
    file.write_rows("/x", row, count, DType::u8, x.data());
    file.write_rows("/y", row, count, DType::i32, y.data());
  }
  file.close();
  fsync_file(part);
  rename_durably(part, path);
  // Drops the file from the page cache, as far as the kernel follows this advice.
  if (const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) {
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

}  // namespace

BenchShards::BenchShards(World& world, const std::filesystem::path& folder, const std::string& name,
                         std::int64_t samples, std::int64_t sample_bytes, bool keep, std::int64_t file_bytes)
    : stem_(fmt::format("bench-{}-{}x{}", name, samples, sample_bytes)), keep_(keep), mine_(world.rank() == 0) {
  std::string problem;
  if (mine_) try {
      removes_folder_ = folder.empty() && !keep;
      folder_ = !folder.empty()
                    ? folder
                    : std::filesystem::temp_directory_path() /
                          (keep ? std::string("millrace-bench-storage") : fmt::format("millrace-bench-{}", ::getpid()));
      std::filesystem::create_directories(folder_);
      made_ = expand_glob(glob()).empty();
      if (made_) make(samples, sample_bytes, file_bytes);
    } catch (const std::exception& e) {
      problem = e.what();
    }
  if (!problem.empty()) remove();
  world.agree(Exit::data, problem);
  folder_ = world.broadcast_string(folder_.string());
}

// Called when there are no shards. A crash leaves complete shards, but too few of them: bench_storage() notices that by
// the number of rows.
void BenchShards::make(std::int64_t samples, std::int64_t sample_bytes, std::int64_t file_bytes) {
  const auto wanted = std::uint64_t(samples * sample_bytes);
  const std::uint64_t free = std::filesystem::space(folder_).available;
  if (wanted + wanted / 20 > free)
    fail(Exit::data, "{} has {} free, but the shards need {}. lower --samples, or name another --dir", folder_.string(),
         format_bytes(free), format_bytes(wanted));
  const std::int64_t each = std::max<std::int64_t>(1, file_bytes / sample_bytes),
                     shards = samples / each + (samples % each != 0);
  for (std::int64_t s = 0; s < shards; ++s)
    write_shard(shard_path(folder_, stem_, s), samples * (s + 1) / shards - samples * s / shards, sample_bytes);
}

void BenchShards::remove() noexcept {
  if (!mine_ || !made_ || keep_) return;
  made_ = false;
  std::error_code ignored;
  for (std::int64_t s = 0;; ++s) {
    const std::filesystem::path path = shard_path(folder_, stem_, s);
    const bool part = std::filesystem::remove(path.string() + ".part", ignored);
    if (!std::filesystem::remove(path, ignored) && !part) break;
  }
  if (removes_folder_) std::filesystem::remove(folder_, ignored);
}

}  // namespace millrace
