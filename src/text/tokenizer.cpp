#include "millrace/text/tokenizer.hpp"

#include "millrace/base/error.hpp"

namespace millrace {

Tokenizer::Tokenizer(Vocabulary vocabulary) : v_(std::move(vocabulary)) {
  std::unordered_map<std::string, std::int32_t> numbers;
  for (std::size_t i = 0; i < v_.tokens.size(); ++i)
    if (!v_.tokens[i].empty()) numbers.emplace(v_.tokens[i], std::int32_t(i));
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = numbers.find(std::string(1, char(byte)));
    if (found == numbers.end())
      fail(Exit::data, "the vocabulary has no token for the byte {} (a byte-level tokenizer has one for each)", byte);
    of_byte_[std::size_t(byte)] = found->second;
  }
  for (const auto& [left, right] : v_.merges) {
    const std::string &a = v_.tokens.at(std::size_t(left)), &b = v_.tokens.at(std::size_t(right));
    const auto found = numbers.find(a + b);
    if (found == numbers.end())
      fail(Exit::data, "the vocabulary lacks '{}', the result of the merge '{} {}'", a + b, a, b);
    merges_.emplace(key(left, right), Merge{std::int32_t(merges_.size()), found->second});
  }
}

Tokenizer Tokenizer::bytes() {
  Vocabulary v;
  for (int byte = 0; byte < 256; ++byte) v.tokens.emplace_back(1, char(byte));
  return Tokenizer(std::move(v));
}

std::optional<std::int32_t> Tokenizer::end_of_text() const {
  for (const std::int32_t token : v_.special)
    if (v_.tokens[std::size_t(token)] == "<|endoftext|>") return token;
  return std::nullopt;
}

}  // namespace millrace
