// Exceptions with the exit code of the program. Messages have one line: "problem (why). what to do".
#pragma once
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

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

// A part of a message: a text, or a number in the format of an ostream. It refers to its argument, so it must not
// outlive the expression that creates it.
class MessagePart {
 public:
  MessagePart(std::string_view text) : text_(text) {}
  MessagePart(const std::string& text) : text_(text) {}
  MessagePart(const char* text) : text_(text) {}
  MessagePart(char c) : text_(digits_, 1) { digits_[0] = c; }
  MessagePart(int v) : MessagePart(static_cast<long long>(v)) {}
  MessagePart(long v) : MessagePart(static_cast<long long>(v)) {}
  MessagePart(unsigned v) : MessagePart(static_cast<unsigned long long>(v)) {}
  MessagePart(unsigned long v) : MessagePart(static_cast<unsigned long long>(v)) {}
  MessagePart(long long);
  MessagePart(unsigned long long);
  MessagePart(double);                // six significant digits
  MessagePart(const void*) = delete;  // only pointers to text are allowed
  MessagePart(const MessagePart&) = delete;
  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
  char digits_[24];
};

std::string concatenate(std::initializer_list<MessagePart>);

// Concatenates its arguments: cat("row ", 3, " of ", path). It does not use a stream, because it has hundreds of call
// sites and each would instantiate the stream's code.
template <class... Args>
std::string cat(const Args&... args) {
  return concatenate({MessagePart(args)...});
}

template <class... Args>
[[noreturn]] void fail(Exit code, const Args&... args) {
  throw Error(code, cat(args...));
}

}  // namespace millrace

// Checks an invariant of the program. A failure is a bug in millrace, not an error of the user.
#define MR_CHECK(condition, ...)                                                                                    \
  do {                                                                                                              \
    if (!(condition))                                                                                               \
      ::millrace::fail(::millrace::Exit::internal, "internal error: ", #condition, " at ", __FILE__, ":", __LINE__, \
                       " ", ::millrace::cat("" __VA_OPT__(, ) __VA_ARGS__));                                        \
  } while (0)
