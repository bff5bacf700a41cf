// How far a run scales, what would move that, and how it is said.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "millrace/advisor/rules/scaling_model.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/telemetry/text.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr double most_doubt = 0.1;  // of a step

// The key's new value, or none where it has no use.
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
      add(cat("comm.bucket_size = ", print_bytes(std::uint64_t(bytes))),
          [bytes](StepProfile& to) { to.bucket_bytes = bytes; });
  add("train.global_batch twice as large", [](StepProfile& to) {  // as one micro-batch more of each
    to.samples *= 2, to.micro_batches *= 2, to.input *= 2, to.forward *= 2, to.backward *= 2;
  });
  if (s.own.size() > 1) add("ranks of equal speed", [](StepProfile& to) { to.own.clear(); });
  return out;
}

// Those asked for, and the powers of two below.
std::vector<int> steps_to(const std::vector<int>& ranks) {
  const int most = ranks.empty() ? 1 : *std::max_element(ranks.begin(), ranks.end());
  std::vector<int> out = ranks;
  for (int p = 1; p < most; p *= 2) out.push_back(p);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

double ms(double seconds) { return seconds * 1e3; }
bool possible(const Prediction& p) { return p.samples >= p.ranks; }

std::string what_takes(const Prediction& p) {
  if (p.exposed >= std::max(p.straggling, p.meeting))
    return text("%.1f ms of communication are not hidden in a step of %.1f ms", ms(p.exposed), ms(p.step));
  if (p.straggling >= p.meeting)
    return text("the slowest rank takes %.1f ms longer than others in a step of %.1f ms", ms(p.straggling), ms(p.step));
  return text("ranks agree for %.1f ms after a step of %.1f ms", ms(p.meeting), ms(p.step));
}

std::string headline(const ScalingForecast& f, const ScalingLimit& all, const std::vector<ScalingAdvice>& moves) {
  const int most = *std::max_element(f.ranks.begin(), f.ranks.end());
  if (all.fails_at == 0)
    return text("scales to %d ranks at %.0f %% of what each does alone, with %.6g samples a rank\n", most,
                100 * all.efficiency, f.shape.samples / f.shape.ranks);
  std::string out = all.ranks > 1
                        ? text("scales to %d ranks at %.0f %%; on %d, ", all.ranks, 100 * all.efficiency, all.fails_at)
                        : text("does not scale at %.0f %%: on %d ranks, ", 100 * f.efficiency, all.fails_at);
  out += what_takes(predict(f.shape, f.interconnect, all.fails_at, Scaling::weak));
  std::string moved;
  for (const ScalingAdvice& r : moves)
    moved += cat(moved.empty() ? "; it goes to " : ", to ", r.scaling_limit.ranks,
                 r.scaling_limit.fails_at == 0 ? " or more" : "", " with ", r.change);
  return out + (moved.empty() ? "; no single change of comm.* or of the batch moves that" : moved) + "\n";
}

std::string hiding(const ScalingForecast& f, const ScalingLimit& all) {
  const auto ranks = steps_to(f.ranks);
  const auto next = std::upper_bound(ranks.begin(), ranks.end(), all.hides_to);
  if (next == ranks.end())
    return "sums hide behind the backward pass on all of them, but for those of the last gradients\n";
  const Prediction p = predict(f.shape, f.interconnect, *next, Scaling::weak);
  const std::string beyond = text("on %d ranks the links are busy for %.1f ms, the step waits for %.1f of them\n",
                                  p.ranks, ms(p.sums), ms(p.exposed));
  if (!f.shape.overlap || !f.shape.beside) return "no sum hides as this is configured: " + beyond;
  return all.hides_to > 1
             ? text("sums hide behind the backward pass to %d ranks, but for those of the last gradients; ",
                    all.hides_to) +
                   beyond
             : "sums do not hide behind the backward pass: " + beyond;
}

std::string table(const ScalingForecast& f, Scaling scaling) {
  std::string out = text("  %7s %12s %10s %10s %10s %9s %9s %9s %9s %9s\n", "ranks", "samples", "step ms", "samples/s",
                         "efficiency", "own", "slowest", "sums", "exposed", "agreeing");
  for (const int ranks : f.ranks) {
    const Prediction p = predict(f.shape, f.interconnect, ranks, scaling);
    if (!possible(p)) {
      out += text("  %7d   fewer than one sample a rank\n", ranks);
      continue;
    }
    out += text("  %7d %12.6g %10.2f %10s %8.1f %% %9.2f %9.2f %9.2f %9.2f %9.2f\n", p.ranks, p.samples, ms(p.step),
                format_count(p.samples / p.step).c_str(), 100 * p.efficiency, ms(p.own), ms(p.straggling), ms(p.sums),
                ms(p.exposed), ms(p.meeting));
  }
  return out;
}

std::string name_of(const LinkModel& link) {
  return link.bytes_per_second > 0
             ? format_rate(link.bytes_per_second) + " and " + format_seconds(link.latency) + " a message"
         : link.latency > 0 ? format_seconds(link.latency) + " a message"
                            : std::string("no time");
}

double modelled(const ScalingForecast& f) { return predict(f.shape, f.of_run, f.shape.ranks, Scaling::weak).step; }

// Where the model does not give the run that it was made from, no other number of ranks is better known.
std::string doubt(const ScalingForecast& f) {
  const bool known = f.shape.ranks > 1 && !f.shape.own.empty();  // ranks of equal speed are not the run's
  const double off = known ? modelled(f) / f.shape.step - 1 : 0;
  if (std::abs(off) <= most_doubt) return "";
  return text(
      "beware: the model gives %.2f ms for a step of the run itself, which took %.2f (%+.0f %%): so far off may "
      "all that follows be. longer runs on hosts of their own are closer\n",
      ms(modelled(f)), ms(f.shape.step), 100 * off);
}

std::string basis(const ScalingForecast& f) {
  const StepProfile& s = f.shape;
  std::string out = cat("from a run of ", s.ranks, s.ranks == 1 ? " rank" : " ranks",
                        text(", %.2f ms a step of %.6g samples", ms(s.step), s.samples));
  if (s.ranks > 1) out += text("; the model gives %.2f for it", ms(modelled(f)));
  out += cat("\nlinks (", f.links, "): between nodes ", name_of(f.interconnect.far));
  if (f.interconnect.ranks_per_node > 1)
    out += cat(", between the ", f.interconnect.ranks_per_node, " ranks of a node ", name_of(f.interconnect.near));
  const double all = s.ready.empty() ? 0 : double(s.ready.back().bytes) * s.element_bytes / 4;
  return out + cat("; ", format_bytes(std::uint64_t(all)), " a sum, ", f.interconnect.ring ? "2 (p - 1)" : "2 log2 p",
                   " messages, 2 (p - 1) / p of the bytes",
                   s.zero ? "; ZeRO: scattered, gathered in the next step" : "",
                   "\nassumed: ranks and nodes as in the run, their times independent draws of those measured, storage "
                   "that keeps up, links that others leave alone",
                   s.fixed_micro_batch ? "" : "; with fewer samples a rank, computing takes as much less", "\n");
}

json to_json(const LinkModel& l) { return {{"bytes_per_second", l.bytes_per_second}, {"latency", l.latency}}; }
json to_json(const ScalingLimit& r) {
  return {{"ranks", r.ranks}, {"efficiency", r.efficiency}, {"fails_at", r.fails_at}, {"hides_to", r.hides_to}};
}
json to_json(const Prediction& p) {
  return {{"ranks", p.ranks},
          {"samples", p.samples},
          {"step", p.step},
          {"own", p.own},
          {"sums", p.sums},
          {"exposed", p.exposed},
          {"straggling", p.straggling},
          {"hides", p.hides},
          {"efficiency", p.efficiency},
          {"meeting", p.meeting}};
}

}  // namespace

