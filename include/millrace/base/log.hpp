// Lines for people, on standard error, flushed one by one. Rank 0 speaks; other ranks only in error() and local(), with
// "[rank 3 @ node12]" in front.
#pragma once
#include <string>

namespace millrace::log {

void set_rank(int rank, int size, const std::string& host);
void info(const std::string& line);   // rank 0 only
void warn(const std::string& line);   // rank 0 only, "warning: " in front
void local(const std::string& line);  // any rank, prefixed
void error(const std::string& line);  // any rank, "error: " and the prefix in front

// While one lives, info() and warn() say no line twice: for work that is repeated. One at a time.
class SuppressRepeats {
 public:
  SuppressRepeats();
  ~SuppressRepeats();
  SuppressRepeats(const SuppressRepeats&) = delete;
};

}  // namespace millrace::log
