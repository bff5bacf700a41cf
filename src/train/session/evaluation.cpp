#include "train/session/evaluation.hpp"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "millrace/base/error.hpp"

namespace millrace {

double Evaluation::value(BestMetric metric) const {
  if (metric == BestMetric::loss) return loss;
  if (metric == BestMetric::accuracy && labels) return top1;
  if (metric == BestMetric::top5 && labels) return top5;
  for (const auto& [one, value] : metrics)
    if (one == metric) return value;
  return std::numeric_limits<double>::quiet_NaN();
}

std::vector<std::pair<std::string, double>> Evaluation::values_of_losses() const {
  std::vector<std::pair<std::string, double>> out;
  for (const LossEvaluation& one : losses) {
    const auto add = [&](const char* what, double value) {
      out.emplace_back(fmt::format("{}.{}", what, one.name), value);
    };
    add("loss", one.loss);
    if (std::isfinite(one.top1)) add("accuracy", one.top1);
    if (std::isfinite(one.top5)) add("top5", one.top5);
    for (const auto& [metric, value] : one.metrics) add(traits_of(metric).name, value);
  }
  return out;
}

std::string Evaluation::str() const {
  std::string text = task == Task::binary
                         ? fmt::format("loss {:.4f}, accuracy {:.2f} % of {} labels", loss, top1 * 100, rows)
                     : labels ? fmt::format("loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} % of {}{}{}", loss, top1 * 100,
                                            top5 * 100, rows, *positions ? " " : "", positions)
                              : fmt::format("loss {:.6g} on {} rows", loss, rows);
  for (const auto& [metric, value] : metrics) text += fmt::format(", {} {:.4g}", traits_of(metric).title, value);
  for (const LossEvaluation& one : losses) {
    text += fmt::format("; {}: loss {:.4g}", one.name, one.loss);
    if (std::isfinite(one.top1)) text += fmt::format(", accuracy {:.2f} %", one.top1 * 100);
    for (const auto& [metric, value] : one.metrics) text += fmt::format(", {} {:.4g}", traits_of(metric).title, value);
  }
  return unread == 0 ? text : fmt::format("{}, {} samples could not be read", text, unread);
}

}  // namespace millrace
