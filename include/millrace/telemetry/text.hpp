// Formatted text. Private to the telemetry room.
#pragma once
#include <cstdio>
#include <string>

namespace millrace {

template <class... Args>
std::string text(const char* form, Args... args) {
  char line[320];
  std::snprintf(line, sizeof line, form, args...);
  return line;
}

}  // namespace millrace
