#include "millrace/text/parallel_encoder.hpp"

#include <algorithm>
#include <future>

#include "text/split.hpp"
#include "text/utf8.hpp"

namespace millrace {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Whether the text can be cut before text[at]: pieces begin, but never go on, with a white space behind another
// character.
bool is_cut(std::string_view text, std::size_t at) {
  if (at == 0 || !is_space(text[at]) || is_space(text[at - 1])) return false;
  std::size_t before = at - 1;
  while (before > 0 && at - before < 4 && (std::uint8_t(text[before]) & 0xC0) == 0x80) --before;
  const Character c = character_at(text.substr(0, at), before);
  return c.valid && before + c.bytes == at && class_of(c.code) != CharacterClass::space;
}

// The last cut up to text[end]; 0: there is none.
std::size_t last_cut(std::string_view text, std::size_t end) {
  for (std::size_t at = std::min(end + 1, text.size()); at-- > 1;)
    if (is_cut(text, at)) return at;
  return 0;
}
std::size_t first_cut(std::string_view text) {
  for (std::size_t at = 1; at < text.size(); ++at)
    if (is_cut(text, at)) return at;
  return 0;
}

}  // namespace

ParallelEncoder::ParallelEncoder(const Tokenizer& tokenizer, std::size_t threads, std::size_t max_kept_bytes)
    : max_kept_bytes_(max_kept_bytes) {
  if (tokenizer.merges_nothing()) threads = 1;
  for (const std::int32_t token : tokenizer.vocabulary().special)
    if (std::ranges::any_of(tokenizer.vocabulary().tokens[std::size_t(token)], is_space)) threads = 1;
  for (std::size_t i = 0; i < threads; ++i) encoders_.emplace_back(tokenizer);
}

std::int64_t ParallelEncoder::replaced() const {
  std::int64_t sum = 0;
  for (const TextEncoder& encoder : encoders_) sum += encoder.replaced();
  return sum;
}

void ParallelEncoder::add(std::string_view text, std::vector<std::int32_t>& tokens) {
  if (encoders_.size() == 1) return encoders_[0].add(text, tokens);
  if (open_) {
    const std::size_t cut = first_cut(text);
    encoders_[0].add(text.substr(0, cut > 0 ? cut : text.size()), tokens);
    if (cut == 0) return;
    encoders_[0].finish(tokens);
    open_ = false;
    text.remove_prefix(cut);
  }
  kept_ += text;
  if (const std::size_t end = last_cut(kept_, kept_.size()); end > 0) return encode_kept(end, tokens);
  if (kept_.size() <= max_kept_bytes_) return;
  encoders_[0].add(kept_, tokens);
  kept_.clear();
  open_ = true;
}

void ParallelEncoder::finish(std::vector<std::int32_t>& tokens) {
  if (!kept_.empty()) encoders_[0].add(kept_, tokens);
  kept_.clear();
  encoders_[0].finish(tokens);
  open_ = false;
}

void ParallelEncoder::encode_kept(std::size_t end, std::vector<std::int32_t>& tokens) {
  std::vector<std::future<std::vector<std::int32_t>>> parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < encoders_.size(); ++i) {
    const std::size_t cut = i + 1 == encoders_.size() ? end : last_cut(kept_, end / encoders_.size() * (i + 1));
    if (cut <= begin) continue;
    parts.push_back(std::async(std::launch::async,
                               [&encoder = encoders_[i], part = std::string_view(kept_).substr(begin, cut - begin)] {
                                 std::vector<std::int32_t> out;
                                 encoder.add(part, out);
                                 encoder.finish(out);
                                 return out;
                               }));
    begin = cut;
  }
  for (auto& part : parts) {
    const std::vector<std::int32_t> of_part = part.get();
    tokens.insert(tokens.end(), of_part.begin(), of_part.end());
  }
  kept_.erase(0, end);
}

}  // namespace millrace
