// How far a run scales, what would make it scale further, and the report about it.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "advisor/rules/rule_text.hpp"
#include "millrace/advisor/rules/scaling_model.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr double max_model_error = 0.1;  // of a step; larger errors are warned about

// The changes that may make a run scale further: "key = value" and the profile with it.
std::vector<std::pair<std::string, StepProfile>> changes(const StepProfile& s) {
  std::vector<std::pair<std::string, StepProfile>> out;
  const auto add = [&](const std::string& what, auto change) {
    out.emplace_back(what, s);
    change(out.back().second);
  };
  if (!s.overlap) add("comm.overlap = on", [](StepProfile& to) { to.overlap = true; });
  if (s.overlap && !s.beside) add("comm.progress = thread", [](StepProfile& to) { to.beside = true; });
  if (s.element_bytes == 4) add("comm.grad_dtype = bf16", [](StepProfile& to) { to.element_bytes = 2; });
  for (const double factor : {4.0, 0.25})
    if (const double bytes = s.bucket_bytes * factor; bytes >= 1024)
      add(fmt::format("comm.bucket_size = {}", print_bytes(std::uint64_t(bytes))),
          [bytes](StepProfile& to) { to.bucket_bytes = bytes; });
  add("train.global_batch twice as large", [](StepProfile& to) {  // twice as many micro-batches of the same size
    to.samples *= 2;
    to.micro_batches *= 2;
    to.input *= 2;
    to.forward *= 2;
    to.backward *= 2;
  });
  if (s.own.size() > 1) add("ranks of equal speed", [](StepProfile& to) { to.own.clear(); });
  return out;
}

