#include "millrace/text/text_codec.hpp"

#include <algorithm>

#include "text/byte_pairs.hpp"
#include "text/split.hpp"
#include "text/utf8.hpp"

namespace millrace {
namespace {

// Moves the valid UTF-8 of `from` to `to`, with U+FFFD for what is invalid, and returns how often. An incomplete
// character stays in `from`, unless the text ends here.
std::int64_t move_valid(std::string& from, std::string& to, bool ends) {
  std::int64_t replaced = 0;
  std::size_t copied = 0, at = 0;  // [copied, at) is valid and not copied yet
  while (at < from.size()) {
    const Character c = character_at(from, at);
    if (c.cut_off && !ends) break;
    if (!c.valid) {
      to.append(from, copied, at - copied);
      to += replacement_text;
      copied = at + c.bytes;
      ++replaced;
    }
    at += c.bytes;
  }
  to.append(from, copied, at - copied);
  from.erase(0, at);
  return replaced;
}

}  // namespace

struct TextEncoder::Impl {
  explicit Impl(const Tokenizer& t) : tokenizer(t), pairs(t), bytes_only(t.merges_nothing()) {
    for (const std::int32_t token : t.vocabulary().special)
      longest_special = std::max(longest_special, text(token).size());
  }
  const std::string& text(std::int32_t token) const { return tokenizer.vocabulary().tokens[std::size_t(token)]; }

  // The first special token at or after text[at], and of several there the longest. -1: none.
  std::int32_t find_special(std::size_t at, std::size_t& found) const {
    std::int32_t best = -1;
    found = std::string::npos;
    for (const std::int32_t token : tokenizer.vocabulary().special)
      if (const std::size_t where = pending.find(text(token), at);
          where < found || (where == found && best >= 0 && text(token).size() > text(best).size())) {
        best = token;
        found = where;
      }
    return best;
  }

  // Encodes pending[at, end). final_to: pieces that end behind it are left. Returns the end of the last piece.
  std::size_t encode_pieces(std::size_t at, std::size_t end, std::size_t final_to, std::vector<std::int32_t>& tokens) {
    const std::string_view part = std::string_view(pending).substr(0, end);
    while (at < end) {
      const std::size_t next = bytes_only ? std::min(end, final_to) : piece_end(part, at);
      if (next > final_to || next <= at) break;
      if (bytes_only)
        for (std::size_t i = at; i < next; ++i) tokens.push_back(tokenizer.token_of_byte(std::uint8_t(pending[i])));
      else
        pairs.encode(part.substr(at, next - at), tokens);
      at = next;
    }
    return at;
  }

  void encode_pending(bool ends, std::vector<std::int32_t>& tokens) {
    std::size_t at = 0, found = 0;
    for (std::int32_t special; (special = find_special(at, found)) >= 0; at = found + text(special).size()) {
      encode_pieces(at, found, found, tokens);
      tokens.push_back(special);
    }
    // A piece is certain if the next two characters are known, and that no special token begins there.
    const std::size_t margin = longest_special + 8;
    const std::size_t final_to = ends ? pending.size() : pending.size() - std::min(margin, pending.size());
    at = encode_pieces(at, pending.size(), final_to, tokens);
    pending.erase(0, at);
  }

  const Tokenizer& tokenizer;
  BytePairs pairs;
  const bool bytes_only;
  std::size_t longest_special = 0;
  std::string tail;     // bytes that were not checked yet, or an incomplete character
  std::string pending;  // valid text whose tokens are not certain
  std::int64_t replaced = 0;
};

TextEncoder::TextEncoder(const Tokenizer& tokenizer) : impl_(std::make_unique<Impl>(tokenizer)) {}
TextEncoder::~TextEncoder() = default;
std::int64_t TextEncoder::replaced() const { return impl_->replaced; }

void TextEncoder::add(std::string_view text, std::vector<std::int32_t>& tokens) {
  if (impl_->bytes_only) {
    impl_->pending += text;
  } else {
    impl_->tail += text;
    impl_->replaced += move_valid(impl_->tail, impl_->pending, false);
  }
  impl_->encode_pending(false, tokens);
}

void TextEncoder::finish(std::vector<std::int32_t>& tokens) {
  impl_->replaced += move_valid(impl_->tail, impl_->pending, true);
  impl_->encode_pending(true, tokens);
}

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  TextEncoder encoder(tokenizer);
  std::vector<std::int32_t> tokens;
  encoder.add(text, tokens);
  encoder.finish(tokens);
  return tokens;
}

std::string TextDecoder::add(std::int32_t token) {
  const auto& tokens = tokenizer_.vocabulary().tokens;
  const bool known = token >= 0 && std::size_t(token) < tokens.size() && !tokens[std::size_t(token)].empty();
  tail_ += known ? std::string_view(tokens[std::size_t(token)]) : replacement_text;
  std::string out;
  move_valid(tail_, out, false);
  return out;
}

std::string TextDecoder::finish() {
  std::string out;
  move_valid(tail_, out, true);
  return out;
}

}  // namespace millrace
