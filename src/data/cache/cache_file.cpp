#include "data/cache/cache_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/telemetry/json_text.hpp"

namespace millrace {
namespace {

using nlohmann::json;
constexpr std::size_t block_bytes = 4u << 20;

struct OpenFile {
  int fd;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

struct Stamp {
  std::uint64_t bytes = 0;
  std::int64_t mtime = 0;
  bool operator==(const Stamp&) const = default;
};
Stamp stamp_of(const struct stat& s) {
  return {std::uint64_t(s.st_size), std::int64_t(s.st_mtim.tv_sec) * 1'000'000'000 + s.st_mtim.tv_nsec};
}

std::string system_error(const char* doing, const std::string& path) {
  return fmt::format("cannot {} {} ({})", doing, path, std::strerror(errno));
}

CacheFileResult write_failed(const char* doing, const std::string& path) {
  return {CacheFileResult::full, system_error(doing, path)};
}

// Reads a file block by block and returns its size; none: an error, or `ending` was set.
std::optional<std::uint64_t> for_each_block(int fd, const std::atomic<bool>* ending,
                                            const std::function<bool(const char*, std::size_t, std::uint64_t)>& use) {
  std::vector<char> block(block_bytes);
  for (std::uint64_t at = 0;;) {
    if (ending && *ending) return std::nullopt;
    const ssize_t n = ::pread(fd, block.data(), block.size(), off_t(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return at;
    if (!use(block.data(), std::size_t(n), at)) return std::nullopt;
    at += std::uint64_t(n);
  }
}

std::optional<std::uint32_t> checksum_of(int fd, const std::atomic<bool>* ending) {
  std::uint32_t sum = 0;
  const auto read = for_each_block(fd, ending, [&](const char* data, std::size_t n, std::uint64_t) {
    sum = crc32(data, n, sum);
    return true;
  });
  return read ? std::optional(sum) : std::nullopt;
}

std::string record_of(const std::string& copy) { return copy + ".json"; }

// As the public function of this name. sum: receives the checksum of the record.
std::string copy_record_problem(const std::string& path, const std::string& copy, const Stamp& source,
                                std::uint32_t& sum) {
  std::ifstream in(record_of(copy));
  if (!in) return "none";
  const json record = json::parse(in, nullptr, false);
  if (record.is_discarded() || !record.is_object()) return "its record is damaged";
  const std::string named = json::parse(json_text(json(path)));  // as the record spells it
  if (record.value("source", "") != named || record.value("bytes", std::uint64_t(0)) != source.bytes ||
      record.value("mtime_ns", std::int64_t(0)) != source.mtime)
    return "the source has changed since";
  struct stat status {};
  if (::stat(copy.c_str(), &status) != 0) return system_error("open", copy);
  if (std::uint64_t(status.st_size) != source.bytes) return "its length is wrong";
  sum = record.value("crc32", std::uint32_t(0));
  return "";
}

// The same, and compares the checksum of the copy with that of the record.
std::string copy_problem(const CacheFileRequest& r, const Stamp& source) {
  std::uint32_t expected = 0;
  if (const std::string problem = copy_record_problem(r.source, r.copy, source, expected); !problem.empty())
    return problem;
  const OpenFile copy{::open(r.copy.c_str(), O_RDONLY | O_CLOEXEC)};
  if (copy.fd < 0) return system_error("open", r.copy);
  const auto sum = checksum_of(copy.fd, r.ending);
  return sum && *sum == expected ? "" : "its checksum is wrong";
}

// Creates and locks <copy>.part. Another process may have renamed or removed the file between open() and flock(): then
// the name belongs to another file, and this tries again.
OpenFile lock_part(const std::string& path, bool& busy) {
  busy = false;
  for (int tries = 0; tries < 10; ++tries) {
    OpenFile part{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)};
    if (part.fd < 0) return {-1};
    busy = ::flock(part.fd, LOCK_EX | LOCK_NB) != 0;
    if (busy) return {-1};
    struct stat mine {
    }, named{};
    if (::fstat(part.fd, &mine) == 0 && ::stat(path.c_str(), &named) == 0 && mine.st_ino == named.st_ino)
      return {std::exchange(part.fd, -1)};
  }
  busy = true;
  return {-1};
}

bool write_fully(int fd, const char* data, std::size_t bytes, std::uint64_t at) {
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, data, bytes, off_t(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data += n;
    bytes -= std::size_t(n);
    at += std::uint64_t(n);
  }
  return true;
}

// Copies the source to the open .part file, which the caller renames or removes.
CacheFileResult fill(const CacheFileRequest& r, int source, int part, std::uint32_t& sum) {
  if (::ftruncate(part, 0) != 0) return write_failed("empty", r.copy + ".part");
  if (const int error = ::posix_fallocate(part, 0, off_t(std::max<std::uint64_t>(1, r.bytes))); error != 0) {
    errno = error;
    return write_failed("allocate space for", r.copy);
  }
  bool wrote = true;
  sum = 0;
  const auto read = for_each_block(source, r.ending, [&](const char* data, std::size_t n, std::uint64_t at) {
    sum = crc32(data, n, sum);
    wrote = write_fully(part, data, n, at);
    return wrote;
  });
  if (!wrote) return write_failed("write", r.copy);
  if (r.ending && *r.ending) return {CacheFileResult::ended, ""};
  if (!read) return {CacheFileResult::source_failed, system_error("read", r.source)};
  if (*read != r.bytes)
    return {CacheFileResult::source_failed, fmt::format("{} changed while it was copied", r.source)};
  if (::ftruncate(part, off_t(r.bytes)) != 0 || ::fdatasync(part) != 0) return write_failed("write", r.copy);
  const auto written = checksum_of(part, r.ending);
  if (r.ending && *r.ending) return {CacheFileResult::ended, ""};
  if (!written || *written != sum)
    return {CacheFileResult::full, fmt::format("{} reads back with another checksum than was written", r.copy)};
  return {CacheFileResult::copied, ""};
}

}  // namespace

std::string copy_record_problem(const std::string& source, const std::string& copy) {
  struct stat status {};
  if (::stat(source.c_str(), &status) != 0) return system_error("open", source);
  std::uint32_t sum = 0;
  return copy_record_problem(source, copy, stamp_of(status), sum);
}

CacheFileResult cache_file(const CacheFileRequest& r) {
  const OpenFile source{::open(r.source.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat status {};
  if (source.fd < 0 || ::fstat(source.fd, &status) != 0)
    return {CacheFileResult::source_failed, system_error("open", r.source)};
  const Stamp before = stamp_of(status);
  if (before.bytes != r.bytes)
    return {CacheFileResult::source_failed, fmt::format("{} has changed since the start", r.source)};
  std::string problem = "none";
  if (r.keep) problem = copy_problem(r, before);
  if (problem.empty()) return {CacheFileResult::reused, ""};
  if (r.ending && *r.ending) return {CacheFileResult::ended, ""};

  const std::string part_path = r.copy + ".part";
  bool busy = false;
  const OpenFile part = lock_part(part_path, busy);
  if (busy) return {CacheFileResult::busy, ""};
  if (part.fd < 0) return write_failed("create", part_path);
  // Another process may have made the copy between the check and the lock.
  if (r.keep && copy_problem(r, before).empty()) {
    ::unlink(part_path.c_str());
    return {CacheFileResult::reused, ""};
  }
  const auto remove_part = [&](CacheFileResult result) {
    ::unlink(part_path.c_str());
    return result;
  };
  if (const std::string why = r.space_problem(r.bytes); !why.empty()) return remove_part({CacheFileResult::full, why});
  std::uint32_t sum = 0;
  if (const CacheFileResult result = fill(r, source.fd, part.fd, sum); result.kind != CacheFileResult::copied)
    return remove_part(result);
  if (::fstat(source.fd, &status) != 0 || stamp_of(status) != before)
    return remove_part({CacheFileResult::source_failed, fmt::format("{} changed while it was copied", r.source)});
  // The old record is removed first and the new one is written last, so a record never describes another copy. A copy
  // without a record is made again.
  const std::string record = record_of(r.copy), record_part = record + ".part";
  ::unlink(record.c_str());
  if (::rename(part_path.c_str(), r.copy.c_str()) != 0) return remove_part(write_failed("rename", r.copy));
  if (r.keep) {
    std::ofstream out(record_part);
    out << json_text(json{{"source", r.source}, {"bytes", before.bytes}, {"mtime_ns", before.mtime}, {"crc32", sum}})
        << "\n";
    out.close();
    if (!out || ::rename(record_part.c_str(), record.c_str()) != 0) ::unlink(record_part.c_str());
  }
  return {CacheFileResult::copied, problem == "none" ? "" : problem};
}

}  // namespace millrace
