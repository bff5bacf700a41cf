#include "config/key_places.hpp"

#include <fmt/core.h>

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
  const std::lock_guard lock(places_mutex);
  const auto found = places().find(current_key_name(message.substr(0, end)));
  if (found == places().end()) return message;
  std::string lines;
  for (const PlacedValue& each : found->second)
    if (message.find("`" + each.value + "`") != message.npos)
      lines += fmt::format("{}{}", lines.empty() ? "" : " or ", each.place.line);
  const KeyPlace& first = found->second.front().place;
  return fmt::format("{}:{}: {}", first.file, lines.empty() ? std::to_string(first.line) : lines, message);
}

}  // namespace millrace
