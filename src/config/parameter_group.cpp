#include "millrace/config/parameter_group.hpp"

#include <fnmatch.h>

#include "millrace/config/key_types.hpp"

namespace millrace {
namespace {

double non_negative(const std::string& text) {
  const double value = parse_number<double>(text);
  at_least(0).check(value, text);
  return value;
}

bool on_or_off(const std::string& text) { return parse_choice(text, Choices<bool>{{"on", true}, {"off", false}}); }

void set_property(ParameterGroup& group, const std::string& name, const std::string& value) {
  if (name == "lr")
    group.lr = non_negative(value);
  else if (name == "weight_decay")
    group.weight_decay = non_negative(value);
  else if (name == "muon")
    group.muon = on_or_off(value);
  else if (name == "freeze")
    group.freeze = on_or_off(value);
  else
    fail(Exit::config, "unknown property. use lr=, weight_decay=, muon= or freeze=");
}

}  // namespace

bool ParameterGroup::matches(const std::string& name) const { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; }

ParameterGroup ParameterGroup::parse(const std::string& text) {
  const auto words = split_words(text);
  ParameterGroup out;
  for (const std::string& word : words) {
    const auto equals = word.find('=');
    if (out.pattern.empty() && equals == word.npos) {
      out.pattern = word;
      continue;
    }
    if (out.pattern.empty() || equals == word.npos)
      fail(Exit::config, "'{}': write one pattern of parameter names, then lr=, weight_decay=, muon= or freeze=", text);
    try {
      set_property(out, word.substr(0, equals), word.substr(equals + 1));
    } catch (const Error& error) {
      fail(Exit::config, "'{}': {}: {}", text, word, error.what());
    }
  }
  if (words.size() < 2) fail(Exit::config, "'{}' changes nothing. add lr=, weight_decay=, muon=off or freeze=on", text);
  if (out.freeze.value_or(false) && (out.lr || out.weight_decay))
    fail(Exit::config,
         "'{}': a frozen parameter has neither a learning rate nor weight decay. remove lr= and "
         "weight_decay=, or freeze=on",
         text);
  return out;
}

}  // namespace millrace
