#include "millrace/runs/metrics.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "runs/step_line.hpp"

namespace millrace {
namespace {

constexpr std::size_t max_waiting_bytes = 4 << 20;  // about ten thousand steps

// The bytes of the leading complete lines whose step is at most last_step. Sets `newest` to the step of the last of
// them. Every line begins with {"step":N,
std::int64_t kept_bytes(const std::filesystem::path& path, std::int64_t last_step, std::int64_t& newest) {
  std::ifstream in(path, std::ios::binary);
  std::int64_t kept = 0;
  for (std::string line; std::getline(in, line);) {
    long long step = 0;
    if (in.eof() || std::sscanf(line.c_str(), "{\"step\":%lld,", &step) != 1 || step > last_step) break;
    kept += std::int64_t(line.size()) + 1;
    newest = step;
  }
  return kept;
}

// A double as JSON. JSON has no NaN, so null stands for values that are not finite. 17 digits keep all bits.
std::string number(double v) { return std::isfinite(v) ? fmt::format("{:.17g}", v) : "null"; }

}  // namespace

std::optional<StepMetrics> parse_metrics(const std::string& line) {
  StepLine fields;
  if (!fields.parse(line)) return std::nullopt;
  StepMetrics m;
  const auto count = [&](std::size_t field) {
    const double v = fields.value(field, 0);
    return std::abs(v) < 9e18 ? std::int64_t(v) : 0;  // false for NaN too
  };
  m.step = count(StepLine::step);
  m.epoch = count(StepLine::epoch);
  m.samples = count(StepLine::samples);
  m.unread_samples = count(StepLine::unread_samples);
  m.loss = fields.value(StepLine::loss, m.loss);
  m.lr = fields.value(StepLine::lr, m.lr);
  m.grad_norm = fields.value(StepLine::grad_norm, m.grad_norm);
  m.loss_scale = fields.value(StepLine::loss_scale, m.loss_scale);
  m.samples_per_second = fields.value(StepLine::samples_per_second, m.samples_per_second);
  m.speed_of_light = fields.value(StepLine::speed_of_light, m.speed_of_light);
  m.skipped = fields.value(StepLine::skipped, 0) == 1;
  m.seconds = fields.value(StepLine::step_ms, 0) / 1e3;
  for (std::size_t p = 0; p < phase_count; ++p) m.phase_seconds[p] = fields.value(StepLine::first_phase + p, 0) / 1e3;
  if (m.step < 1) return std::nullopt;
  return m;
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t last_step) : path_(path) {
  require_regular_file(path);
  const std::int64_t keep = kept_bytes(path, last_step, newest_);
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0 || ::ftruncate(file_, keep) != 0 || ::lseek(file_, 0, SEEK_END) < 0)
    fail(Exit::data, "cannot write {} ({})", path.string(), std::strerror(errno));
}

MetricsFile::~MetricsFile() {
  if (file_ < 0) return;
  const bool all = waiting_.empty() || ::write(file_, waiting_.data(), waiting_.size()) == ssize_t(waiting_.size());
  if (!all) try {
      log::warn(fmt::format("{} lacks its last lines, because its disk is full", path_.string()));
    } catch (...) {  // a destructor must not throw
    }
  ::close(file_);
}

void MetricsFile::write(const StepMetrics& m) {
  const auto ms = [&](Phase p) { return m.phase_seconds[std::size_t(p)] * 1e3; };
  newest_ = m.step;
  std::string line = fmt::format(
      "{{\"step\":{},\"epoch\":{},\"samples\":{},\"loss\":{},\"lr\":{},\"grad_norm\":{},\"loss_scale\":{},"
      "\"skipped\":{},\"samples_per_second\":{:.6g},\"step_ms\":{:.4f},\"data_wait_ms\":{:.4f},\"copy_ms\":"
      "{:.4f},\"forward_ms\":{:.4f},\"backward_ms\":{:.4f},\"communication_ms\":{:.4f},\"optimizer_ms\":{:."
      "4f},\"other_ms\":{:.4f},\"unread_samples\":{}",
      m.step, m.epoch, m.samples, number(m.loss), number(m.lr), number(m.grad_norm), number(m.loss_scale),
      m.skipped ? "true" : "false", m.samples_per_second, m.seconds * 1e3, ms(Phase::data_wait), ms(Phase::copy),
      ms(Phase::forward), ms(Phase::backward), ms(Phase::communication), ms(Phase::optimizer), ms(Phase::other),
      m.unread_samples);
  if (m.speed_of_light > 0) line += fmt::format(",\"speed_of_light\":{:.4f}", m.speed_of_light);
  for (std::size_t i = 0; i < m.loss_names.size(); ++i)
    line += fmt::format(",\"loss.{}\":{}", m.loss_names[i], number(m.losses[i]));
  add(line + "}\n");
}

void MetricsFile::write(const ValidationMetrics& m) {
  if (m.step <= newest_) return;  // a finished run that is launched again evaluates again
  newest_ = m.step;
  std::string line =
      fmt::format("{{\"step\":{},\"epoch\":{},\"samples\":{},\"loss\":{},\"accuracy\":{},\"top5\":{}", m.step, m.epoch,
                  m.samples, number(m.loss), m.labels ? number(m.top1) : "null", m.labels ? number(m.top5) : "null");
  for (const auto& [name, value] : m.others) line += fmt::format(",\"{}\":{}", name, number(value));
  add(line + "}\n");
}

void MetricsFile::write(std::int64_t step, const std::string& line) {
  if (step <= newest_) return;
  newest_ = step;
  add(line);
}

void MetricsFile::add(std::string_view line) {
  if (drain()) {
    const std::size_t done = append(line);
    if (done == line.size()) return;
    waiting_ = line.substr(done);
    log::warn(
        fmt::format("the disk of {} is full. training goes on and the lines wait in memory (up to {} MiB; later ones "
                    "are left out). free some space",
                    path_.string(), max_waiting_bytes >> 20));
  } else if (waiting_.size() + line.size() <= max_waiting_bytes) {
    waiting_ += line;
  } else {
    ++left_out_;
  }
}

// Writes the waiting lines. Returns whether none is left.
bool MetricsFile::drain() {
  if (waiting_.empty()) return true;
  waiting_.erase(0, append(waiting_));
  if (!waiting_.empty()) return false;
  if (left_out_ > 0)
    log::warn(fmt::format("{} lacks {}{} that were left out while its disk was full", path_.string(), left_out_,
                          left_out_ == 1 ? " line" : " lines"));
  left_out_ = 0;
  return true;
}

// Writes as much as the disk takes and returns the bytes written. The rest of a line may follow later.
std::size_t MetricsFile::append(std::string_view text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) return done;
    if (n < 0) fail(Exit::data, "cannot write {} ({})", path_.string(), std::strerror(errno));
    done += std::size_t(n);
  }
  return text.size();
}

void MetricsFile::sync() {
  drain();
  ::fdatasync(file_);
}

}  // namespace millrace
