// Makers of keys, one for each kind of value: number, duration, size, choice and so on. `field` is a function from
// RunConfig& to the field; MR_FIELD makes the name of a key and this function from a path such as train.steps.
#pragma once
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/config/keys.hpp"

#define MR_FIELD(path) \
#path, [](auto& c) -> auto& { return c.path; }

namespace millrace {

constexpr double auto_is_zero = 0;  // for number_key and duration_key: 0 is written "auto"

std::string print_number(double,
                         std::chars_format = std::chars_format::general);  // the shortest text with the same value
inline std::string print_plain(double value) { return print_number(value); }
inline std::string print_size(double bytes) { return print_bytes(std::uint64_t(bytes)); }
inline std::string print_duration(double seconds) { return print_number(seconds, std::chars_format::fixed) + "s"; }
const std::string& single_word(const std::vector<std::string>& words);  // Error(config) unless there is exactly one

struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool exclusive_low = false, exclusive_high = false;

  // Error(config) if `value` is outside; the message shows the bounds as `print` writes them.
  void check(double value, const std::string& text, std::string (*print)(double) = print_plain,
             bool or_auto = false) const;
};
inline Range at_least(double low) { return {.low = low}; }
inline Range between(double low, double high) { return {.low = low, .high = high}; }
inline Range above(double low) { return {.low = low, .exclusive_low = true}; }
inline Range fraction() { return {.low = 0, .high = 1, .exclusive_high = true}; }  // [0, 1)

template <class T>
T parse_number(const std::string& text, bool or_auto = false) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool good = problem == std::errc() && end == text.data() + text.size();
  if constexpr (std::is_floating_point_v<T>) good = good && std::isfinite(value);
  const char* const kind = std::is_integral_v<T> ? "whole number" : "number";
  if (!good && or_auto) fail(Exit::config, "'{}' is neither a {} nor auto", text, kind);
  if (!good) fail(Exit::config, "'{}' is not a {}", text, kind);
  return value;
}

template <class Field>
Key text_key(const char* name, Field field, const char* value_format, const char* help) {
  return {.name = name,
          .value_format = value_format,
          .help = help,
          .set = [=](RunConfig& c,
                     const std::vector<std::string>& words) { field(c) = words.empty() ? "" : single_word(words); },
          .get = [=](const RunConfig& c) { return std::vector<std::string>{field(c)}; }};
}

// A number. If `automatic` is given, this value is written "auto".
template <class Field>
Key number_key(const char* name, Field field, Range range, const char* help,
               double automatic = std::numeric_limits<double>::quiet_NaN()) {
  using T = std::remove_cvref_t<decltype(field(std::declval<RunConfig&>()))>;
  const bool has_auto = !std::isnan(automatic);
  return {.name = name,
          .value_format = std::string(std::is_integral_v<T> ? "whole number" : "number") + (has_auto ? " or auto" : ""),
          .help = help,
          .set =
              [=](RunConfig& c, const std::vector<std::string>& words) {
                const std::string& text = single_word(words);
                if (has_auto && text == "auto") return void(field(c) = T(automatic));
                const T value = parse_number<T>(text, has_auto);
                range.check(double(value), text, print_plain, has_auto);
                field(c) = value;
              },
          .get =
              [=](const RunConfig& c) {
                const T value = field(c);
                if (has_auto && double(value) == automatic) return std::vector<std::string>{"auto"};
                if constexpr (std::is_integral_v<T>)
                  return std::vector<std::string>{std::to_string(value)};
                else
                  return std::vector<std::string>{print_number(value)};
              }};
}

template <class Field>
Key numbers_key(const char* name, Field field, Range range, const char* help) {
  using T = typename std::remove_cvref_t<decltype(field(std::declval<RunConfig&>()))>::value_type;
  return {.name = name,
          .value_format = std::is_integral_v<T> ? "whole numbers" : "numbers",
          .help = help,
          .many = Key::Many::words,
          .set =
              [=](RunConfig& c, const std::vector<std::string>& words) {
                std::vector<T> values;
                for (const auto& word : words) range.check(double(values.emplace_back(parse_number<T>(word))), word);
                field(c) = values;
              },
          .get =
              [=](const RunConfig& c) {
                std::vector<std::string> words;
                for (const T value : field(c)) {
                  if constexpr (std::is_integral_v<T>)
                    words.push_back(std::to_string(value));
                  else
                    words.push_back(print_number(value));
                }
                return words;
              }};
}

