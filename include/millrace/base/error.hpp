// Exceptions with the exit code of the program. Messages have one line: "problem (why). what to do".
#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

// Exit codes, on which job scripts rely: see docs/reference/exit-codes.md.
enum class Exit : int { ok = 0, internal = 1, config = 2, data = 3, diverged = 4, comm = 5, stopped = 75 };

class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

// Throws an Error with a formatted message: fail(Exit::data, "row {} of {} is missing", 3, path).
template <class... Args>
[[noreturn]] void fail(Exit code, fmt::format_string<Args...> form, Args&&... args) {
  throw Error(code, fmt::format(form, std::forward<Args>(args)...));
}

// The last part of a message of MR_CHECK().
inline std::string check_details() { return {}; }
template <class... Args>
std::string check_details(fmt::format_string<Args...> form, Args&&... args) {
  return " " + fmt::format(form, std::forward<Args>(args)...);
}

}  // namespace millrace

// Checks an invariant of the program. A failure is a bug in millrace, not an error of the user. A format string and its
// arguments may follow the condition.
#define MR_CHECK(condition, ...)                                                                                    \
  do {                                                                                                              \
    if (!(condition))                                                                                               \
      ::millrace::fail(::millrace::Exit::internal, "internal error: {} at {}:{}{}", #condition, __FILE__, __LINE__, \
                       ::millrace::check_details(__VA_ARGS__));                                                     \
  } while (0)
