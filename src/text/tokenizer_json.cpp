// Tokenizers as text. In these files each byte is one printable character: the bytes that are printable in Latin-1 are
// themselves, the others are U+0100, U+0101 and so on, in the order of the bytes.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/text/tokenizer.hpp"
#include "text/utf8.hpp"

namespace millrace {
namespace {

using nlohmann::json;
using Vocabulary = Tokenizer::Vocabulary;

std::uint32_t character_of(int byte) {
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; };
  if (printable(byte)) return std::uint32_t(byte);
  std::uint32_t code = 256;
  for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  return code;
}

// The characters of the bytes, in UTF-8; all of them have one or two bytes.
const std::array<std::string, 256>& characters() {
  static const auto table = [] {
    std::array<std::string, 256> out;
    for (int byte = 0; byte < 256; ++byte) {
      const std::uint32_t code = character_of(byte);
      out[std::size_t(byte)] =
          code < 0x80 ? std::string(1, char(code)) : std::string{char(0xC0 | code >> 6), char(0x80 | (code & 0x3F))};
    }
    return out;
  }();
  return table;
}

std::string to_characters(const std::string& bytes) {
  std::string out;
  for (const char byte : bytes) out += characters()[std::uint8_t(byte)];
  return out;
}

// nullopt: a character stands for no byte.
std::optional<std::string> to_bytes(const std::string& text) {
  static const auto byte_of = [] {
    std::unordered_map<std::uint32_t, char> out;
    for (int byte = 0; byte < 256; ++byte) out[character_of(byte)] = char(byte);
    return out;
  }();
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const auto found = byte_of.find(c.code);
    if (found == byte_of.end()) return std::nullopt;
    out += found->second;
    at += c.bytes;
  }
  return out;
}

constexpr std::int64_t max_tokens = 1 << 26;

void put_token(Vocabulary& v, std::int64_t number, std::string bytes) {
  if (number < 0 || number >= max_tokens || bytes.empty())
    fail(Exit::data, "the token '{}' has the number {}", bytes, number);
  if (std::size_t(number) >= v.tokens.size()) v.tokens.resize(std::size_t(number) + 1);
  std::string& token = v.tokens[std::size_t(number)];
  if (!token.empty() && token != bytes) fail(Exit::data, "'{}' and '{}' are both token {}", token, bytes, number);
  token = std::move(bytes);
}

using Numbers = std::unordered_map<std::string, std::int32_t>;  // by the text in the file

Numbers read_tokens(const json& object, Vocabulary& v) {
  Numbers numbers;
  for (const auto& [text, number] : object.items()) {
    put_token(v, number.get<std::int64_t>(), to_bytes(text).value_or(text));
    numbers.emplace(text, number.get<std::int32_t>());
  }
  return numbers;
}

void add_merge(Vocabulary& v, const Numbers& numbers, const std::string& line) {
  const std::size_t space = line.find(' ');
  const auto left = numbers.find(line.substr(0, space));
  const auto right = space == std::string::npos ? numbers.end() : numbers.find(line.substr(space + 1));
  if (left == numbers.end() || right == numbers.end())
    fail(Exit::data, "the merge '{}' does not consist of two tokens of the vocabulary", line);
  v.merges.emplace_back(left->second, right->second);
}

// Runs `read` and puts the name of the file in front of the message of an error.
template <class F>
auto named(const std::string& name, const char* what, F read) {
  try {
    return read();
  } catch (const json::exception& e) {
    fail(Exit::data, "{} is not {} ({})", name, what, e.what());
  } catch (const Error& e) {
    fail(e.code(), "{} is not {}: {}", name, what, e.what());
  }
}

// Error(data) for what this program would do otherwise than the library.
void require_supported(const json& j) {
  const auto refuse = [](const std::string& what) {
    fail(Exit::data, "{} is not supported. use a byte-level BPE tokenizer with the pattern of GPT-2", what);
  };
  const json model = j.at("model"), split = j.value("pre_tokenizer", json());
  if (model.value("type", "BPE") != "BPE") refuse("the model " + model.at("type").dump());
  for (const char* option :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"})
    if (const json value = model.value(option, json());
        !value.is_null() && value != "" && value != false && value != 0.0)
      refuse(fmt::format("model.{} = {}", option, value.dump()));
  if (const json value = j.value("normalizer", json()); !value.is_null()) refuse("a normalizer");
  if (!split.is_object() || split.value("type", "") != "ByteLevel" || split.value("add_prefix_space", true) ||
      !split.value("use_regex", true))
    refuse("the pre_tokenizer " + split.dump());
}

}  // namespace

Tokenizer Tokenizer::gpt2(const NamedText& vocab, const NamedText& merges) {
  Vocabulary v;
  const Numbers numbers = named(vocab.name, "a vocabulary such as GPT-2's vocab.json",
                                [&] { return read_tokens(json::parse(vocab.text), v); });
  if (const auto end = numbers.find("<|endoftext|>"); end != numbers.end()) v.special.push_back(end->second);
  return named(merges.name, "a list of merges such as GPT-2's merges.txt for this vocabulary", [&] {
    std::istringstream lines(merges.text);
    bool first = true;
    for (std::string line; std::getline(lines, line); first = false) {
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty() || (first && line.starts_with("#version"))) continue;
      add_merge(v, numbers, line);
    }
    if (v.merges.empty()) fail(Exit::data, "it has no merges");
    return Tokenizer(std::move(v));
  });
}

Tokenizer Tokenizer::parse(const NamedText& file) {
  return named(file.name, "a tokenizer", [&] {
    const json j = json::parse(file.text);
    require_supported(j);
    Vocabulary v;
    const Numbers numbers = read_tokens(j.at("model").at("vocab"), v);
    for (const json& merge : j.at("model").at("merges"))
      add_merge(v, numbers,
                merge.is_string() ? merge.get<std::string>()
                                  : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
    for (const json& added : j.value("added_tokens", json::array())) {
      put_token(v, added.at("id").get<std::int64_t>(), added.at("content").get<std::string>());
      v.special.push_back(added.at("id").get<std::int32_t>());
    }
    return Tokenizer(std::move(v));
  });
}

std::string Tokenizer::to_json() const {
  json vocab = json::object(), merges = json::array(), added = json::array();
  for (std::size_t i = 0; i < v_.tokens.size(); ++i)
    if (!v_.tokens[i].empty()) vocab[to_characters(v_.tokens[i])] = i;
  const auto text_of = [&](std::int32_t token) { return to_characters(v_.tokens[std::size_t(token)]); };
  for (const auto& [left, right] : v_.merges) merges.push_back(text_of(left) + " " + text_of(right));
  for (const std::int32_t token : v_.special) {
    vocab.erase(text_of(token));
    added.push_back({{"id", token},
                     {"content", v_.tokens[std::size_t(token)]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", added},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}}
      .dump();
}

}  // namespace millrace
