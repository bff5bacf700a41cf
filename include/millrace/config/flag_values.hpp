// Values of the flags of a subcommand. A wrong value is Error(config) that names the flag.
#pragma once
#include <string>

#include "millrace/config/arguments.hpp"
#include "millrace/config/key_types.hpp"

namespace millrace {

// A number within `range`; the default itself need not be within it.
template <class T>
T flag_number(const ParsedArguments& parsed, const char* name, T default_value, const Range& range) {
  return option(name, [&] {
    if (!parsed.has(name)) return default_value;
    const std::string text = parsed.get(name, "");
    const T value = parse_number<T>(text);
    range.check(double(value), text);
    return value;
  });
}

// One of a few words; the first one is the default.
template <class T>
T flag_choice(const ParsedArguments& parsed, const char* name, const Choices<T>& choices) {
  return option(name, [&] {
    if (!parsed.has(name)) return choices.front().second;
    return parse_choice(parsed.get(name, ""), choices);
  });
}

}  // namespace millrace