ScalingLimit scaling_limit(const StepProfile& shape, const Interconnect& interconnect, const std::vector<int>& ranks,
                           Scaling scaling, double efficiency) {
  ScalingLimit out;
  bool hides = true;
  for (const int p : steps_to(ranks)) {
    const Prediction here = predict(shape, interconnect, p, scaling);
    if (!possible(here)) break;
    hides = hides && here.hides;
    if (hides) out.hides_to = p;
    if (out.fails_at > 0) continue;
    if (here.efficiency < efficiency)
      out.fails_at = p;
    else
      out.ranks = p, out.efficiency = here.efficiency;
  }
  return out;
}

std::vector<ScalingAdvice> scaling_advice(const StepProfile& shape, const Interconnect& interconnect,
                                          const std::vector<int>& ranks, Scaling scaling, double efficiency) {
  std::vector<ScalingAdvice> out;
  const ScalingLimit now = scaling_limit(shape, interconnect, ranks, scaling, efficiency);
  if (now.fails_at == 0) return out;
  for (const auto& [what, changed] : changes(shape)) {
    const ScalingLimit then = scaling_limit(changed, interconnect, ranks, scaling, efficiency);
    if (then.ranks > now.ranks) out.push_back({what, then});
  }
  std::stable_sort(out.begin(), out.end(), [](const ScalingAdvice& a, const ScalingAdvice& b) {
    return a.scaling_limit.ranks > b.scaling_limit.ranks;
  });
  return out;
}

std::string report(const ScalingForecast& f) {
  const ScalingLimit weak = scaling_limit(f.shape, f.interconnect, f.ranks, Scaling::weak, f.efficiency),
                     strong = scaling_limit(f.shape, f.interconnect, f.ranks, Scaling::strong, f.efficiency);
  std::string out = headline(f, weak, scaling_advice(f.shape, f.interconnect, f.ranks, Scaling::weak, f.efficiency));
  out += hiding(f, weak) + doubt(f);
  out += text("\nweak: %.6g samples a rank\n", f.shape.samples / f.shape.ranks) + table(f, Scaling::weak);
  out += text("\nstrong: %.6g samples a step, %s at %.0f %%\n", f.shape.samples,
              strong.ranks > 1 ? text("to %d ranks", strong.ranks).c_str() : "no ranks more", 100 * f.efficiency) +
         table(f, Scaling::strong);
  return out +
         "  (own, slowest, sums, exposed, agreeing: ms of a step; own of an average rank, slowest: so much more)\n\n" +
         basis(f);
}

std::string report_json(const ScalingForecast& f) {
  const ScalingLimit weak = scaling_limit(f.shape, f.interconnect, f.ranks, Scaling::weak, f.efficiency),
                     strong = scaling_limit(f.shape, f.interconnect, f.ranks, Scaling::strong, f.efficiency);
  json out{
      {"run",
       {{"ranks", f.shape.ranks}, {"samples", f.shape.samples}, {"step", f.shape.step}, {"modelled", modelled(f)}}},
      {"links",
       {{"from", f.links},
        {"far", to_json(f.interconnect.far)},
        {"near", to_json(f.interconnect.near)},
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
    for (const ScalingAdvice& r : scaling_advice(f.shape, f.interconnect, f.ranks, scaling, f.efficiency))
      side["remedies"].push_back({{"change", r.change}, {"reach", to_json(r.scaling_limit)}});
  }
  return out.dump(2) + "\n";
}

}  // namespace millrace
