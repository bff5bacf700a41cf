#include "millrace/telemetry/verdict.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

constexpr double least_share = 0.03;  // of the step: below it nothing is tried
constexpr double least_gain = 1.05;   // below it a trial says nothing

template <class... Args>
std::string text(const char* form, Args... args) {
  char line[256];
  std::snprintf(line, sizeof line, form, args...);
  return line;
}

struct Rule {
  Bound bound;
  const char* key;
  std::function<std::string(const Evidence&)> from;
  std::function<std::vector<std::string>(const Evidence&)> to;  // none: it does not apply
  const char* caution = "";
};

using Values = std::vector<std::string>;
const char* const new_order = "the order of samples is another";
const char* const new_rounding = "numbers are rounded more coarsely: watch the loss";

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {Bound::input, "data.workers", [](const Evidence& e) { return std::to_string(e.workers); },
       [](const Evidence& e) {
         Values to;
         for (int w = std::max(1, e.workers * 2), n = 0; w <= 2 * std::max(2, e.cores) && n < 3; w *= 2, ++n)
           to.push_back(std::to_string(w));
         return to;
       }},
      {Bound::input, "data.prefetch", [](const Evidence& e) { return std::to_string(e.prefetch); },
       [](const Evidence& e) { return e.prefetch ? Values{std::to_string(e.prefetch * 4)} : Values{}; }},
      {Bound::input, "data.reader", [](const Evidence& e) { return e.reader; },
       [](const Evidence& e) {
         Values to;
         for (const char* name : {"direct", "mmap", "uring"})
           if (!e.chunked && e.reader.find(name) == std::string::npos) to.emplace_back(name);
         return to;
       }},
      {Bound::input, "data.chunk_cache", [](const Evidence& e) { return format_bytes(e.chunk_cache); },
       [](const Evidence& e) { return e.chunked ? Values{cat(e.chunk_cache * 4 >> 20, "MiB")} : Values{}; }},
      {Bound::input, "data.shuffle", [](const Evidence&) { return "global"; },
       [](const Evidence& e) { return e.chunked ? Values{"block"} : Values{}; }, new_order},
      {Bound::sums, "comm.bucket", [](const Evidence& e) { return format_bytes(e.bucket); },
       [](const Evidence& e) {
         return Values{cat(std::max<std::uint64_t>(64, e.bucket >> 12), "KiB"), cat(e.bucket >> 8, "KiB")};
       }},
      {Bound::sums, "comm.compress", [](const Evidence& e) { return e.compress; },
       [](const Evidence& e) { return e.compress == "none" ? Values{"bf16"} : Values{}; }, new_rounding},
      {Bound::compute, "run.precision", [](const Evidence& e) { return e.precision; },
       [](const Evidence& e) { return e.precision == "fp32" ? Values{"bf16"} : Values{}; }, new_rounding},
  };
  return all;
}

const char* name_of(Bound b) {
  return b == Bound::input ? "input-bound" : b == Bound::sums ? "communication-bound" : "compute-bound";
}

std::string evidence_of(const Evidence& e, Bound b) {
  const double percent = 100 * e.share(b), demand = e.batch / e.without_input;
  if (b == Bound::input)
    return text("%.0f %% of the step waits for samples; the loader alone delivers %s samples/s, the step could take %s",
                percent, format_count(e.loader_rate).c_str(), format_count(demand).c_str());
  if (b == Bound::sums)
    return text("%.0f %% of the step waits for sums over ranks (%.1f ms with them, %.1f ms without)", percent,
                e.without_input * 1e3, e.without_sums * 1e3);
  return text("%.0f %% of the step computes (%.1f ms)", percent, e.without_sums * 1e3);
}

}  // namespace

double Evidence::share(Bound b) const {
  const double input = std::clamp(1 - without_input / step, 0.0, 1.0);
  const double sums = ranks > 1 ? std::clamp((without_input - without_sums) / step, 0.0, 1 - input) : 0;
  return b == Bound::input ? input : b == Bound::sums ? sums : 1 - input - sums;
}

std::vector<Change> changes_to_try(const Evidence& e) {
  std::vector<Change> out;
  for (const Rule& rule : rules()) {
    if (e.share(rule.bound) < least_share) continue;
    for (const std::string& to : rule.to(e))
      if (to != rule.from(e)) out.push_back({rule.bound, rule.key, rule.from(e), to, rule.caution});
  }
  return out;
}

std::vector<Finding> findings(const Evidence& e, const std::vector<Trial>& trials) {
  std::vector<Finding> out;
  for (const Trial& t : trials) {
    if (!t.failure.empty() || t.step <= 0 || t.beside / t.step < least_gain) continue;
    const double gain = t.beside / t.step;
    const auto same = std::find_if(out.begin(), out.end(), [&](const Finding& f) {
      return f.advice.compare(0, t.change.key.size() + 1, t.change.key + " ") == 0;
    });
    Finding finding{t.change.bound, gain, evidence_of(e, t.change.bound),
                    cat(t.change.key, " ", t.change.from, " -> ", t.change.to), t.change.caution};
    // Of several values of a key the smallest change that gives as much, nearly.
    if (same == out.end())
      out.push_back(std::move(finding));
    else if (gain > 1.05 * same->gain)
      *same = std::move(finding);
  }
  // What leaves the results as they are goes first where it gives as much, nearly.
  std::stable_sort(out.begin(), out.end(), [](const Finding& a, const Finding& b) {
    return a.gain * (a.caution.empty() ? 1.02 : 1) > b.gain * (b.caution.empty() ? 1.02 : 1);
  });
  return out;
}

std::string verdict(const Evidence& e, const std::vector<Trial>& trials) {
  const auto found = findings(e, trials);
  Bound largest = Bound::compute;
  for (const Bound b : {Bound::sums, Bound::input})
    if (e.share(b) >= least_share && (largest == Bound::compute || e.share(b) > e.share(largest))) largest = b;
  std::string out;
  if (!found.empty())
    out = cat(name_of(found[0].bound), ": ", found[0].evidence, ". ", found[0].advice,
              text(" gives %.2fx", found[0].gain), "\n");
  else if (largest == Bound::compute)
    out = cat("nothing worth changing: ", evidence_of(e, Bound::compute), "\n");
  else
    out = cat(name_of(largest), ": ", evidence_of(e, largest), ". no change that was tried helps\n");
  out += text("\nmeasured, ms a step: %.2f as configured, %.2f with samples there at once (%.2fx at most)",
              e.step * 1e3, e.without_input * 1e3, e.step / e.without_input);
  if (e.ranks > 1) out += text(", %.2f without sums, too", e.without_sums * 1e3);
  out += "\n";
  for (const Trial& t : trials)
    out += t.failure.empty() ? text("  %-18s %10s -> %-10s %9.2f ms beside %.2f: %.2fx%s%s\n", t.change.key.c_str(),
                                    t.change.from.c_str(), t.change.to.c_str(), t.step * 1e3, t.beside * 1e3,
                                    t.beside / t.step, t.change.caution.empty() ? "" : "; ", t.change.caution.c_str())
                             : cat("  ", t.change.key, " -> ", t.change.to, ": not tried, ", t.failure, "\n");
  return out;
}

}  // namespace millrace
