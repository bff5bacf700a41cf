// Log lines on standard error, each written at once. info() and warn() print on rank 0 only. local() and error() print
// on every rank; if there are several ranks, with a prefix such as "[rank 3 @ node12]".
#pragma once
#include <string>

namespace millrace::log {

void set_rank(int rank, int size, const std::string& host);
void info(const std::string& line);
void warn(const std::string& line);   // "warning: " and the line
void local(const std::string& line);  // the prefix and the line
void error(const std::string& line);  // the prefix, "error: " and the line

// During its lifetime, info() and warn() print each line only once, for work that is repeated. Only one object may
// exist at a time.
class SuppressRepeats {
 public:
  SuppressRepeats();
  ~SuppressRepeats();
  SuppressRepeats(const SuppressRepeats&) = delete;
};

}  // namespace millrace::log
