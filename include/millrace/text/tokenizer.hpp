// Tokenizer: byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019). Text is split into pieces by
// GPT-2's pattern; the bytes of a piece are merged pair by pair, in the order in which the merges were learned. Without
// merges each byte is a token. Immutable; threads may share one. TextEncoder and TextDecoder (text_codec.hpp) use it.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace millrace {

class Tokenizer {
 public:
  struct Vocabulary {
    std::vector<std::string> tokens;                            // by number: the bytes; empty: the number is not used
    std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // pairs of tokens, the first learned first
    std::vector<std::int32_t> special;  // tokens whose text is found before it is split into pieces
  };
  // Error(data): a byte has no token, or a merge gives bytes that have none.
  explicit Tokenizer(Vocabulary);

  static Tokenizer bytes();  // 256 tokens: the bytes
  // vocab.json and merges.txt as published with GPT-2. <|endoftext|> is a special token if the vocabulary has it.
  // Error(data): the text of a file is damaged; the message has its name.
  struct NamedText {
    std::string name, text;
  };
  static Tokenizer gpt2(const NamedText& vocab, const NamedText& merges);
  // The tokenizer.json of the library `tokenizers`, as to_json() writes it. Error(data): it is damaged, or describes
  // another kind of tokenizer.
  static Tokenizer parse(const NamedText&);
  std::string to_json() const;

  std::int64_t size() const { return std::int64_t(v_.tokens.size()); }  // 1 + the largest token
  const Vocabulary& vocabulary() const { return v_; }
  std::int32_t token_of_byte(unsigned char byte) const { return of_byte_[byte]; }
  std::optional<std::int32_t> end_of_text() const;  // the special token <|endoftext|>

  struct Merge {
    std::int32_t rank, token;
  };
  // Of two adjacent tokens; null: they are not merged.
  const Merge* merge(std::int32_t left, std::int32_t right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  bool merges_nothing() const { return merges_.empty(); }

 private:
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
  }
  Vocabulary v_;
  std::array<std::int32_t, 256> of_byte_;
  std::unordered_map<std::uint64_t, Merge> merges_;
};

}  // namespace millrace
