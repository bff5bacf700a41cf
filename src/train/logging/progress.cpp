#include "train/logging/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "millrace/base/units.hpp"

namespace millrace {
namespace {

// A loss scale of 1, as always in fp32 and bf16, cannot be the cause of the overflow.
const char* note_of(const StepMetrics& m) {
  return !m.skipped ? "" : m.loss_scale == 1 ? " | not finite, skipped" : " | overflow, skipped";
}

}  // namespace

bool on_terminal() {
  if (const char* setting = std::getenv("MILLRACE_TERMINAL")) return std::strcmp(setting, "1") == 0;
  const bool launched = std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMIX_RANK") || std::getenv("SLURM_PROCID");
  return !launched && ::isatty(STDOUT_FILENO);
}

std::string light_text(double share) {
  if (share <= 0) return "";
  return share < 0.1 ? fmt::format(", speed of light {:.1f} %", 100 * share)
                     : fmt::format(", speed of light {:.0f} %", 100 * share);
}

Progress::Progress(bool enabled, bool terminal, double every_seconds)
    : enabled_(enabled), terminal_(terminal), every_(every_seconds) {}

void Progress::line(const std::string& text) {
  if (!enabled_) return;
  if (open_line_) std::fputs("\r\033[K", stdout);
  open_line_ = false;
  std::fputs(text.c_str(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

void Progress::step(const StepMetrics& m, std::int64_t total_steps) {
  smooth_seconds_ = shown_ == 0 ? m.seconds : 0.95 * smooth_seconds_ + 0.05 * m.seconds;
  ++shown_;
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  const double since = std::chrono::duration<double>(now - last_).count();
  const bool due =
      terminal_ ? since >= 0.2 || m.step == total_steps : shown_ <= 3 || since >= every_ || m.step == total_steps;
  if (!due) return;
  last_ = now;
  const auto ms = [&](Phase p) { return m.phase_seconds[std::size_t(p)] * 1e3; };
  const bool has_loss = !std::isnan(m.loss) || m.unread_samples == 0;
  constexpr double many_digits = 1e6;
  const std::string loss = !has_loss                        ? "none, no sample read"
                           : std::abs(m.loss) < many_digits ? fmt::format("{:.4f}", m.loss)
                                                            : fmt::format("{:.4g}", m.loss);
  const std::string text = fmt::format(
      "step {}/{} epoch {} | loss {} | lr {:.3g} | {} samples/s{} | step {:.1f} ms = data {:.1f} fwd {:.1f} bwd {:.1f} "
      "comm {:.1f} opt {:.1f} other {:.1f}{}{}",
      m.step, total_steps, m.epoch + 1, loss, m.lr, format_count(m.samples_per_second), light_text(m.speed_of_light),
      m.seconds * 1e3, ms(Phase::data_wait) + ms(Phase::copy), ms(Phase::forward), ms(Phase::backward),
      ms(Phase::communication), ms(Phase::optimizer), ms(Phase::other), note_of(m),
      m.step < total_steps ? " | left " + format_seconds(smooth_seconds_ * double(total_steps - m.step)) : "");
  if (!terminal_) return line(text);
  fmt::print("\r{}\033[K", text);
  std::fflush(stdout);
  open_line_ = true;
}

}  // namespace millrace
