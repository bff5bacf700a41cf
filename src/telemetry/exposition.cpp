#include "millrace/telemetry/exposition.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

std::string label(const std::string& name, const std::string& value) {
  std::string out = name + "=\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

std::string number(double v) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "+Inf" : "-Inf";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, v).ptr};  // the shortest text that is read back exactly
}

}  // namespace

Exposition::Exposition(const Labels& labels) {
  for (const auto& [name, value] : labels)
    if (!value.empty()) labels_ += fmt::format("{}{}", labels_.empty() ? "" : ",", label(name, value));
}

void Exposition::begin(const std::string& name, Kind kind, const std::string& help) {
  text_ +=
      fmt::format("# HELP {} {}\n# TYPE {}{}", name, help, name, kind == Kind::counter ? " counter\n" : " gauge\n");
}

void Exposition::sample(const std::string& name, const std::string& labels, double value) {
  text_ += fmt::format("{}{} {}\n", name, labels.empty() ? "" : "{" + labels + "}", number(value));
}

void Exposition::add(const std::string& name, Kind kind, const std::string& help, double value) {
  begin(name, kind, help);
  sample(name, labels_, value);
}

void Exposition::add(const std::string& name, Kind kind, const std::string& help, const std::string& label_name,
                     const Values& values) {
  begin(name, kind, help);
  for (const auto& [which, value] : values)
    sample(name, fmt::format("{}{}{}", labels_, labels_.empty() ? "" : ",", label(label_name, which)), value);
}

}  // namespace millrace
