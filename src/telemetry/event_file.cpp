// The messages and their field numbers (tensorboard/compat/proto/event.proto and summary.proto):
//
//   Event:      double wall_time = 1, int64 step = 2, string file_version = 3, Summary summary = 5,
//               SessionLog session_log = 7
//   Summary:    repeated Value value = 1
//   Value:      string tag = 1, float simple_value = 2
//   SessionLog: enum status = 1 (START = 1)
//
// A record, little-endian: length of the message (8 bytes), masked CRC-32C of the length (4), the message, masked
// CRC-32C of the message (4).
#include "millrace/telemetry/event_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t head_bytes = 12;              // of a record, before its message
constexpr std::size_t flush_bytes = 64 << 10;       // this many bytes of waiting events are written at once
constexpr std::size_t max_waiting_bytes = 1 << 20;  // on a full disk
constexpr double flush_seconds = 2;
constexpr char prefix[] = "events.out.tfevents.";

template <class Unsigned>
void put_fixed(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out.push_back(char(value >> (8 * i) & 255));
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 128; value >>= 7) out.push_back(char(value | 128));
  out.push_back(char(value));
}

std::size_t varint_bytes(std::uint64_t value) {
  std::size_t n = 1;
  for (; value >= 128; value >>= 7) ++n;
  return n;
}

void put_text(std::string& out, char key, std::string_view text) {
  out.push_back(key);
  put_varint(out, text.size());
  out += text;
}

void put_time_and_step(std::string& out, double wall_time, std::int64_t step) {
  out.push_back('\x09');
  put_fixed(out, std::bit_cast<std::uint64_t>(wall_time));
  out.push_back('\x10');
  put_varint(out, std::uint64_t(step));
}

std::size_t value_bytes(const Scalar& s) { return 1 + varint_bytes(s.tag.size()) + s.tag.size() + 1 + 4; }

void put_summary(std::string& out, std::span<const Scalar> scalars) {
  std::size_t bytes = 0;
  for (const Scalar& s : scalars) bytes += 1 + varint_bytes(value_bytes(s)) + value_bytes(s);
  out.push_back('\x2a');
  put_varint(out, bytes);
  for (const Scalar& s : scalars) {
    out.push_back('\x0a');
    put_varint(out, value_bytes(s));
    put_text(out, '\x0a', s.tag);
    out.push_back('\x15');
    put_fixed(out, std::bit_cast<std::uint32_t>(float(s.value)));
  }
}

// TFRecord masks its checksums, because the CRC of data that contains CRCs is weak.
std::uint32_t masked(const char* data, std::size_t bytes) { return std::rotr(crc32c(data, bytes), 15) + 0xa282ead8u; }

std::int64_t seconds_in_name(const std::string& name) {
  long long seconds = 0;
  return name.starts_with(prefix) && std::sscanf(name.c_str() + sizeof prefix - 1, "%lld", &seconds) == 1 ? seconds
                                                                                                          : -1;
}

}  // namespace

EventFile::EventFile(fs::path folder, std::int64_t first_step) : folder_(std::move(folder)), first_step_(first_step) {
  std::error_code ignored;
  if (first_step == 1)
    for (const auto& entry : fs::directory_iterator(folder_, ignored))
      if (entry.path().filename().string().starts_with(prefix)) fs::remove(entry.path(), ignored);
}

EventFile::~EventFile() {
  flush();
  if (file_ >= 0) ::close(file_);
}

void EventFile::frame_record(std::size_t begin) {
  const std::size_t message = begin + head_bytes, bytes = waiting_.size() - message;
  std::string head;
  put_fixed(head, std::uint64_t(bytes));
  put_fixed(head, masked(head.data(), head.size()));
  waiting_.replace(begin, head_bytes, head);
  put_fixed(waiting_, masked(waiting_.data() + message, bytes));
}

void EventFile::begin_file(double wall_time) {
  for (const bool version : {true, false}) {
    const std::size_t begin = waiting_.size();
    waiting_.append(head_bytes, '\0');
    put_time_and_step(waiting_, wall_time, version ? 0 : first_step_);
    if (version)
      put_text(waiting_, '\x1a', "brain.Event:2");
    else
      put_text(waiting_, '\x3a', "\x08\x01");
    frame_record(begin);
  }
  flushed_ = wall_time;
}

void EventFile::add(std::int64_t step, double wall_time, std::span<const Scalar> scalars) {
  if (state_ == State::disabled) return;
  if (state_ == State::no_file && waiting_.empty()) begin_file(wall_time);
  if (waiting_.size() < max_waiting_bytes) {
    const std::size_t begin = waiting_.size();
    waiting_.append(head_bytes, '\0');
    put_time_and_step(waiting_, wall_time, step);
    put_summary(waiting_, scalars);
    frame_record(begin);
  }
  const bool enough = waiting_.size() >= flush_bytes && !disk_full_;
  if (!enough && std::abs(wall_time - flushed_) < flush_seconds) return;
  flush();
  flushed_ = wall_time;
}

// TensorBoard reads the files in the order of their names and never returns to an earlier one, so the name of the new
// file must be the last.
bool EventFile::open() {
  std::error_code error;
  fs::create_directories(folder_, error);
  std::int64_t seconds = std::int64_t(flushed_);
  for (const auto& entry : fs::directory_iterator(folder_, error))
    seconds = std::max(seconds, seconds_in_name(entry.path().filename().string()) + 1);
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  path_ = folder_ / fmt::format("{}{}.{}", prefix, seconds, host);
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) {
    fail_with_errno("create");
    return false;
  }
  state_ = State::open;
  return true;
}

void EventFile::fail_with_errno(const char* action) {
  disk_full_ = errno == ENOSPC || errno == EDQUOT;
  if (!warned_ || !disk_full_)
    log::warn(fmt::format(
        "cannot {} {} ({}). training goes on{}", action, path_.string(), std::strerror(errno),
        disk_full_ ? ", events for TensorBoard wait in memory and the newest ones are dropped. free disk space"
                   : " without events for TensorBoard"));
  warned_ = true;
  if (disk_full_) return;
  state_ = State::disabled;
  waiting_.clear();
}

void EventFile::flush() {
  if (state_ == State::disabled || waiting_.empty() || (state_ == State::no_file && !open())) return;
  std::size_t done = 0;
  while (done < waiting_.size()) {
    const ssize_t n = ::write(file_, waiting_.data() + done, waiting_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      fail_with_errno("write");
      break;
    }
    done += std::size_t(n);
    disk_full_ = false;
  }
  waiting_.erase(0, std::min(done, waiting_.size()));  // the rest of a record follows with the next flush
}

void EventFile::sync() {
  flush();
  if (file_ >= 0 && state_ == State::open) ::fdatasync(file_);
}

}  // namespace millrace
