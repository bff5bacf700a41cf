#include "millrace/config/key_types.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace millrace {

void Range::check(double value, const std::string& text, std::string (*print)(double), bool or_auto) const {
  const bool low_enough = exclusive_high ? value < high : value <= high;
  const bool high_enough = exclusive_low ? value > low : value >= low;
  if (low_enough && high_enough) return;
  std::string must = std::isinf(low) ? "" : fmt::format("{}{}", exclusive_low ? "above " : "at least ", print(low));
  if (!std::isinf(high))
    must += fmt::format("{}{}{}", must.empty() ? "" : " and ", exclusive_high ? "below " : "at most ", print(high));
  fail(Exit::config, "'{}' is out of range (must be {}{}", text, must, or_auto ? ", or auto)" : ")");
}

std::string print_number(double value, std::chars_format format) {
  char text[400];
  const auto end = std::to_chars(text, text + sizeof text, value, format).ptr;
  std::string out(text, end);
  if (format != std::chars_format::general) return out;
  // to_chars writes 50000 as "5e+04". Plain digits are easier to read if there are few of them.
  const auto plain = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr;
  return plain - text <= 12 ? std::string(text, plain) : out;
}

bool equal_letters(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

const std::string& single_word(const std::vector<std::string>& words) {
  if (words.empty() || words.front().empty()) fail(Exit::config, "a value is missing");
  if (words.size() > 1) fail(Exit::config, "takes one value, not {}", words.size());
  return words.front();
}

std::vector<std::string> split_words(const std::string& value) {
  std::vector<std::string> words;
  std::string word;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] == '\\' && i + 1 < value.size() && value[i + 1] == ' ')
      word += value[++i];
    else if (value[i] == ' ' || value[i] == '\t') {
      if (!word.empty()) words.push_back(std::exchange(word, ""));
    } else
      word += value[i];
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

std::string join_words(const Key& key, const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) {
    if (!out.empty()) out += ' ';
    for (const char c : word) {
      if (c == ' ' && key.many == Key::Many::words) out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace millrace
