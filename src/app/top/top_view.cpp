#include "app/top/top_view.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "app/top/styled_line.hpp"
#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace::app {
namespace {

struct Shown {
  Phase phase;
  const char* word;  // its first letter marks the phase in the bar
  Color color;
};
constexpr Shown phases[] = {{Phase::data_wait, "data", Color::red},
                            {Phase::copy, "copy", Color::magenta},
                            {Phase::forward, "forward", Color::green},
                            {Phase::backward, "backward", Color::blue},
                            {Phase::communication, "all-reduce", Color::yellow},
                            {Phase::optimizer, "optimizer", Color::cyan},
                            {Phase::other, "rest", Color::none}};

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string lapse(double seconds) { return seconds < 60 ? fmt::format("{:.0f} s", seconds) : format_seconds(seconds); }

// "2 ranks on a, b and 3 more hosts"
std::string places(const RunSnapshot& v) {
  constexpr std::size_t named = 3;
  std::string out = fmt::format("{}{}", v.ranks, v.ranks == 1 ? " rank on " : " ranks on ");
  for (std::size_t h = 0; h < std::min(named, v.hosts.size()); ++h) out += (h ? ", " : "") + v.hosts[h];
  if (v.hosts.size() > named) out += fmt::format(" and {} more hosts", v.hosts.size() - named);
  for (const std::string& more : {v.device, v.precision})
    if (!more.empty()) out += ", " + more;
  return out;
}

StyledLine headline(const RunSnapshot& v) {
  StyledLine line;
  line.add(v.dir, Color::bold).add(": ");
  switch (v.state) {
    case RunStatus::absent:
      return line.add("not started yet", Color::yellow);
    case RunStatus::starting:
      line.add("starting", Color::yellow).add(fmt::format(" for {}", lapse(v.seconds_since_step)));
      break;
    case RunStatus::running:
      line.add("running", Color::green);
      break;
    case RunStatus::no_progress:
      line.add(fmt::format("no step for {}", lapse(v.seconds_since_step)), Color::yellow)
          .add(" (evaluation, checkpoint, or a hang)");
      break;
    case RunStatus::process_lost:
      line.add("gone", Color::red)
          .add(fmt::format(": its process no longer exists; the last step was {} ago", lapse(v.seconds_since_step)));
      break;
    case RunStatus::ended:
      line.add(v.status.empty() ? "ended" : v.status, v.status == "finished" ? Color::green : Color::yellow);
  }
  if (!v.steps.empty()) line.add(fmt::format(", epoch {}", v.steps.last().epoch + 1));
  return line;
}

StyledLine progress(const RunSnapshot& v, const ViewOptions& look) {
  const std::int64_t step = v.steps.empty() ? 0 : v.steps.last().step;
  const double share = v.planned_steps > 0 ? std::min(1.0, double(step) / double(v.planned_steps)) : 0;
  std::string behind = fmt::format(" step {} of {}, {}", step, v.planned_steps, percent(share));
  const double left = v.steps.recent().step_seconds() * double(v.planned_steps - step);
  if (v.state == RunStatus::running && left > 0) behind += ", left " + lapse(left);
  const int width = std::clamp(look.columns - int(behind.size()) - 2, 4, 60);
  const int full = int(share * width);
  StyledLine line;
  line.add("[").add(repeated(look.unicode ? "█" : "#", full), Color::green);
  return line.add(repeated(look.unicode ? "░" : "-", width - full)).add("]").add(behind);
}

struct Scale {
  double low = INFINITY, high = -INFINITY;
  bool log = false;  // logarithmic, when the values differ by more than a factor of ten
  explicit Scale(const std::vector<double>& values) {
    for (const double v : values)
      if (std::isfinite(v)) {
        low = std::min(low, v);
        high = std::max(high, v);
      }
    log = low > 0 && high > 10 * low;
  }
  double at(double v) const {  // 0 to 1
    if (!(high > low)) return 0;
    return log ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
  }
};

std::string sparkline(const std::vector<double>& values, const Scale& scale, bool unicode) {
  static const char* const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char letters[] = "_.:-=+*#";
  std::string out;
  for (const double v : values) {
    const int level = std::isfinite(v) ? std::clamp(int(8 * scale.at(v)), 0, 7) : -1;
    if (level < 0)
      out += '!';
    else if (unicode)
      out += blocks[level];
    else
      out += letters[level];
  }
  return out;
}

StyledLine losses(const RunSnapshot& v, const ViewOptions& look) {
  const StepHistory& steps = v.steps;
  const std::string value = fmt::format("{:.4f} ", steps.last().loss), log = " (log)",
                    behind = fmt::format(" steps {} to {}", steps.first_step(), steps.last().step);
  const int width = std::clamp(look.columns - 8 - int(value.size() + behind.size() + log.size()), 8, 60);
  const auto values = steps.losses(std::size_t(width));
  const Scale scale(values);
  StyledLine line;
  line.add("loss    ").add(value, Color::bold);
  return line.add(sparkline(values, scale, look.unicode), Color::cyan).add(behind + (scale.log ? log : ""));
}

StyledLine speed(const RunSnapshot& v) {
  const auto now = v.steps.recent();
  const StepMetrics& last = v.steps.last();
  StyledLine line;
  line.add("speed   ").add(format_count(now.rate()) + " samples/s", Color::bold);
  const std::string light =
      now.speed_of_light() > 0 ? fmt::format(", speed of light {}", percent(now.speed_of_light())) : "";
  line.add(fmt::format(" now, {} on average{}; {} per step; lr {}, gradient norm {}",
                       format_count(v.steps.all().rate()), light, format_seconds(now.step_seconds()),
                       fmt::format("{:.3g}", last.lr), fmt::format("{:.3g}", last.grad_norm)));
  if (last.loss_scale != 1) line.add(fmt::format(", loss scale {}", fmt::format("{:.6g}", last.loss_scale)));
  if (v.steps.skipped() > 0) line.add(fmt::format(", {} steps skipped", v.steps.skipped()), Color::yellow);
  return line;
}

// A bar of the step time by phase, and below it the names of the phases.
void waterfall(std::vector<StyledLine>& out, const StepHistory::Sum& now, const ViewOptions& look) {
  double total = 0, end = 0;
  for (const Shown& p : phases) total += now.phase_seconds[std::size_t(p.phase)];
  if (total <= 0) return;
  const int width = std::clamp(look.columns - 8, 8, 72);
  StyledLine bar, names;
  bar.add("step    ");
  names.add("        ");
  int drawn = 0;
  for (const Shown& p : phases) {
    const double seconds = now.phase_seconds[std::size_t(p.phase)];
    end += seconds;
    const int until = int(std::lround(end / total * width));
    bar.add(std::string(std::size_t(until - drawn), p.word[0]), p.color);
    drawn = until;
    if (seconds / total >= 0.005) names.add(p.word, p.color).add(fmt::format(" {}  ", percent(seconds / total)));
  }
  out.push_back(bar);
  out.push_back(names);
}

StyledLine bound(const RunSnapshot& v) {
  BottleneckMetrics e;
  const auto now = v.steps.recent();
  const auto of = [&](Phase p) {
    return now.phase_seconds[std::size_t(p)] / double(std::max<std::int64_t>(1, now.steps));
  };
  e.config.machine.ranks = v.ranks;
  e.times.step = now.step_seconds();
  e.without.input = e.times.step - of(Phase::data_wait) - of(Phase::copy);
  e.without.communication = e.without.input - of(Phase::communication);
  e.times.host = of(Phase::other);
  const Bound waits = largest_bound(e), largest = e.share(waits) > e.share(Bound::compute) ? waits : Bound::compute;
  StyledLine line;
  line.add("bound   ").add(name_of(largest), largest == Bound::compute ? Color::green : Color::yellow);
  return line.add(fmt::format(" in the last steps: {} of their time", percent(e.share(largest))));
}

StyledLine checkpoint(const RunSnapshot& v) {
  StyledLine line;
  line.add("saved   ");
  if (v.checkpoint_step < 0) return line.add("no checkpoint yet");
  return line.add(fmt::format("step {}, {} ago", v.checkpoint_step, lapse(v.checkpoint_age)));
}

void validation(std::vector<StyledLine>& out, const RunSnapshot& v) {
  const bool ended = v.state == RunStatus::ended;
  if (std::isnan(v.valid_loss) || (!ended && v.valid_step < 0)) return;
  StyledLine line;
  line.add(ended ? "result  " : "valid   ").add(fmt::format("validation loss {}", fmt::format("{:.4f}", v.valid_loss)));
  if (v.valid_accuracy >= 0) line.add(", top-1 ").add(fmt::format("{:.2f} %", 100 * v.valid_accuracy), Color::bold);
  if (!ended) line.add(fmt::format(" at step {}", v.valid_step));
  out.push_back(line);
}

void result(std::vector<StyledLine>& out, const RunSnapshot& v) {
  validation(out, v);
  if (!v.advice.empty()) {
    StyledLine advice;
    out.push_back(advice.add("advice  ").add(v.advice));
  }
}

}  // namespace

std::vector<std::string> describe(const RunSnapshot& v, const ViewOptions& look) {
  std::vector<StyledLine> lines{headline(v)};
  if (v.state != RunStatus::absent) lines.push_back(progress(v, look));
  if (v.state != RunStatus::absent && !look.brief) {
    if (!v.steps.empty()) {
      lines.push_back(losses(v, look));
      lines.push_back(speed(v));
      waterfall(lines, v.steps.recent(), look);
      if (v.state != RunStatus::ended) {
        lines.push_back(bound(v));
        validation(lines, v);
      }
    }
    if (v.state == RunStatus::ended) result(lines, v);
    lines.push_back(checkpoint(v));
    StyledLine where;
    lines.push_back(where.add("where   ").add(places(v)));
  }
  std::vector<std::string> out;
  for (const StyledLine& line : lines) out.push_back(line.text(look.columns, look.color));
  return out;
}

}  // namespace millrace::app
