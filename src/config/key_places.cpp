#include "config/key_places.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "millrace/config/keys.hpp"
#include "millrace/config/options.hpp"

namespace millrace {
namespace {

struct PlacedValue {
  std::string value;
  KeyPlace place;
};

std::mutex places_mutex;

std::map<std::string, std::vector<PlacedValue>>& places() {
  static auto* const of_keys = new std::map<std::string, std::vector<PlacedValue>>;  // needed while the program ends
  return *of_keys;
}

// Does the message speak of this line? It quotes the line, or the name that the line gives with as=.
bool speaks_of(const std::string& message, const std::string& line) {
  if (message.find("`" + line + "`") != message.npos) return true;
  const auto name = line.find(" as=");
  if (name == line.npos) return false;
  const auto begin = name + 4, end = std::min(line.find(' ', begin), line.size());
  return message.find("'" + line.substr(begin, end - begin) + "'") != message.npos;
}

}  // namespace

void forget_places() {
  const std::lock_guard lock(places_mutex);
  places().clear();
}

void forget_place(const std::string& key) {
  const std::lock_guard lock(places_mutex);
  places().erase(key);
}

void note_place(const std::string& key, const std::string& value, const KeyPlace& place) {
  if (place.file.ends_with(".h5")) return;  // a checkpoint, whose lines nobody sees
  const std::lock_guard lock(places_mutex);
  std::vector<PlacedValue>& known = places()[key];
  if (!known.empty() && known.front().place.file != place.file) known.clear();
  known.push_back({value, place});
}

std::string with_place(const std::string& message) {
  const auto end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.");
  const std::string name = message.substr(0, end);
  if (name.find('.') == name.npos) return message;  // a word, such as "steps", is no key
  const std::lock_guard lock(places_mutex);
  const auto found = places().find(current_key_name(name));
  if (found == places().end()) return message;
  std::string lines;
  for (const PlacedValue& each : found->second)
    if (speaks_of(message, each.value)) lines += fmt::format("{}{}", lines.empty() ? "" : " or ", each.place.line);
  const KeyPlace& first = found->second.front().place;
  return fmt::format("{}:{}: {}", first.file, lines.empty() ? std::to_string(first.line) : lines, message);
}

}  // namespace millrace
