// The table of configuration keys: each binds a field of RunConfig to its name, its format and its description.
// Parsing, printing, --help and the reference page all use this table.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "millrace/config/run_config.hpp"

namespace millrace {

struct Key {
  enum class Many {
    no,     // one value
    words,  // a list of words separated by blanks; the key may be repeated
    lines   // a list with one element each time the key is given
  };
  std::string name;          // "train.steps"
  std::string value_format;  // for people: "whole number", "size", "auto|cpu|cuda"
  std::string help;          // one line: what it is, its effect, its cost
  Many many = Many::no;
  // Parses the words of a value into the field. Throws Error(config) with the reason alone; the caller adds file, line
  // and key.
  std::function<void(RunConfig&, const std::vector<std::string>&)> set;
  // The words of the field's value; `set` gives the same value from them.
  std::function<std::vector<std::string>(const RunConfig&)> get;

  std::string group() const { return name.substr(0, name.find('.')); }
  std::string leaf() const { return name.substr(name.find('.') + 1); }
  // Hidden keys are for tests: accepted, but neither in --help nor in the reference page nor suggested.
  bool hidden() const { return group() == "test"; }
};

const std::vector<Key>& keys();
// By its name, a former name or a synonym; null if there is none.
const Key* find_key(const std::string& name);
// The value of a key as a file holds it: value_text(config, "optim.name") is "adamw".
std::string value_text(const RunConfig&, const std::string& key);
const char* group_title(const std::string& group);  // "what is read, and how" for "data"

// A former name of a key. It stays accepted, with one line of warning.
struct KeyAlias {
  std::string old_name, name;
};
const std::vector<KeyAlias>& key_aliases();
// Names of other programs that mean one key and nothing else, with and without a section: "learning_rate" and
// "train.lr" for "optim.lr". They are accepted, with one line that names the key.
const std::vector<KeyAlias>& key_synonyms();
// The name of the key that `name` stands for: itself, unless it is a former name or a synonym.
std::string current_key_name(const std::string& name);
// Warns if `written` is a former name of `key`, and tells if it is a synonym: once for each name in the life of the
// process, on rank 0. `where` is a line of a file or the command line.
void warn_if_renamed(const std::string& where, const std::string& written, const Key& key);

// The words of a value as one line of a file, in which a blank inside a word is written "\ "; and back.
std::string join_words(const Key&, const std::vector<std::string>&);
std::vector<std::string> split_words(const std::string& value);

}  // namespace millrace