// The requested numbers of ranks, and the powers of two below their maximum.
std::vector<int> ladder_to(const std::vector<int>& ranks) {
  const int most = ranks.empty() ? 1 : *std::max_element(ranks.begin(), ranks.end());
  std::vector<int> out = ranks;
  for (int p = 1; p < most; p *= 2) out.push_back(p);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool possible(const Prediction& p) { return p.samples >= p.ranks; }

std::string largest_loss(const Prediction& p) {
  if (p.exposed >= std::max(p.straggling, p.meeting))
    return fmt::format("{:.1f} ms of communication are exposed in a step of {:.1f} ms", ms(p.exposed), ms(p.step));
  if (p.straggling >= p.meeting)
    return fmt::format("the slowest rank takes {:.1f} ms longer than the others in a step of {:.1f} ms",
                       ms(p.straggling), ms(p.step));
  return fmt::format("the ranks synchronise for {:.1f} ms after a step of {:.1f} ms", ms(p.meeting), ms(p.step));
}

std::string headline(const ScalingForecast& f, const ScalingLimit& all, const std::vector<ScalingAdvice>& advice) {
  const int most = *std::max_element(f.ranks.begin(), f.ranks.end());
  if (all.fails_at == 0)
    return fmt::format("scales to {} ranks at {:.0f} % efficiency, with {:.6g} samples per rank\n", most,
                       100 * all.efficiency, f.shape.samples / f.shape.ranks);
  std::string out = all.ranks > 1 ? fmt::format("scales to {} ranks at {:.0f} % efficiency; on {}, ", all.ranks,
                                                100 * all.efficiency, all.fails_at)
                                  : fmt::format("does not scale at {:.0f} % efficiency: on {} ranks, ",
                                                100 * f.efficiency, all.fails_at);
  out += largest_loss(predict(f.shape, f.interconnect, all.fails_at, Scaling::weak));
  std::string remedies;
  for (const ScalingAdvice& r : advice)
    remedies += fmt::format("{}{}{} with {}", remedies.empty() ? "; it scales to " : ", to ", r.scaling_limit.ranks,
                            r.scaling_limit.fails_at == 0 ? " or more" : "", r.change);
  return out + (remedies.empty() ? "; no single change of comm.* or of the batch helps" : remedies) + "\n";
}

// How far the all-reduces are overlapped with the backward pass.
std::string overlap_line(const ScalingForecast& f, const ScalingLimit& all) {
  const auto ranks = ladder_to(f.ranks);
  const auto next = std::upper_bound(ranks.begin(), ranks.end(), all.overlapped_up_to);
  if (next == ranks.end())
    return "the all-reduces overlap with the backward pass on all of them, except for the last buckets\n";
  const Prediction p = predict(f.shape, f.interconnect, *next, Scaling::weak);
  const std::string beyond =
      fmt::format("on {} ranks the links are busy for {:.1f} ms, of which {:.1f} ms are exposed\n", p.ranks, ms(p.sums),
                  ms(p.exposed));
  if (!f.shape.overlap || !f.shape.beside) return "no all-reduce overlaps in this configuration: " + beyond;
  if (all.overlapped_up_to <= 1) return "the all-reduces do not overlap with the backward pass: " + beyond;
  return fmt::format("the all-reduces overlap with the backward pass up to {} ranks, except for the last buckets; ",
                     all.overlapped_up_to) +
         beyond;
}

std::string table(const ScalingForecast& f, Scaling scaling) {
  std::string out =
      fmt::format("  {:>7} {:>12} {:>10} {:>10} {:>10} {:>9} {:>9} {:>10} {:>9} {:>9}\n", "ranks", "samples", "step ms",
                  "samples/s", "efficiency", "own", "slowest", "all-reduce", "exposed", "sync");
  for (const int ranks : f.ranks) {
    const Prediction p = predict(f.shape, f.interconnect, ranks, scaling);
    if (!possible(p)) {
      out += fmt::format("  {:7}   fewer than one sample a rank\n", ranks);
      continue;
    }
    out += fmt::format("  {:7} {:12.6g} {:10.2f} {:>10} {:8.1f} % {:9.2f} {:9.2f} {:10.2f} {:9.2f} {:9.2f}\n", p.ranks,
                       p.samples, ms(p.step), format_count(p.samples / p.step), 100 * p.efficiency, ms(p.own),
                       ms(p.straggling), ms(p.sums), ms(p.exposed), ms(p.meeting));
  }
  return out;
}

std::string name_of(const LinkModel& link) {
  return link.bytes_per_second > 0
             ? format_rate(link.bytes_per_second) + " and " + format_seconds(link.latency) + " per message"
         : link.latency > 0 ? format_seconds(link.latency) + " per message"
                            : std::string("no time");
}

double modelled(const ScalingForecast& f) { return predict(f.shape, f.of_run, f.shape.ranks, Scaling::weak).step; }

// A warning if the model does not even reproduce the run that it was made from.
std::string model_error(const ScalingForecast& f) {
  const bool known = f.shape.ranks > 1 && !f.shape.own.empty();  // with --even, the run itself differs
  const double off = known ? modelled(f) / f.shape.step - 1 : 0;
  if (std::abs(off) <= max_model_error) return "";
  return fmt::format(
      "warning: the model gives {:.2f} ms for a step of the run itself, which took {:.2f} ms ({:+.0f} %). all "
      "predictions may be wrong by as much. use a longer run on dedicated hosts\n",
      ms(modelled(f)), ms(f.shape.step), 100 * off);
}

std::string basis(const ScalingForecast& f) {
  const StepProfile& s = f.shape;
  std::string out = fmt::format("from a run of {}{}{}", s.ranks, s.ranks == 1 ? " rank" : " ranks",
                                fmt::format(", {:.2f} ms per step of {:.6g} samples", ms(s.step), s.samples));
  if (s.ranks > 1) out += fmt::format("; the model gives {:.2f} ms for it", ms(modelled(f)));
  out += fmt::format("\nlinks ({}): between nodes {}", f.links, name_of(f.interconnect.inter_node));
  if (f.interconnect.ranks_per_node > 1)
    out += fmt::format(", between the {} ranks of a node {}", f.interconnect.ranks_per_node,
                       name_of(f.interconnect.intra_node));
  const double all = s.ready.empty() ? 0 : double(s.ready.back().bytes) * s.element_bytes / 4;
  return out + fmt::format(
                   "; {} per all-reduce of the gradient, {} messages, 2 (p - 1) / p of the bytes{}\nassumed: the same "
                   "kind of ranks and nodes as in the run, step times drawn independently from the measured ones, "
                   "storage that keeps up, links without other traffic{}\n",
                   format_bytes(std::uint64_t(all)), f.interconnect.ring ? "2 (p - 1)" : "2 log2 p",
                   s.zero ? "; ZeRO: reduce-scatter, then all-gather in the next step" : "",
                   s.fixed_micro_batch ? "" : "; computing time proportional to the samples of a rank");
}

ScalingGoal goal_of(const ScalingForecast& f, Scaling scaling) { return {f.ranks, scaling, f.efficiency}; }

json to_json(const LinkModel& l) { return {{"bytes_per_second", l.bytes_per_second}, {"latency", l.latency}}; }
json to_json(const ScalingLimit& r) {
  return {{"ranks", r.ranks}, {"efficiency", r.efficiency}, {"fails_at", r.fails_at}, {"hides_to", r.overlapped_up_to}};
}
json to_json(const Prediction& p) {
  return {{"ranks", p.ranks},
          {"samples", p.samples},
          {"step", p.step},
          {"own", p.own},
          {"sums", p.sums},
          {"exposed", p.exposed},
          {"straggling", p.straggling},
          {"hides", p.fully_overlapped},
          {"efficiency", p.efficiency},
          {"meeting", p.meeting}};
}

}  // namespace

