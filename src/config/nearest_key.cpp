// The key that is meant by a name that is none.
#include <fmt/core.h>

#include <algorithm>

#include "config/foreign_names.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/config/options.hpp"

namespace millrace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string nearest_key(const std::string& written) {
  constexpr std::size_t max_letters = 100;  // the comparison takes time proportional to the length
  if (written.size() > max_letters) return nearest_key(written.substr(0, max_letters));
  if (const std::string same = key_of_foreign_name(written); !same.empty()) return same;
  const std::string bare = bare_name(written);
  const Key* best = nullptr;
  std::size_t best_distance = ~std::size_t(0);
  for (const Key& key : keys()) {
    if (key.hidden()) continue;
    // A beginning of a name has distance 1. A word without a section is compared to the part after the dot.
    std::size_t distance = edit_distance(written, key.name);
    if (key.name.starts_with(written)) distance = std::min<std::size_t>(distance, 1);
    if (written.find('.') == written.npos) distance = std::min(distance, edit_distance(written, key.leaf()) + 1);
    if (bare == bare_name(key.name)) distance = written.starts_with(key.group() + ".") ? 0 : 1;
    if (distance < best_distance) {
      best_distance = distance;
      best = &key;
    }
  }
  if (best_distance <= 1) return best->name;
  const std::string alike = key_of_foreign_name(written, true);
  return alike.empty() ? best->name : alike;
}

std::string suggestion(const std::string& written, const char* dashes) {
  if (const std::string reason = reason_without_key(written); !reason.empty()) return reason;
  return fmt::format("did you mean {}{}?", dashes, nearest_key(written));
}

}  // namespace millrace
