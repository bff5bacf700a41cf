// Text to tokens and back, as streams. Both keep only the text whose tokens are not certain yet.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/text/tokenizer.hpp"

namespace millrace {

// The tokens do not depend on how the text is cut for add(). Special tokens such as <|endoftext|> in the text become
// their tokens. Each invalid UTF-8 sequence is replaced by U+FFFD, as Python's errors="replace" does; a tokenizer
// without merges takes the bytes as they are.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer&);  // keeps a reference
  ~TextEncoder();
  // Appends the tokens that are certain.
  void add(std::string_view text, std::vector<std::int32_t>& tokens);
  void finish(std::vector<std::int32_t>& tokens);  // the end of the text; another one may follow
  std::int64_t replaced() const;                   // invalid sequences so far, over all texts

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::vector<std::int32_t> encode(const Tokenizer&, std::string_view text);

// Gives valid UTF-8: a character whose bytes are spread over several tokens comes with the last one; invalid sequences
// become U+FFFD.
class TextDecoder {
 public:
  explicit TextDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // The text that `token` completes. A token that the vocabulary lacks becomes U+FFFD.
  std::string add(std::int32_t token);
  std::string finish();  // what remains: U+FFFD for an incomplete character, or ""

 private:
  const Tokenizer& tokenizer_;
  std::string tail_;
};

}  // namespace millrace
