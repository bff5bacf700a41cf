// Errors carry the exit code that the program ends with. Messages read "problem (why). try this", one line.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace millrace {

// The contract with job scripts: see docs/configuration.md.
enum class Exit : int { ok = 0, internal = 1, config = 2, data = 3, diverged = 4, comm = 5, stopped = 75 };

class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

// Streams all arguments into one string: cat("row ", 3, " of ", path).
template <class... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

template <class... Args>
[[noreturn]] void fail(Exit code, const Args&... args) {
  throw Error(code, cat(args...));
}

}  // namespace millrace

// An invariant of our own code: a failure is a defect, not the user's doing.
#define MR_CHECK(condition, ...)                                                                                    \
  do {                                                                                                              \
    if (!(condition))                                                                                               \
      ::millrace::fail(::millrace::Exit::internal, "internal error: ", #condition, " at ", __FILE__, ":", __LINE__, \
                       " ", ::millrace::cat("" __VA_OPT__(, ) __VA_ARGS__));                                        \
  } while (0)
