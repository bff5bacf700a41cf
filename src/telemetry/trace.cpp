#include "millrace/telemetry/trace.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "millrace/telemetry/json_text.hpp"

namespace millrace {
namespace {

using nlohmann::json;

json stats_json(const Span& s) {
  json out = json::object();
  for (const auto& [name, value] : s.stats) out[name] = value;
  return out;
}

std::vector<std::pair<std::string, double>> stats_from(const json& j) {
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [name, value] : j.items()) out.emplace_back(name, value.get<double>());
  return out;
}

bool earlier(const Span& a, const Span& b) { return a.began != b.began ? a.began < b.began : a.ended > b.ended; }

// The spans of each track, sorted. The tracks are in the order of their first span.
std::vector<std::pair<std::string, std::vector<Span>>> tracks_of(const RankTrace& rank) {
  std::vector<std::pair<std::string, std::vector<Span>>> out;
  std::map<std::string, std::size_t> number;
  for (const Span& s : rank.spans) {
    const auto [at, is_new] = number.emplace(s.track, out.size());
    if (is_new) out.push_back({s.track, {}});
    out[at->second].second.push_back(s);
  }
  for (auto& [name, spans] : out) std::stable_sort(spans.begin(), spans.end(), earlier);
  return out;
}

// A metadata event.
json metadata(const char* what, int pid, int tid, const char* key, const json& value) {
  return {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{key, value}}}};
}

// Rounded to nanoseconds, so that nested spans stay nested.
double micros(double seconds) { return double(std::llround(seconds * 1e9)) * 1e-3; }

}  // namespace

std::string RankTrace::json() const {
  auto list = nlohmann::json::array();
  for (const Span& s : spans) list.push_back({s.track, s.name, s.began, s.ended, stats_json(s)});
  return json_text(nlohmann::json{
      {"host", host}, {"offset", clock_offset}, {"error", clock_error}, {"left_out", left_out}, {"spans", list}});
}

RankTrace RankTrace::from_json(const std::string& text) {
  const auto j = nlohmann::json::parse(text);
  RankTrace out{j.at("host"), j.at("offset"), j.at("error"), {}, j.at("left_out")};
  for (const auto& s : j.at("spans")) out.spans.push_back({s.at(0), s.at(1), s.at(2), s.at(3), stats_from(s.at(4))});
  return out;
}

void limit(RankTrace& rank, std::size_t max_spans) {
  if (rank.spans.size() <= max_spans) return;
  rank.left_out += rank.spans.size() - max_spans;
  rank.spans.resize(max_spans);
}

std::vector<int> lanes_of(const std::vector<Span>& spans) {
  constexpr double rounding = 1e-9;       // times in a file are whole nanoseconds
  std::vector<std::vector<double>> open;  // by lane: the ends of the spans that have not ended yet
  std::vector<int> out;
  for (const Span& s : spans) {
    std::size_t lane = 0;
    for (;; ++lane) {
      if (lane == open.size()) open.emplace_back();
      auto& ends = open[lane];
      while (!ends.empty() && ends.back() <= s.began + rounding) ends.pop_back();
      if (ends.empty() || s.ended <= ends.back() + rounding) break;
    }
    open[lane].push_back(s.ended);
    out.push_back(int(lane));
  }
  return out;
}

namespace {

// Appends the events of one rank. first: the beginning of the trace on rank 0's clock.
void add_rank(json& events, const RankTrace& rank, int pid, double first) {
  const auto since_first = [&](double seconds) { return seconds - rank.clock_offset - first; };
  events.push_back(metadata("process_name", pid, 0, "name", "rank " + std::to_string(pid) + " on " + rank.host));
  events.push_back(metadata("process_sort_index", pid, 0, "sort_index", pid));
  int tid = 0;
  for (const auto& [track, spans] : tracks_of(rank)) {
    const std::vector<int> lanes = lanes_of(spans);
    const int count = spans.empty() ? 0 : 1 + *std::max_element(lanes.begin(), lanes.end());
    for (int lane = 0; lane < count; ++lane)
      events.push_back(metadata("thread_name", pid, tid + lane, "name",
                                lane == 0 ? track : track + " (" + std::to_string(lane + 1) + ")"));
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const Span& s = spans[i];
      const double began = micros(since_first(s.began));
      const double ended = micros(since_first(std::max(s.began, s.ended)));
      events.push_back({{"ph", "X"},
                        {"name", s.name},
                        {"cat", track},
                        {"pid", pid},
                        {"tid", tid + lanes[i]},
                        {"ts", began},
                        {"dur", ended - began}});
      if (!s.stats.empty()) events.back()["args"] = stats_json(s);
    }
    tid += count;
  }
}

}  // namespace

std::string trace_json(const std::vector<RankTrace>& ranks) {
  double first = std::numeric_limits<double>::infinity(), error = 0;
  std::size_t left_out = 0;
  auto clocks = json::array();
  for (const RankTrace& r : ranks) {
    for (const Span& s : r.spans) first = std::min(first, s.began - r.clock_offset);
    error = std::max(error, r.clock_error);
    left_out += r.left_out;
    clocks.push_back({{"host", r.host}, {"offset_us", r.clock_offset * 1e6}, {"error_us", r.clock_error * 1e6}});
  }
  auto events = json::array();
  for (std::size_t r = 0; r < ranks.size(); ++r) add_rank(events, ranks[r], int(r), first);
  // One event per line, so that text tools can handle files of millions of events.
  std::string out = "{\"traceEvents\":[\n";
  for (std::size_t i = 0; i < events.size(); ++i) out += json_text(events[i]) + (i + 1 < events.size() ? ",\n" : "\n");
  const json about{{"program", "millrace"},
                   {"ranks", ranks.size()},
                   {"clock", "rank 0's; offsets by barriers after the traced steps"},
                   {"largest_clock_error_us", error * 1e6},
                   {"clocks", clocks},
                   {"spans_left_out", left_out}};
  return out + "],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":" + json_text(about) + "}\n";
}

std::vector<RankTrace> trace_from_json(const std::string& text) {
  const auto j = json::parse(text);
  std::vector<RankTrace> ranks;
  for (const auto& clock : j.at("otherData").at("clocks"))
    ranks.push_back({clock.at("host"),
                     clock.at("offset_us").get<double>() * 1e-6,
                     clock.at("error_us").get<double>() * 1e-6,
                     {},
                     0});
  if (!ranks.empty()) ranks[0].left_out = j.at("otherData").at("spans_left_out");
  for (const auto& e : j.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    const double began = e.at("ts").get<double>() * 1e-6;
    ranks.at(e.at("pid").get<std::size_t>())
        .spans.push_back({e.at("cat"), e.at("name"), began, began + e.at("dur").get<double>() * 1e-6,
                          stats_from(e.value("args", json::object()))});
  }
  return ranks;
}

}  // namespace millrace