ScalingLimit scaling_limit(const StepProfile& shape, const Interconnect& interconnect, const ScalingGoal& goal) {
  ScalingLimit out;
  bool overlapped = true;
  for (const int p : ladder_to(goal.ranks)) {
    const Prediction here = predict(shape, interconnect, p, goal.scaling);
    if (!possible(here)) break;
    overlapped = overlapped && here.fully_overlapped;
    if (overlapped) out.overlapped_up_to = p;
    if (out.fails_at > 0) continue;
    if (here.efficiency < goal.efficiency) {
      out.fails_at = p;
    } else {
      out.ranks = p;
      out.efficiency = here.efficiency;
    }
  }
  return out;
}

std::vector<ScalingAdvice> scaling_advice(const StepProfile& shape, const Interconnect& interconnect,
                                          const ScalingGoal& goal) {
  std::vector<ScalingAdvice> out;
  const ScalingLimit now = scaling_limit(shape, interconnect, goal);
  if (now.fails_at == 0) return out;
  for (const auto& [what, changed] : changes(shape)) {
    const ScalingLimit then = scaling_limit(changed, interconnect, goal);
    if (then.ranks > now.ranks) out.push_back({what, then});
  }
  std::stable_sort(out.begin(), out.end(), [](const ScalingAdvice& a, const ScalingAdvice& b) {
    return a.scaling_limit.ranks > b.scaling_limit.ranks;
  });
  return out;
}

std::string report(const ScalingForecast& f) {
  const ScalingLimit weak = scaling_limit(f.shape, f.interconnect, goal_of(f, Scaling::weak));
  const ScalingLimit strong = scaling_limit(f.shape, f.interconnect, goal_of(f, Scaling::strong));
  std::string out = headline(f, weak, scaling_advice(f.shape, f.interconnect, goal_of(f, Scaling::weak)));
  out += overlap_line(f, weak) + model_error(f);
  out += fmt::format("\nweak: {:.6g} samples per rank\n", f.shape.samples / f.shape.ranks) + table(f, Scaling::weak);
  out += fmt::format("\nstrong: {:.6g} samples per step, {} at {:.0f} % efficiency\n", f.shape.samples,
                     strong.ranks > 1 ? fmt::format("scales to {} ranks", strong.ranks).c_str() : "does not scale",
                     100 * f.efficiency) +
         table(f, Scaling::strong);
  return out +
         "  (the last five columns are ms per step. own: input, computing and the rest of an average rank; slowest: "
         "what "
         "the slowest rank takes longer; all-reduce: the links are busy; exposed: the step waits for them; sync: "
         "synchronisation after the step)\n\n" +
         basis(f);
}

std::string report_json(const ScalingForecast& f) {
  const ScalingLimit weak = scaling_limit(f.shape, f.interconnect, goal_of(f, Scaling::weak));
  const ScalingLimit strong = scaling_limit(f.shape, f.interconnect, goal_of(f, Scaling::strong));
  json out{
      {"run",
       {{"ranks", f.shape.ranks}, {"samples", f.shape.samples}, {"step", f.shape.step}, {"modelled", modelled(f)}}},
      {"links",
       {{"from", f.links},
        {"far", to_json(f.interconnect.inter_node)},
        {"near", to_json(f.interconnect.intra_node)},
        {"ranks_per_node", f.interconnect.ranks_per_node},
        {"ring", f.interconnect.ring}}},
      {"efficiency", f.efficiency},
      {"weak", {{"reach", to_json(weak)}}},
      {"strong", {{"reach", to_json(strong)}}}};
  for (const Scaling scaling : {Scaling::weak, Scaling::strong}) {
    auto& side = out[scaling == Scaling::weak ? "weak" : "strong"];
    side["steps"] = side["remedies"] = json::array();
    for (const int ranks : f.ranks)
      if (const Prediction p = predict(f.shape, f.interconnect, ranks, scaling); possible(p))
        side["steps"].push_back(to_json(p));
    for (const ScalingAdvice& r : scaling_advice(f.shape, f.interconnect, goal_of(f, scaling)))
      side["remedies"].push_back({{"change", r.change}, {"reach", to_json(r.scaling_limit)}});
  }
  return out.dump(2) + "\n";
}

}  // namespace millrace
