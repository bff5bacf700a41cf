// One line of model.layers: its words and its options. Every function refuses with a message that quotes the line.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace millrace {

struct TextLine {
  std::string text, kind;
  std::vector<std::string> words;            // positional; flags such as `causal` too
  std::map<std::string, std::string> named;  // key=value

  explicit TextLine(const std::string& text);
  [[noreturn]] void refuse(const std::string& why) const;

  std::int64_t number(const std::string& word, const char* what) const;  // a whole number of at least 0
  const std::string& word(std::size_t i, const char* what) const;        // what: "a width", for the message

  // Each of these removes the option, so that what is left is unknown.
  std::int64_t option(const std::string& key, std::int64_t otherwise, std::int64_t smallest = 1);
  double real(const std::string& key, double otherwise, double low, double high);
  bool flag(const std::string& key, bool otherwise);  // key=on|off
  // One of the choices; the first one if the option is not given.
  std::string choice(const std::string& key, const std::vector<std::string>& choices);
  std::string take(const std::string& key);  // "": not given
  std::string given_name();                  // from as=; "": there is none
  bool take_word(const std::string& word);   // whether it is among the positional words; removes it
  void require_no_options_left() const;
};

}  // namespace millrace
