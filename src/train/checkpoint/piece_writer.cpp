#include "train/checkpoint/piece_writer.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/units.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

// The checksum is computed block by block just before the block is written, while it is in the cache.
constexpr std::size_t block_bytes = 1 << 20;

// Returns errno, or 0.
int write_piece(int fd, const BufferedPiece& piece, std::uint32_t& checksum) {
  for (std::size_t block = 0; block < piece.bytes; block += block_bytes) {
    const std::size_t end = std::min(piece.bytes, block + block_bytes);
    watchdog::beat();
    checksum = crc32(piece.data + block, end - block, checksum);
    for (std::size_t at = block; at < end;) {
      const ssize_t n = ::pwrite(fd, piece.data + at, end - at, off_t(piece.offset + at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      at += std::size_t(n);
    }
  }
  return 0;
}

}  // namespace

void allocate_file(const std::filesystem::path& path, const char* what) {
  const std::uintmax_t bytes = std::filesystem::file_size(path);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    if (::fallocate(fd, 0, 0, off_t(bytes)) != 0) error = errno;
    ::close(fd);
  }
  if (error == 0 || error == EOPNOTSUPP || error == ENOSYS) return;
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(path, unknown);
  if (error == ENOSPC && !unknown)
    fail(Exit::data, "{} has only {} free, but {} needs {}", path.has_parent_path() ? path.parent_path().string() : ".",
         format_bytes(space.available), what, format_bytes(bytes));
  fail(Exit::data, "cannot allocate {} for {} ({})", format_bytes(bytes), path.string(), std::strerror(error));
}

WrittenPieces write_pieces(const std::filesystem::path& path, const std::vector<BufferedPiece>& pieces) {
  WrittenPieces out;
  out.checksums.assign(pieces.size(), 0);
  if (pieces.empty()) return out;
  const watchdog::PartScope part(watchdog::Part::checkpoint);
  const watchdog::WaitScope waits(watchdog::Wait::file);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  for (std::size_t p = 0; p < pieces.size() && error == 0; ++p) error = write_piece(fd, pieces[p], out.checksums[p]);
  if (error == 0 && ::fsync(fd) != 0) error = errno;
  if (fd >= 0 && ::close(fd) != 0 && error == 0) error = errno;  // NFS reports failed writes here
  if (error != 0) out.problem = fmt::format("cannot write {} ({})", path.string(), std::strerror(error));
  return out;
}

}  // namespace millrace
