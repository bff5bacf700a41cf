#include "millrace/base/units.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

// Splits the text into its leading number and the unit. what: the end of the message if there is no number.
std::pair<double, std::string_view> split_number(std::string_view text, const char* what) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (problem != std::errc() || value < 0) fail(Exit::config, "'{}' is not a {}", text, what);
  std::string_view unit(end, std::size_t(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return {value, unit};
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text) {
  auto [value, unit] = split_number(text, "size. write for example 64MiB, 512k or a number of bytes");
  if (!unit.empty() && (unit.back() == 'B' || unit.back() == 'b')) unit.remove_suffix(1);
  double factor = 1;
  if (!unit.empty()) {
    const std::string_view letters = "kKmMgGtT";
    const auto at = letters.find(unit.front());
    const bool binary = unit.size() == 2 && unit[1] == 'i';
    if (at == letters.npos || (unit.size() != 1 && !binary))
      fail(Exit::config, "'{}' is not a size (unknown unit). write for example 64MiB, 512k or a number of bytes", text);
    factor = std::pow(binary ? 1024.0 : 1000.0, double(at / 2 + 1));
  }
  const double bytes = value * factor;
  if (bytes >= 9.2e18) fail(Exit::config, "'{}' is too large. sizes must be below 9.2e18 bytes", text);
  return std::uint64_t(std::llround(bytes));
}

double parse_seconds(std::string_view text) {
  if (text.find(':') != text.npos) {  // hh:mm:ss or mm:ss
    double total = 0;
    for (std::string_view rest = text; !rest.empty();) {
      auto [value, tail] = split_number(rest, "duration. write for example 90s, 10m, 1h30m or 01:30:00");
      if (!tail.empty() && tail.front() != ':')
        fail(Exit::config, "'{}' is not a duration. write for example 01:30:00", text);
      total = total * 60 + value;
      rest = tail.empty() ? tail : tail.substr(1);
    }
    return total;
  }
  double total = 0;
  bool any = false;
  for (std::string_view rest = text; !rest.empty() || !any; any = true) {
    auto [value, tail] = split_number(rest, "duration. write for example 90s, 10m, 1h30m or 01:30:00");
    std::size_t length = 0;
    while (length < tail.size() && !(tail[length] >= '0' && tail[length] <= '9') && tail[length] != ' ') ++length;
    const std::string_view unit = tail.substr(0, length);
    double factor = 0;
    if (unit.empty() || unit == "s") factor = 1;
    if (unit == "us") factor = 1e-6;
    if (unit == "ms") factor = 1e-3;
    if (unit == "m" || unit == "min") factor = 60;
    if (unit == "h") factor = 3600;
    if (unit == "d") factor = 86400;
    if (factor == 0)
      fail(Exit::config, "'{}' is not a duration (unknown unit '{}'). write for example 90s, 10m or 1h30m", text, unit);
    total += value * factor;
    rest = tail.substr(length);
  }
  return total;
}

double parse_rate(std::string_view text) {
  const char* const form = "rate. write for example 400Gb/s (bits) or 50GB/s (bytes)";
  auto [value, unit] = split_number(text, form);
  double factor = 1;
  const std::string_view letters = "kMGT";
  if (const auto at = unit.empty() ? letters.npos : letters.find(unit.front()); at != letters.npos) {
    factor = std::pow(1000.0, double(at + 1));
    unit.remove_prefix(1);
  }
  if (unit == "b/s" || unit == "bit/s" || unit == "bps")
    factor /= 8;
  else if (unit != "B/s")
    fail(Exit::config, "'{}' is not a {}", text, form);
  if (value <= 0) fail(Exit::config, "'{}' is not a positive {}", text, form);
  return value * factor;
}

std::string format_rate(double bytes_per_second) { return format_count(bytes_per_second) + "B/s"; }

std::string format_bytes(std::uint64_t bytes) {
  static const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 2, units[unit]);
}

std::string print_bytes(std::uint64_t bytes) {
  static const char* units[] = {"", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + units[unit];
}

std::string format_seconds(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const long long s = std::llround(seconds);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string format_count(double value) {
  static const char* units[] = {"", "k", "M", "G", "T", "P"};
  int unit = 0;
  while (value >= 1000 && unit < 5) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g} {}", value, units[unit]);
}

}  // namespace millrace
