// Text formatted as by printf, for the reports of telemetry/ and advisor/.
#pragma once
#include <cstdio>
#include <string>

namespace millrace {

// At most 319 characters; longer text is cut off.
template <class... Args>
std::string text(const char* form, Args... args) {
  char line[320];
  std::snprintf(line, sizeof line, form, args...);
  return line;
}

}  // namespace millrace
