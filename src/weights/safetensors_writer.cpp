#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/weights/safetensors.hpp"

namespace millrace {
namespace {

constexpr std::size_t header_alignment = 64;

std::uint64_t bytes_of(const SafetensorsWriter::Entry& entry) {
  std::uint64_t out = entry.type == "I64" ? 8 : 4;
  MR_CHECK(entry.type == "I64" || entry.type == "F32", "the type {} is not written", entry.type);
  for (const std::int64_t extent : entry.shape) out *= std::uint64_t(extent);
  return out;
}

// A file that no other writer uses, beside the final one.
int create_aside(const std::filesystem::path& path, std::filesystem::path& aside) {
  for (int number = 0;; ++number) {
    aside = path.parent_path() / fmt::format(".{}.{}-{}.tmp", path.filename().string(), ::getpid(), number);
    const int fd = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    constexpr int most = 100;
    if (fd >= 0 || errno != EEXIST || number == most) return fd;
  }
}

}  // namespace

void require_own_safetensors(const std::filesystem::path& path) {
  require_regular_file(path);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return;
  try {
    if (SafetensorsFile(path).metadata().contains(written_by_key)) return;
  } catch (const Error&) {  // damaged, or another format
  }
  fail(Exit::data, "{} exists and was not written by millrace. name another file, or remove this one", path.string());
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<Entry>& entries,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path) {
  require_own_safetensors(path);
  nlohmann::json header;
  header["__metadata__"] = metadata;
  for (const Entry& e : entries) {
    const std::uint64_t end = left_ + bytes_of(e);
    header[e.name] = {{"dtype", e.type}, {"shape", e.shape}, {"data_offsets", {left_, end}}};
    left_ = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((8 + text.size() + header_alignment - 1) / header_alignment * header_alignment - 8, ' ');
  const std::uint64_t length = text.size();
  fd_ = create_aside(path_, aside_);
  if (fd_ < 0) fail(Exit::data, "cannot create {} ({})", path_.string(), std::strerror(errno));
  left_ += sizeof length + length;
  try {
    write(&length, sizeof length);
    write(text.data(), text.size());
  } catch (const Error&) {
    remove();
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() { remove(); }

void SafetensorsWriter::remove() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void SafetensorsWriter::write(const void* data, std::size_t bytes) {
  MR_CHECK(bytes <= left_, "{}: more values than its tensors have", path_.string());
  left_ -= bytes;
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(fd_, static_cast<const char*>(data) + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Exit::data, "cannot write {} ({})", path_.string(), std::strerror(errno));
    done += std::size_t(n);
  }
}

void SafetensorsWriter::finish() {
  MR_CHECK(left_ == 0, "{}: {} bytes of values are missing", path_.string(), left_);
  int error = ::fsync(fd_) != 0 ? errno : 0;
  if (::close(std::exchange(fd_, -1)) != 0 && error == 0) error = errno;  // NFS reports failed writes here
  if (error != 0) fail(Exit::data, "cannot write {} ({})", path_.string(), std::strerror(error));
  rename_durably(aside_, path_);
  aside_.clear();
}

}  // namespace millrace
