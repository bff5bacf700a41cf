#include "text/byte_pairs.hpp"

namespace millrace {
namespace {

constexpr std::size_t longest_known = 48, most_known = 1 << 18;

}  // namespace

void BytePairs::encode(std::string_view piece, std::vector<std::int32_t>& tokens) {
  if (piece.size() == 1) {
    tokens.push_back(tokenizer_.token_of_byte(std::uint8_t(piece[0])));
    return;
  }
  if (piece.size() > longest_known) return merge(piece, tokens);
  auto known = known_.find(piece);
  if (known == known_.end()) {
    if (known_.size() == most_known) known_.clear();
    known = known_.emplace(std::string(piece), std::vector<std::int32_t>()).first;
    merge(piece, known->second);
  }
  tokens.insert(tokens.end(), known->second.begin(), known->second.end());
}

void BytePairs::propose(std::int32_t at) {
  const Symbol& left = symbols_[std::size_t(at)];
  if (left.next < 0) return;
  const std::int32_t right = symbols_[std::size_t(left.next)].token;
  if (const Tokenizer::Merge* merge = tokenizer_.merge(left.token, right))
    candidates_.push({merge->rank, at, left.token, right, merge->token});
}

void BytePairs::merge(std::string_view piece, std::vector<std::int32_t>& tokens) {
  const auto count = std::int32_t(piece.size());
  symbols_.clear();
  for (std::int32_t i = 0; i < count; ++i)
    symbols_.push_back(
        {tokenizer_.token_of_byte(std::uint8_t(piece[std::size_t(i)])), i - 1, i + 1 < count ? i + 1 : -1});
  for (std::int32_t i = 0; i < count; ++i) propose(i);
  while (!candidates_.empty()) {
    const Candidate best = candidates_.top();
    candidates_.pop();
    Symbol& left = symbols_[std::size_t(best.at)];
    if (left.token != best.left || left.next < 0) continue;
    Symbol& right = symbols_[std::size_t(left.next)];
    if (right.token != best.right) continue;
    left.token = best.token;
    left.next = right.next;
    right.token = -1;  // merged away: what refers to it is stale
    if (left.next >= 0) symbols_[std::size_t(left.next)].previous = best.at;
    if (left.previous >= 0) propose(left.previous);
    propose(best.at);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols_[std::size_t(i)].next) tokens.push_back(symbols_[std::size_t(i)].token);
}

}  // namespace millrace
