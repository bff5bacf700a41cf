// The timeline of the sampled steps: the step, the all-reduces and the loader of each rank, on one clock.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "report/html.hpp"
#include "report/plot.hpp"
#include "report/sections.hpp"

namespace millrace::report {
namespace {

constexpr std::size_t max_rank_rows = 4, max_steps = 3, max_worker_rows = 8;

struct Window {
  double begin = 0, end = 0;
  std::vector<std::pair<std::string, double>> steps;  // name, and begin on the first rank shown
};

bool is_step(const Span& s) { return s.track == "step" && s.name.starts_with("step "); }

// The first sampled steps: from the earliest begin to the latest end on any rank.
Window window_of(const std::vector<RankTrace>& ranks) {
  Window w{1e300, -1e300, {}};
  for (const RankTrace& r : ranks) {
    std::size_t seen = 0;
    for (const Span& s : r.spans) {
      if (!is_step(s) || seen++ == max_steps) continue;
      if (seen > max_steps) break;
      w.begin = std::min(w.begin, s.began);
      w.end = std::max(w.end, s.ended);
      if (&r == &ranks.front()) w.steps.emplace_back(s.name, s.began);
    }
  }
  return w;
}

std::string css_of(const Span& s) {
  for (int p = 0; p < phase_count; ++p)
    if (s.track == "step" && s.name == name_of(Phase(p))) return phase_class(Phase(p));
  if (s.track == "sums") return phase_class(Phase::communication);
  return phase_class(Phase::data_wait);
}

std::string tip(const Span& s) {
  std::string out = fmt::format("{}, {}", s.name, seconds_text(s.ended - s.began));
  for (const auto& [name, value] : s.stats) {
    if (name == "bytes") out += fmt::format(", {}", format_bytes(std::uint64_t(value)));
    if (name == "queued_us") out += fmt::format(", queued {}", seconds_text(value * 1e-6));
  }
  return out;
}

// Draws the spans of one lane. A span that is too short to be seen is left out if it follows closely on another one.
std::string row(const std::vector<Span>& spans, const Window& w) {
  const double length = w.end - w.begin, min_length = 5e-4 * length;
  std::string out;
  double drawn_to = -1e300;
  int count = 0;
  for (const Span& s : spans) {
    const double begin = std::max(s.began, w.begin), end = std::min(s.ended, w.end);
    if (end <= begin) continue;
    if (end - begin < min_length && begin - drawn_to < min_length) continue;
    drawn_to = std::max(drawn_to, end);
    const double width = (end - begin) / length;
    out += fmt::format("<i class=\"{}{}\" style=\"left:{}%;width:{}%\" title=\"{}\">{}</i>", css_of(s),
                       s.track != "step" && count++ % 2 ? " odd" : "", fixed(100 * (begin - w.begin) / length, 3),
                       fixed(100 * width, 3), escaped(tip(s)), width > 0.045 ? escaped(s.name) : std::string());
  }
  return out;
}

std::string rank_rows(const RankTrace& rank, std::size_t number, const Window& w) {
  std::vector<std::pair<std::string, std::vector<Span>>> tracks{{"step", {}}, {"sums", {}}};
  for (const Span& s : rank.spans) {
    if (is_step(s) || s.ended <= w.begin || s.began >= w.end) continue;
    auto at = std::find_if(tracks.begin(), tracks.end(), [&](const auto& t) { return t.first == s.track; });
    if (at == tracks.end()) at = tracks.insert(tracks.end(), {s.track, {}});
    at->second.push_back(s);
  }
  std::sort(tracks.begin() + 2, tracks.end(), [](const auto& a, const auto& b) {
    return a.first.size() != b.first.size() ? a.first.size() < b.first.size() : a.first < b.first;
  });
  std::string out = fmt::format(
      "<div class=\"rank\">rank {} <small>{}{}</small></div>", (unsigned long long)number, escaped(rank.host),
      rank.clock_error > 0 ? fmt::format(", clock ±{}", seconds_text(rank.clock_error)) : std::string());
  std::size_t workers = 0;
  for (auto& [name, spans] : tracks) {
    if (spans.empty() || (name.starts_with("loader") && workers++ == max_worker_rows)) continue;
    if (workers > max_worker_rows) break;
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return a.began != b.began ? a.began < b.began : a.ended > b.ended;
    });
    const std::vector<int> lanes = lanes_of(spans);
    const int count = 1 + *std::max_element(lanes.begin(), lanes.end());
    for (int lane = 0; lane < count; ++lane) {
      std::vector<Span> of_lane;
      for (std::size_t i = 0; i < spans.size(); ++i)
        if (lanes[i] == lane) of_lane.push_back(spans[i]);
      out += fmt::format("<div class=\"lane\"><span class=\"name\">{}</span><span class=\"track\">{}</span></div>",
                         lane ? std::string() : escaped(name == "sums" ? "comm" : name), row(of_lane, w));
    }
  }
  return out;
}

}  // namespace

std::string timeline_of(const Run& run) {
  if (!run.trace_note.empty()) return fmt::format("<p class=\"quiet\">{}</p>", escaped(run.trace_note));
  if (run.trace.empty()) return "";
  const std::vector<RankTrace> ranks(run.trace.begin(),
                                     run.trace.begin() + std::ptrdiff_t(std::min(max_rank_rows, run.trace.size())));
  const Window w = window_of(ranks);
  if (w.end <= w.begin) return "";
  std::string rows;
  for (std::size_t r = 0; r < ranks.size(); ++r) rows += rank_rows(ranks[r], r, w);
  std::string steps;
  double free_from = 0;  // the name of a step is left out if it would overlap the name before
  for (const auto& [name, began] : w.steps) {
    const double place = (began - w.begin) / (w.end - w.begin), wide = (double(name.size()) + 1) / min_width_chars;
    if (place < free_from || place + wide > 1) continue;
    free_from = place + wide;
    steps += fmt::format("<span style=\"left:{}%\">{}</span>", fixed(100 * place, 2), escaped(name));
  }
  return fmt::format(
      "<figure class=\"wide\"><figcaption>Timeline of {}</figcaption><p class=\"quiet\">In a gap, a loader worker "
      "waits for a free slot or for a read. ui.perfetto.dev shows the complete sample, trace.json.</p><div "
      "class=\"gantt\"><div class=\"lane head\"><span class=\"name\"></span><span "
      "class=\"track\">{}</span></div>{}<div class=\"lane foot\"><span class=\"name\">ms</span><span "
      "class=\"track\">{}</span></div></div>{}</figure>\n",
      w.steps.size() == 1 ? "a step" : "some steps", steps, rows, x_axis_labels(x_axis(0, (w.end - w.begin) * 1e3, 6)),
      run.trace.size() > ranks.size()
          ? fmt::format("<p class=\"quiet\">The first {} of {} ranks.</p>", (unsigned long long)ranks.size(),
                        (unsigned long long)run.trace.size())
          : std::string());
}

}  // namespace millrace::report
