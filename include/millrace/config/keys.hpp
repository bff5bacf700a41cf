// The one table of configuration keys: every field of RunConfig bound to its key, form, range and help.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "millrace/config/run_config.hpp"

namespace millrace {

struct Key {
  enum class Many {
    no,     // one value
    words,  // a list, separated by blanks; the key may be repeated
    lines   // a list, one element each time the key is given
  };
  std::string name;          // "train.steps"
  std::string value_format;  // what a value looks like: "whole number", "size", "auto|cpu|cuda"
  std::string help;          // one line: what, effect, cost
  Many many = Many::no;
  bool hidden = false;  // for tests: not in --help and not in the documentation
  // Error(config) with the reason alone; the caller knows file, line and key.
  std::function<void(RunConfig&, const std::vector<std::string>&)> set;
  std::function<std::vector<std::string>(const RunConfig&)> get;

  std::string group() const { return name.substr(0, name.find('.')); }
  std::string leaf() const { return name.substr(name.find('.') + 1); }
};

const std::vector<Key>& keys();
const Key* find_key(const std::string& name);  // by its name or a former name; null when there is none

// The value of a key as a file holds it: value_text(config, "optim.name") is "adamw".
std::string value_text(const RunConfig&, const std::string& key);

// A former name of a key. It stays accepted, with one line of warning.
struct KeyAlias {
  std::string old_name, name;
};
const std::vector<KeyAlias>& key_aliases();
// The name of the key that `name` stands for: itself, unless it is a former name.
std::string current_key_name(const std::string& name);
// Warns once for each name and run of the program when `written` is a former name of `key`.
void warn_if_renamed(const std::string& where, const std::string& written, const Key& key);

const char* group_title(const std::string& group);  // "data: what is read"

// One line of text for a value as a file holds it: blanks inside a word become "\ ".
std::string join_words(const Key&, const std::vector<std::string>&);
std::vector<std::string> split_words(const std::string& value);

}  // namespace millrace
