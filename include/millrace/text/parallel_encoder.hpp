// ParallelEncoder: a TextEncoder that uses several threads. The tokens are the same.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/text/text_codec.hpp"

namespace millrace {

class ParallelEncoder {
 public:
  // Keeps a reference. threads: at least 1. It uses one if a special token contains white space, and without merges.
  // Text without white space cannot be cut. It is kept up to this size; then one thread encodes it.
  ParallelEncoder(const Tokenizer&, std::size_t threads, std::size_t max_kept_bytes = 64u << 20);
  // As those of TextEncoder. Each call waits for its threads; a text of some MiB for each of them keeps them busy.
  void add(std::string_view text, std::vector<std::int32_t>& tokens);
  void finish(std::vector<std::int32_t>& tokens);
  std::int64_t replaced() const;

 private:
  void encode_kept(std::size_t end, std::vector<std::int32_t>& tokens);

  const std::size_t max_kept_bytes_;
  std::deque<TextEncoder> encoders_;  // one for each thread
  std::string kept_;                  // the text behind the last place where it can be cut
  bool open_ = false;                 // encoders_[0] has text that is not finished
};

}  // namespace millrace
