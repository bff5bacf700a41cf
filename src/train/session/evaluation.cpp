#include "train/session/evaluation.hpp"

#include <fmt/core.h>

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

std::string Evaluation::str() const {
  std::string text = task == Task::binary
                         ? fmt::format("loss {:.4f}, accuracy {:.2f} % of {} labels", loss, top1 * 100, rows)
                     : labels ? fmt::format("loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} % of {}{}{}", loss, top1 * 100,
                                            top5 * 100, rows, *positions ? " " : "", positions)
                              : fmt::format("loss {:.6g} on {} rows", loss, rows);
  for (const auto& [metric, value] : metrics) text += fmt::format(", {} {:.4g}", traits_of(metric).title, value);
  return unread == 0 ? text : fmt::format("{}, {} samples could not be read", text, unread);
}

}  // namespace millrace
