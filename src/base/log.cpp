#include "millrace/base/log.hpp"

#include <unistd.h>

#include <mutex>
#include <set>
#include <string>

namespace millrace::log {
namespace {

int own_rank = 0;
std::string prefix;
std::mutex mutex;  // guards the variables below
bool once = false;
std::set<std::string> said;

bool is_new(const std::string& line) {
  const std::lock_guard lock(mutex);
  return !once || said.insert(line).second;
}

void only_once(bool on) {
  const std::lock_guard lock(mutex);
  once = on;
  said.clear();
}

// Writes each line with one write(), so that lines of several ranks or threads do not mix.
void put(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const auto done = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

void set_rank(int rank, int size, const std::string& host) {
  own_rank = rank;
  prefix = size > 1 ? "[rank " + std::to_string(rank) + " @ " + host + "] " : "";
}
void info(const std::string& line) {
  if (own_rank == 0 && is_new(line)) put(line);
}
void warn(const std::string& line) {
  if (own_rank == 0 && is_new(line)) put("warning: " + line);
}
void local(const std::string& line) { put(prefix + line); }
void error(const std::string& line) { put(prefix + "error: " + line); }

SuppressRepeats::SuppressRepeats() { only_once(true); }
SuppressRepeats::~SuppressRepeats() { only_once(false); }

}  // namespace millrace::log
