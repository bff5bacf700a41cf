// BytePairs: merges the bytes of pieces. Keeps the tokens of the pieces that it has seen, since few words make most of
// a text.
#pragma once
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "millrace/text/tokenizer.hpp"

namespace millrace {

class BytePairs {
 public:
  explicit BytePairs(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void encode(std::string_view piece, std::vector<std::int32_t>& tokens);

 private:
  struct Symbol {  // of a list
    std::int32_t token, previous, next;
  };
  struct Candidate {  // a merge of the symbol at `at` and the next one; stale if their tokens have changed
    std::int32_t rank, at, left, right, token;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  void merge(std::string_view piece, std::vector<std::int32_t>& tokens);
  void propose(std::int32_t at);

  const Tokenizer& tokenizer_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
  std::unordered_map<std::string, std::vector<std::int32_t>, Hash, std::equal_to<>> known_;
};

}  // namespace millrace
