// Errors carry the exit code that the program ends with. Messages read "problem (why). try this", one line.
#pragma once
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

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

// A part of a message: a text, or a number as an ostream prints it. Views its argument: of use within one expression.
class Part {
 public:
  Part(std::string_view text) : text_(text) {}
  Part(const std::string& text) : text_(text) {}
  Part(const char* text) : text_(text) {}
  Part(char c) : text_(digits_, 1) { digits_[0] = c; }
  Part(int v) : Part(static_cast<long long>(v)) {}
  Part(long v) : Part(static_cast<long long>(v)) {}
  Part(unsigned v) : Part(static_cast<unsigned long long>(v)) {}
  Part(unsigned long v) : Part(static_cast<unsigned long long>(v)) {}
  Part(long long);
  Part(unsigned long long);
  Part(double);                // six digits
  Part(const void*) = delete;  // would become a bool
  Part(const Part&) = delete;
  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
  char digits_[24];
};

std::string joined(std::initializer_list<Part>);

// All arguments as one string: cat("row ", 3, " of ", path). Not by a stream: it stands in hundreds of places, and each
// would be compiled anew.
template <class... Args>
std::string cat(const Args&... args) {
  return joined({Part(args)...});
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
