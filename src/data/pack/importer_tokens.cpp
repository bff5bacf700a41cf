// Imports raw tokens, or the bytes of a text, in windows of context + 1 tokens that overlap by one. So each token
// except the first of a file is predicted once. A window contains its own targets, shifted by one; y is -1 (no label).
// A rest that is shorter than a window is dropped.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "data/pack/importers.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace {

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) {
    require_regular_file(path);
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) fail(Exit::data, "cannot open {} ({})", path, std::strerror(errno));
  }
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  operator int() const { return fd_; }

 private:
  int fd_ = -1;
};

class Tokens : public Importer {
 public:
  explicit Tokens(const ImportOptions& o)
      : context_(o.context), width_(o.token_bytes), vocabulary_(o.vocabulary), tokenizer_(o.tokenizer) {
    if (!o.y.empty()) fail(Exit::config, "tokens are their own targets. remove --y");
    if (context_ < 1) fail(Exit::config, "tokens need --context N, the length of what a sample predicts");
    if (width_ != 1 && width_ != 2 && width_ != 4) fail(Exit::config, "tokens of {} bytes are not read", width_);
    for (const auto& path : o.x) open(path);
    if (rows_ == 0)
      fail(Exit::data, "{} holds {} tokens, fewer than a window of {}. lower --context", o.x[0], tokens_, context_ + 1);
  }
  std::int64_t rows() const override { return rows_; }
  Shape sample() const override { return Shape{context_ + 1}; }
  bool channels_first() const override { return false; }
  DType x_dtype() const override { return width_ == 1 ? DType::u8 : width_ == 2 ? DType::u16 : DType::i32; }
  DType y_dtype() const override { return DType::i32; }
  Shape target() const override { return {}; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::string tokenizer() const override { return tokenizer_; }
  bool random_access() const override { return true; }
  void read(std::int64_t begin, std::int64_t count, void* x, void* y) const override {
    auto* to = static_cast<char*>(x);
    const std::size_t bytes = std::size_t((context_ + 1) * width_);
    for (std::int64_t row = begin; row < begin + count; ++row, to += bytes) {
      const auto part = std::prev(std::upper_bound(parts_.begin(), parts_.end(), row,
                                                   [](std::int64_t r, const Part& p) { return r < p.first; }));
      read_window(*part, row, to, bytes);
    }
    std::fill_n(static_cast<std::int32_t*>(y), count, -1);
  }
  std::string describe() const override {
    return fmt::format("{}{}: {} tokens of {}{}{} windows of {}, {} left at the ends", parts_[0].path,
                       parts_.size() > 1 ? fmt::format(" and {} more", parts_.size() - 1) : std::string(), tokens_,
                       width_, width_ == 1 ? " byte, " : " bytes, ", rows_, context_ + 1, dropped_);
  }

 private:
  struct Part {
    std::string path;
    OpenFile fd;
    std::int64_t first;
  };

  void open(const std::string& path) {
    OpenFile fd(path);
    struct stat about {};
    if (::fstat(fd, &about) != 0) fail(Exit::data, "cannot read {} ({})", path, std::strerror(errno));
    const std::int64_t bytes = about.st_size;
    if (bytes % width_ != 0)
      fail(Exit::data, "{} holds {} bytes, which is not a multiple of the {} bytes of a token. check --tokens", path,
           bytes, width_);
    const std::int64_t tokens = bytes / width_, windows = tokens > context_ ? (tokens - 1) / context_ : 0;
    dropped_ += windows > 0 ? tokens - windows * context_ - 1 : tokens;
    if (windows > 0) parts_.push_back({path, std::move(fd), rows_});
    tokens_ += tokens;
    rows_ += windows;
  }

  void read_window(const Part& part, std::int64_t row, char* to, std::size_t bytes) const {
    const std::int64_t at = (row - part.first) * context_ * width_;
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t n = ::pread(part.fd, to + done, bytes - done, at + off_t(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(Exit::data, "cannot read {} ({})", part.path, n < 0 ? std::strerror(errno) : "cut off");
      done += std::size_t(n);
    }
    for (std::size_t i = 0; width_ == 4 && i <= std::size_t(context_); ++i) {
      std::int32_t token = 0;
      std::memcpy(&token, to + 4 * i, 4);
      if (token < 0)
        fail(Exit::data, "{} holds the token {} at {}: they are packed as int32, up to 2147483647", part.path,
             std::uint32_t(token), at / 4 + std::int64_t(i));
    }
  }

  const std::int64_t context_, width_, vocabulary_;
  const std::string tokenizer_;
  std::int64_t rows_ = 0, tokens_ = 0, dropped_ = 0;
  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<Importer> import_tokens(const ImportOptions& o) { return std::make_unique<Tokens>(o); }

}  // namespace millrace
