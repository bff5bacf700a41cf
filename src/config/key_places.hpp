// Where the keys of the resolved configuration were set, for messages.
#pragma once
#include <cstddef>
#include <string>

namespace millrace {

struct KeyPlace {
  std::string file;
  std::size_t line = 0;
};

void forget_places();
void forget_place(const std::string& key);
// A later file replaces what an earlier one set.
void note_place(const std::string& key, const std::string& value, const KeyPlace&);

}  // namespace millrace
