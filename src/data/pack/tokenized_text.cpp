#include "millrace/data/pack/tokenized_text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "data/pack/pack_common.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/base/units.hpp"
#include "millrace/text/parallel_encoder.hpp"

namespace millrace {
namespace {

constexpr std::size_t block_bytes = 4u << 20, max_threads = 32;  // a block is for one thread

// A file of tokens of 1, 2 or 4 bytes, little-endian as this machine.
class TokenFile {
 public:
  TokenFile(const std::string& path, std::int64_t width)
      : path_(path), width_(std::size_t(width)), out_(path, std::ios::binary | std::ios::trunc) {
    if (!out_) fail(Exit::data, "cannot create {} ({})", path, std::strerror(errno));
  }
  void write(const std::vector<std::int32_t>& tokens) {
    bytes_.resize(tokens.size() * width_);
    for (std::size_t i = 0; i < tokens.size(); ++i) std::memcpy(bytes_.data() + i * width_, &tokens[i], width_);
    out_.write(bytes_.data(), std::streamsize(bytes_.size()));
    check();
  }
  void close() {
    out_.close();
    check();
  }

 private:
  void check() const {
    if (!out_) fail(Exit::data, "cannot write {} ({})", path_, std::strerror(errno));
  }
  std::string path_;
  std::size_t width_;
  std::ofstream out_;
  std::string bytes_;
};

// Returns the bytes of the text.
std::int64_t encode_file(const std::string& path, ParallelEncoder& encoder, std::size_t threads, TokenFile& out,
                         std::int64_t& tokens_written) {
  require_regular_file(path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(Exit::data, "cannot open {} ({})", path, std::strerror(errno));
  std::string block(block_bytes * threads, ' ');
  std::vector<std::int32_t> tokens;
  std::int64_t bytes = 0;
  const std::int64_t replaced = encoder.replaced();
  for (bool more = true; more;) {
    in.read(block.data(), std::streamsize(block.size()));
    if (in.bad()) fail(Exit::data, "cannot read {} ({})", path, std::strerror(errno));
    const auto count = std::size_t(in.gcount());
    more = count == block.size();
    tokens.clear();
    encoder.add(std::string_view(block).substr(0, count), tokens);
    if (!more) encoder.finish(tokens);
    out.write(tokens);
    bytes += std::int64_t(count);
    tokens_written += std::int64_t(tokens.size());
  }
  if (const std::int64_t bad = encoder.replaced() - replaced; bad > 0)
    log::warn(
        fmt::format("{}: {} sequences are not UTF-8 and became U+FFFD. convert the file if it is in another "
                    "encoding",
                    path, bad));
  return bytes;
}

std::int64_t width_of(const Tokenizer& tokenizer) {
  return tokenizer.size() <= 1 << 8 ? 1 : tokenizer.size() <= 1 << 16 ? 2 : 4;
}

}  // namespace

TokenizedText::TokenizedText(World& world, const Tokenizer& tokenizer, const std::vector<std::string>& texts, bool join,
                             const PackOptions& options)
    : writes_(world.rank() == 0), token_bytes_(width_of(tokenizer)) {
  if (join && !tokenizer.end_of_text())
    fail(Exit::config, "--end-of-text: the tokenizer has no token <|endoftext|>. remove it, or use another tokenizer");
  prepare_folder(world, 1, options);
  for (std::size_t i = 0; i < (join ? 1 : texts.size()); ++i)
    files_.push_back((options.out / fmt::format("{}-{}.tokens.tmp", options.prefix, i)).string());
  const std::string problem = message_of([&] {
    if (writes_) write(tokenizer, texts, join);
  });
  if (!problem.empty()) remove_files();
  world.agree(Exit::data, problem);
}

void TokenizedText::remove_files() const noexcept {
  std::error_code none;
  for (const std::string& file : files_)
    if (writes_) std::filesystem::remove(file, none);
}

void TokenizedText::write(const Tokenizer& tokenizer, const std::vector<std::string>& texts, bool join) const {
  const double began = steady_seconds();
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, max_threads);
  ParallelEncoder encoder(tokenizer, threads);
  std::int64_t bytes = 0, tokens = 0;
  std::unique_ptr<TokenFile> out;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!join || i == 0) out = std::make_unique<TokenFile>(files_[i], token_bytes_);
    bytes += encode_file(texts[i], encoder, threads, *out, tokens);
    if (join) {
      out->write({*tokenizer.end_of_text()});
      ++tokens;
    }
    if (!join || i + 1 == texts.size()) out->close();
  }
  const double seconds = steady_seconds() - began;
  log::info(fmt::format("tokenized {} of text: {} tokens, {:.2f} bytes each, in {} ({:.0f} MB/s)",
                        format_bytes(std::uint64_t(bytes)), tokens,
                        double(bytes) / double(std::max<std::int64_t>(1, tokens)), format_seconds(seconds),
                        double(bytes) / 1e6 / std::max(seconds, 1e-9)));
}

}  // namespace millrace
