#include "io/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "io/codec.hpp"
#include "io/handle.hpp"
#include "millrace/base/error.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {
namespace {

constexpr std::size_t message_limit = 3;

std::recursive_mutex& room_lock() {
  static std::recursive_mutex lock;
  return lock;
}

// Reduces "file write failed: time = ..., errno = 28, error message = 'No space left on device', buf = ..." to the
// reason.
std::string shorten(std::string_view text) {
  constexpr std::string_view mark = "error message = '";
  const auto at = text.find(mark);
  if (at == text.npos) return std::string(text);
  const std::string_view reason = text.substr(at + mark.size());
  return fmt::format("{}: {}", text.substr(0, text.find(':')), reason.substr(0, reason.find('\'')));
}

herr_t collect(unsigned, const H5E_error2_t* entry, void* client) {
  auto& messages = *static_cast<std::vector<std::string>*>(client);
  std::string text = shorten(entry->desc ? entry->desc : "");
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (!text.empty() && messages.size() < message_limit &&
      std::find(messages.begin(), messages.end(), text) == messages.end())
    messages.push_back(std::move(text));
  return 0;
}

std::string advice(const std::string& reason) {
  const auto says = [&](const char* words) { return reason.find(words) != std::string::npos; };
  if (says("open for write") || says("open for SWMR"))
    return ". the file is marked open for writing. if no program writes to it, run h5clear -s on it";
  if (says("truncated file")) return ". the file is cut off: copy or write it again";
  if (says("No space left") || says("Disk quota")) return ". free some space, or write elsewhere";
  return "";
}

thread_local const char* current_file = nullptr;

}  // namespace

Hdf5Lock::Hdf5Lock(const char* file, bool parallel)
    : waits_(parallel ? watchdog::Wait::parallel_hdf5 : watchdog::Wait::file),
      lock_(room_lock()),
      outer_(current_file) {
  if (file) current_file = file;
  // The library must not close itself at exit: HDF5 1.10 crashes there if a file could not be closed (full disk), and
  // with MPI it would run after MPI_Finalize. Files close themselves.
  static const bool stays = H5dont_atexit() >= 0;
  (void)stays;
  static const bool registered = (register_codecs(), true);
  (void)registered;
  thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  (void)quiet;
}

Hdf5Lock::~Hdf5Lock() { current_file = outer_; }

const char* current_hdf5_file() { return current_file; }

void close_hdf5_for_other_threads() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (!room_lock().try_lock() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void initialize_hdf5() {
  const Hdf5Lock entry;
  MR_H5("HDF5", H5open());
}

std::string error_stack() {
  std::vector<std::string> messages;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &messages);
  H5Eclear2(H5E_DEFAULT);
  std::string line;
  for (const auto& text : messages) line += (line.empty() ? "" : "; ") + text;
  return line.empty() ? "HDF5 gives no reason" : line;
}

void fail_hdf5_call(const std::string& where, const char* call) {
  const std::string reason = error_stack();
  const std::string_view text(call);
  fail(Exit::data, "{}: {} failed ({}){}", where, text.substr(0, text.find('(')), reason, advice(reason));
}

}  // namespace millrace::io
