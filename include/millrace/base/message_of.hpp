// Failures as words, for ranks that agree on them.
#pragma once
#include <exception>
#include <string>

namespace millrace {

// What went wrong in it, or "".
template <class F>
std::string message_of(F&& function) {
  try {
    function();
  } catch (const std::exception& e) {
    return *e.what() ? e.what() : "unknown";
  }
  return "";
}

}  // namespace millrace
