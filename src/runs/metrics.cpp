#include "millrace/runs/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/flat_json.hpp"
#include "millrace/base/log.hpp"

namespace millrace {
namespace {

constexpr std::size_t most_waiting = 4 << 20;  // bytes: some ten thousand steps

// Bytes of the leading whole lines whose step is at most last_step, and the last one's. A line begins {"step":N,
std::int64_t kept_bytes(const std::filesystem::path& path, std::int64_t last_step, std::int64_t& newest) {
  std::ifstream in(path, std::ios::binary);
  std::int64_t kept = 0;
  for (std::string line; std::getline(in, line);) {
    long long step = 0;
    if (in.eof() || std::sscanf(line.c_str(), "{\"step\":%lld,", &step) != 1 || step > last_step) break;
    kept += std::int64_t(line.size()) + 1, newest = step;
  }
  return kept;
}

// JSON has no NaN: null stands for what is not finite. 17 digits keep the bits of a double.
struct Number {
  char text[32];
  explicit Number(double v) {
    if (std::isfinite(v))
      std::snprintf(text, sizeof text, "%.17g", v);
    else
      std::strcpy(text, "null");
  }
};

}  // namespace

std::optional<StepMetrics> parse_metrics(const std::string& line) {
  StepMetrics m;
  const auto set = [&m](std::string_view key, double v) {
    const std::pair<std::string_view, double*> numbers[] = {{"loss", &m.loss},
                                                            {"lr", &m.lr},
                                                            {"grad_norm", &m.grad_norm},
                                                            {"loss_scale", &m.loss_scale},
                                                            {"samples_per_second", &m.samples_per_second}};
    const std::pair<std::string_view, std::int64_t*> counts[] = {
        {"step", &m.step}, {"epoch", &m.epoch}, {"samples", &m.samples}, {"unread_samples", &m.unread_samples}};
    for (const auto& [name, to] : numbers)
      if (key == name) *to = v;
    for (const auto& [name, to] : counts)
      if (key == name && std::abs(v) < 9e18) *to = std::int64_t(v);
    if (key == "skipped") m.skipped = v == 1;
    if (key == "step_ms") m.seconds = v / 1e3;
    if (!key.ends_with("_ms")) return;
    for (std::size_t p = 0; p < phase_count; ++p)
      if (key.substr(0, key.size() - 3) == name_of(Phase(p))) m.phase_seconds[p] = v / 1e3;
  };
  if (!parse_flat_json(line, set) || m.step < 1) return std::nullopt;
  return m;
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t last_step) : path_(path) {
  const std::int64_t keep = kept_bytes(path, last_step, newest_);
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0 || ::ftruncate(file_, keep) != 0 || ::lseek(file_, 0, SEEK_END) < 0)
    fail(Exit::data, "cannot write ", path.string(), " (", std::strerror(errno), ")");
}

MetricsFile::~MetricsFile() {
  if (file_ < 0) return;
  [[maybe_unused]] const auto last_try = ::write(file_, waiting_.data(), waiting_.size());
  ::close(file_);
}

void MetricsFile::write(const StepMetrics& m) {
  const auto ms = [&](Phase p) { return m.phase_seconds[std::size_t(p)] * 1e3; };
  char line[1024];
  const int length = std::snprintf(
      line, sizeof line,
      "{\"step\":%lld,\"epoch\":%lld,\"samples\":%lld,\"loss\":%s,\"lr\":%s,\"grad_norm\":%s,\"loss_"
      "scale\":%s,\"skipped\":%s,"
      "\"samples_per_second\":%.6g,\"step_ms\":%.4f,\"data_wait_ms\":%.4f,\"copy_ms\":%.4f,\"forward_"
      "ms\":%.4f,\"backward_ms\":%.4f,"
      "\"communication_ms\":%.4f,\"optimizer_ms\":%.4f,\"other_ms\":%.4f,\"unread_samples\":%lld}\n",
      (long long)m.step, (long long)m.epoch, (long long)m.samples, Number(m.loss).text, Number(m.lr).text,
      Number(m.grad_norm).text, Number(m.loss_scale).text, m.skipped ? "true" : "false", m.samples_per_second,
      m.seconds * 1e3, ms(Phase::data_wait), ms(Phase::copy), ms(Phase::forward), ms(Phase::backward),
      ms(Phase::communication), ms(Phase::optimizer), ms(Phase::other), (long long)m.unread_samples);
  newest_ = m.step;
  add(line, std::size_t(length));
}

void MetricsFile::write(const ValidationMetrics& m) {
  if (m.step <= newest_) return;  // a finished run that is started again evaluates again
  char line[320];
  const int length = std::snprintf(line, sizeof line,
                                   "{\"step\":%lld,\"epoch\":%lld,\"samples\":%lld,\"loss\":%s,\"accuracy\":%s,"
                                   "\"top5\":%s}\n",
                                   (long long)m.step, (long long)m.epoch, (long long)m.samples, Number(m.loss).text,
                                   m.labels ? Number(m.top1).text : "null", m.labels ? Number(m.top5).text : "null");
  newest_ = m.step;
  add(line, std::size_t(length));
}

void MetricsFile::write(std::int64_t step, const std::string& line) {
  if (step <= newest_) return;
  newest_ = step;
  add(line.data(), line.size());
}

void MetricsFile::add(const char* line, std::size_t length) {
  if (drain()) {
    const std::size_t done = append(line, length);
    if (done == length) return;
    waiting_.assign(line + done, length - done);
    log::warn(cat("the disk of ", path_.string(), " is full. training goes on, the lines wait (", most_waiting >> 20,
                  " MiB; newer ones are left out); free the disk"));
  } else if (waiting_.size() + length <= most_waiting) {
    waiting_.append(line, length);
  } else {
    ++left_out_;
  }
}

// Whether nothing waits any more.
bool MetricsFile::drain() {
  if (waiting_.empty()) return true;
  waiting_.erase(0, append(waiting_.data(), waiting_.size()));
  if (!waiting_.empty()) return false;
  if (left_out_ > 0)
    log::warn(cat(path_.string(), " lacks ", left_out_, left_out_ == 1 ? " line" : " lines",
                  " that were left out while its disk was full"));
  left_out_ = 0;
  return true;
}

// As much as the disk takes: the rest of a line may follow later.
std::size_t MetricsFile::append(const char* text, std::size_t length) {
  for (std::size_t done = 0; done < length;) {
    const ssize_t n = ::write(file_, text + done, length - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) return done;
    if (n < 0) fail(Exit::data, "cannot write ", path_.string(), " (", std::strerror(errno), ")");
    done += std::size_t(n);
  }
  return length;
}

void MetricsFile::sync() {
  drain();
  ::fdatasync(file_);
}

}  // namespace millrace
