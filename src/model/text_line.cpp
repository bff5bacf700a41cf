#include "model/text_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <sstream>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::int64_t max_number = std::numeric_limits<std::int32_t>::max();  // products of two fit into 64 bits

template <class Number>
bool parse_all(const std::string& text, Number& value) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

}  // namespace

TextLine::TextLine(const std::string& from) : text(from) {
  std::istringstream in(text);
  in >> kind;
  for (std::string word; in >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos)
      words.push_back(word);
    else if (!named.emplace(word.substr(0, equals), word.substr(equals + 1)).second)
      refuse(fmt::format("'{}' is given twice. remove one of them", word.substr(0, equals)));
  }
}

void TextLine::refuse(const std::string& why) const { fail(Exit::config, "model.layers: `{}`: {}", text, why); }

std::int64_t TextLine::number(const std::string& word, const char* what) const {
  std::int64_t value = 0;
  if (!parse_all(word, value) || value < 0) refuse(fmt::format("'{}' is not a {}", word, what));
  if (value > max_number) refuse(fmt::format("'{}' is too large (at most {})", word, max_number));
  return value;
}

const std::string& TextLine::word(std::size_t i, const char* what) const {
  if (i >= words.size()) refuse(fmt::format("needs {}", what));
  return words[i];
}

std::string TextLine::take(const std::string& key) {
  const auto it = named.find(key);
  if (it == named.end()) return "";
  const std::string value = it->second;
  if (value.empty()) refuse(fmt::format("{}= has no value", key));
  named.erase(it);
  return value;
}

std::int64_t TextLine::option(const std::string& key, std::int64_t otherwise, std::int64_t smallest) {
  const std::string given = take(key);
  if (given.empty()) return otherwise;
  const std::int64_t value = number(given, "whole number");
  if (value < smallest) refuse(fmt::format("{}={} is out of range (must be at least {})", key, value, smallest));
  return value;
}

double TextLine::real(const std::string& key, double otherwise, double low, double high) {
  const std::string given = take(key);
  if (given.empty()) return otherwise;
  double value = 0;
  if (!parse_all(given, value) || !(value >= low && value <= high))
    refuse(fmt::format("{}={} is not a number from {:g} to {:g}", key, given, low, high));
  return value;
}

bool TextLine::flag(const std::string& key, bool otherwise) {
  const std::string value = take(key);
  if (value.empty()) return otherwise;
  std::string small = value;
  for (char& c : small) c = char(std::tolower(static_cast<unsigned char>(c)));
  for (const char* on : {"on", "yes", "true", "1"})
    if (small == on) return true;
  for (const char* off : {"off", "no", "false", "0"})
    if (small == off) return false;
  refuse(fmt::format("{}={} must be on or off", key, value));
}

std::string TextLine::choice(const std::string& key, const std::vector<std::string>& choices) {
  const std::string value = take(key);
  if (value.empty()) return choices.front();
  if (std::find(choices.begin(), choices.end(), value) == choices.end())
    refuse(fmt::format("{}={} must be one of {}", key, value, fmt::join(choices, ", ")));
  return value;
}

std::string TextLine::given_name() {
  if (!named.contains("as")) return "";
  const std::string name = named["as"];
  named.erase("as");
  const bool plain = std::all_of(name.begin(), name.end(),
                                 [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; });
  if (name.empty() || !plain || name.front() == '.')
    refuse(fmt::format("as={} is not a name. use letters, digits, '_', '-' and '.'", name));
  return name;
}

bool TextLine::take_word(const std::string& word) {
  const auto it = std::find(words.begin(), words.end(), word);
  if (it == words.end()) return false;
  words.erase(it);
  return true;
}

void TextLine::require_no_options_left() const {
  if (!named.empty()) refuse(fmt::format("'{}' is not an option of {}", named.begin()->first, kind));
}

}  // namespace millrace