template <class Field>
Key strings_key(const char* name, Field field, Key::Many many, const char* value_format, const char* help) {
  return {.name = name,
          .value_format = value_format,
          .help = help,
          .many = many,
          .set = [=](RunConfig& c, const std::vector<std::string>& words) { field(c) = words; },
          .get = [=](const RunConfig& c) { return field(c); }};
}

template <class Field>
Key duration_key(const char* name, Field field, Range range, const char* help,
                 double automatic = std::numeric_limits<double>::quiet_NaN()) {
  return {.name = name,
          .value_format = std::isnan(automatic) ? "duration" : "duration or auto",
          .help = help,
          .set =
              [=](RunConfig& c, const std::vector<std::string>& words) {
                const std::string& text = single_word(words);
                const bool has_auto = !std::isnan(automatic);
                if (has_auto && text == "auto") return void(field(c) = automatic);
                const double value = parse_seconds(text);
                range.check(value, text, print_duration, has_auto);
                field(c) = value;
              },
          .get =
              [=](const RunConfig& c) {
                const double value = field(c);
                return std::vector<std::string>{value == automatic ? "auto" : print_duration(value)};
              }};
}

template <class Field>
Key size_key(const char* name, Field field, Range range, const char* help, bool zero_is_auto = false) {
  return {.name = name,
          .value_format = zero_is_auto ? "size or auto" : "size",
          .help = help,
          .set =
              [=](RunConfig& c, const std::vector<std::string>& words) {
                const std::string& text = single_word(words);
                if (zero_is_auto && text == "auto") return void(field(c) = 0);
                const std::uint64_t value = parse_bytes(text);
                range.check(double(value), text, print_size, zero_is_auto);
                field(c) = value;
              },
          .get =
              [=](const RunConfig& c) {
                const bool automatic = zero_is_auto && field(c) == 0;
                return std::vector<std::string>{automatic ? "auto" : print_bytes(field(c))};
              }};
}

// The words that a key accepts, each with its value: an enum, a bool or the word itself.
template <class T>
using Choices = std::vector<std::pair<const char*, T>>;

template <class T>
std::string list_words(const Choices<T>& choices) {  // "auto|cpu|cuda"
  std::string out;
  for (const auto& [word, value] : choices) out += (out.empty() ? "" : "|") + std::string(word);
  return out;
}

bool equal_letters(const std::string&, const std::string&);  // small and capital letters are equal

template <class T>
T parse_choice(const std::string& text, const Choices<T>& choices) {
  for (const auto& [word, value] : choices)
    if (equal_letters(text, word)) return value;
  fail(Exit::config, "'{}' is not one of {}", text, list_words(choices));
}

template <class Field, class T>
Key choice_key(const char* name, Field field, Choices<T> choices, const char* help) {
  return {.name = name,
          .value_format = list_words(choices),
          .help = help,
          .set = [=](RunConfig& c,
                     const std::vector<std::string>& words) { field(c) = parse_choice(single_word(words), choices); },
          .get =
              [=](const RunConfig& c) {
                for (const auto& [word, value] : choices)
                  if (field(c) == value) return std::vector<std::string>{word};
                return std::vector<std::string>{"?"};
              }};
}

template <class Field>
Key word_key(const char* name, Field field, std::vector<const char*> words, const char* help) {
  Choices<std::string> choices;
  for (const char* word : words) choices.emplace_back(word, word);
  return choice_key(name, field, choices, help);
}

// on or off; yes, no, true, false, 1 and 0 are accepted too, in small or capital letters.
template <class Field>
Key switch_key(const char* name, Field field, const char* help) {
  Key key = choice_key(name, field, Choices<bool>{{"on", true}, {"off", false}}, help);
  key.set = [strict = key.set](RunConfig& c, std::vector<std::string> words) {
    for (auto& word : words) {
      if (equal_letters(word, "yes") || equal_letters(word, "true") || word == "1") word = "on";
      if (equal_letters(word, "no") || equal_letters(word, "false") || word == "0") word = "off";
    }
    strict(c, words);
  };
  return key;
}

}  // namespace millrace
