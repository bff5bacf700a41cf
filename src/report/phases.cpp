// The time by phase: over the steps, and rank by rank.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "millrace/base/error.hpp"
#include "millrace/base/median.hpp"
#include "report/html.hpp"
#include "report/plot.hpp"
#include "report/sections.hpp"

namespace millrace::report {
namespace {

constexpr std::size_t max_ranks = 24;

std::string bar(const RankAccount& r, double longest) {
  std::string out;
  for (const Phase p : phase_order()) {
    const double s = r.seconds[std::size_t(p)];
    if (s <= 0 || longest <= 0 || s / longest < 2e-4) continue;
    out += fmt::format("<i class=\"{}\" style=\"width:{}%\" title=\"{} {}\"></i>", phase_class(p),
                       fixed(100 * s / longest, 2), name_of(p), seconds_text(s));
  }
  return out;
}

// The ranks to show: all, or those that waited least and most for others. A slow rank waits little and makes the others
// wait.
std::vector<std::size_t> shown_ranks(const std::vector<RankAccount>& ranks) {
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  if (ranks.size() <= max_ranks) return order;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ranks[a].seconds[std::size_t(Phase::communication)] < ranks[b].seconds[std::size_t(Phase::communication)];
  });
  order.erase(order.begin() + max_ranks / 2, order.end() - max_ranks / 2);
  std::sort(order.begin(), order.end());
  return order;
}

std::string phase_table(const std::vector<RankAccount>& ranks, double wall) {
  std::string rows;
  for (const Phase p : phase_order()) {
    std::vector<double> s;
    for (const RankAccount& r : ranks) s.push_back(r.seconds[std::size_t(p)]);
    const auto [min, max] = std::minmax_element(s.begin(), s.end());
    if (*max < 5e-4) continue;
    const auto shown = [&](double v) { return wall < 1000 ? fixed(v, 2) : integer_text(v); };
    const double middle = median(s);
    rows += fmt::format("<tr><th><i class=\"key {}\"></i>{}</th>", phase_class(p), name_of(p));
    if (ranks.size() > 1) rows += fmt::format("<td>{}</td>", shown(*min));
    rows += fmt::format("<td>{}</td>", shown(middle));
    if (ranks.size() > 1) rows += fmt::format("<td>{}</td>", shown(*max));
    rows += fmt::format("<td>{}</td></tr>", percent(wall > 0 ? middle / wall : 0));
  }
  return fmt::format(
      "<div "
      "class=\"scroll\"><table class=\"phases\"><thead><tr><th>phase</th>{}<th>of the "
      "run</th></tr></thead><tbody>{}</tbody>"
      "</table></div><p class=\"quiet\">data_wait: waiting for the loader; communication: waiting for "
      "all-reduces.</p>",
      ranks.size() > 1 ? "<th>min s</th><th>median s</th><th>max s</th>" : "<th>seconds</th>", rows);
}

}  // namespace

const std::vector<Phase>& phase_order() {
  static const std::vector<Phase> order{Phase::forward,    Phase::backward, Phase::optimizer, Phase::communication,
                                        Phase::data_wait,  Phase::copy,     Phase::other,     Phase::evaluation,
                                        Phase::checkpoint, Phase::startup};
  return order;
}

std::string phase_class(Phase p) { return fmt::format("p-{}", name_of(p)); }

std::string time_over_steps(const Run& run, double steps_per_epoch) {
  const Curves& c = run.curves;
  std::vector<double> begin, end;
  for (std::size_t i = 0; i < c.bins(); ++i) {
    begin.push_back(c.begin(i));
    end.push_back(c.end(i));
  }
  std::vector<StackedSeries> layers;
  for (const Phase p : phase_order())
    if (const Curve& values = c.phase_ms[std::size_t(p)]; !values.mean.empty())
      layers.push_back({name_of(p), phase_class(p), values.mean});
  PlotText text{"Step time by phase", "ms per step, mean of rank 0", "step", true};
  text.steps_per_epoch = steps_per_epoch;
  return stacked_areas(text, begin, end, layers);
}

std::string time_by_rank(const Run& run) {
  if (!run.summary || run.summary->account.ranks.empty()) return "";
  const auto& ranks = run.summary->account.ranks;
  std::vector<double> walls;
  for (const RankAccount& r : ranks) walls.push_back(r.wall_seconds);
  const double longest = *std::max_element(walls.begin(), walls.end());
  std::string rows;
  const auto which = shown_ranks(ranks);
  for (const std::size_t r : which)
    rows += fmt::format(
        "<div class=\"row\"><span class=\"name\" title=\"{}\">rank {} <small>{}</small></span><span "
        "class=\"bar\">{}</span><span class=\"num\">{}</span></div>",
        escaped(ranks[r].host), (unsigned long long)r, escaped(ranks[r].host), bar(ranks[r], longest),
        seconds_text(ranks[r].wall_seconds));
  const std::string note = which.size() == ranks.size()
                               ? std::string()
                               : fmt::format(
                                     "<p class=\"quiet\">The {} of {} ranks that waited least for all-reduces, and the "
                                     "{} that waited most.</p>",
                                     (unsigned long long)(max_ranks / 2), (unsigned long long)ranks.size(),
                                     (unsigned long long)(max_ranks / 2));
  return fmt::format(
      "<figure><figcaption>Rank by rank, over the whole run</figcaption><div class=\"bars\">{}</div>{}{}</figure>\n",
      rows, note, phase_table(ranks, median(walls)));
}

}  // namespace millrace::report
