#include "millrace/data/index/class_names.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {

std::string join_class_names(const std::vector<std::string>& class_names) {
  std::string out;
  for (const auto& name : class_names) out += (&name == &class_names[0] ? "" : "\n") + name;
  return out;
}

std::vector<std::string> parse_class_names(const std::string& lines) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    out.push_back(lines.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string first_class_mismatch(const std::vector<std::string>& here, const std::vector<std::string>& there) {
  if (here.empty() || there.empty()) return "";
  const auto name = [](const std::vector<std::string>& names, std::size_t label) {
    return label < names.size() ? "'" + names[label] + "'" : std::string("nothing");
  };
  for (std::size_t label = 0; label < std::max(here.size(), there.size()); ++label)
    if (name(here, label) != name(there, label))
      return fmt::format("label {} is {}, not {} as", label, name(here, label), name(there, label));
  return "";
}

}  // namespace millrace
