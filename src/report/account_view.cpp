// Tables of the timing account: loader, all-reduces, and kernels and layers compared with their roofline.
#include <algorithm>
#include <numeric>

#include "millrace/base/error.hpp"
#include "millrace/base/median.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"

namespace millrace::report {
namespace {

std::string pair_row(const char* name, const std::string& value) {
  return cat("<tr><th>", name, "</th><td>", value, "</td></tr>");
}

std::string figure(const std::string& title, const std::string& body, const std::string& note = "", bool wide = false) {
  return cat(wide ? "<figure class=\"wide\">" : "<figure>", "<figcaption>", title, "</figcaption>", body,
             note.empty() ? std::string() : cat("<p class=\"quiet\">", note, "</p>"), "</figure>\n");
}

// A histogram of the number of batches that were ready when the step took one.
std::string depth_columns(const std::vector<RankAccount>& ranks) {
  std::vector<double> counts(9, 0.0);  // the last column counts 8 or more
  for (const RankAccount& r : ranks)
    for (std::size_t d = 0; d < r.loader.queue_depths.size(); ++d)
      counts[std::min(d, counts.size() - 1)] += double(r.loader.queue_depths[d]);
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0),
               max = *std::max_element(counts.begin(), counts.end());
  if (all <= 0) return "";
  std::string out;
  for (std::size_t d = 0; d < counts.size(); ++d) {
    const double share = 100 * counts[d] / all;
    const std::string percents = share == 0 ? "" : share < 1 ? "&lt;1" : fixed(share, 0);
    out += cat("<div><span>", percents, "</span><i", d == 0 ? " class=\"p-data_wait\"" : "",
               " style=\"height:", fixed(5.5 * counts[d] / max, 2), "rem\"></i><b>", int(d),
               d + 1 == counts.size() ? "+" : "", "</b></div>");
  }
  return cat("<div class=\"columns\">", out,
             "</div><div class=\"xlabel\">batches ready when the step took one, in %</div>");
}

std::string meter(double share) {
  if (share <= 0) return "<td class=\"meter\">–</td>";
  return cat("<td class=\"meter\"><span><i style=\"width:", fixed(100 * std::min(1.0, share), 1), "%\"></i></span>",
             fixed(100 * share, 0), " %</td>");
}

const RankAccount* first_of(const Run& run) {
  return run.summary && !run.summary->account.ranks.empty() ? &run.summary->account.ranks.front() : nullptr;
}

}  // namespace

std::string loader_of(const Run& run) {
  const RankAccount* first = first_of(run);
  if (!first || first->loader.batches == 0) return "";
  const auto& ranks = run.summary->account.ranks;
  double capacity = 0, demand = 0, bytes = 0, read = 0, decode = 0, slot_wait = 0;
  std::vector<double> waits, firsts;
  for (const RankAccount& r : ranks) {
    capacity += r.loader.capacity();
    demand += r.demand();
    read += r.loader.read_seconds;
    decode += r.loader.decoded.seconds;
    slot_wait += r.loader.room_seconds;
    waits.push_back(r.loader.wait_seconds);
    firsts.push_back(r.loader.first_batch_seconds);
    bytes = std::max(bytes, r.loader.sample_bytes());
  }
  std::string rows = pair_row("workers per rank", std::to_string(first->loader.workers));
  rows += pair_row("loader can deliver", cat(number(capacity), " samples/s, ", bytes_text(capacity * bytes), "/s"));
  rows += pair_row("step can consume", cat(number(demand), " samples/s, ", bytes_text(demand * bytes), "/s"));
  rows += pair_row("size of a sample", bytes_text(bytes));
  if (read + slot_wait > 0) {
    rows += pair_row("worker time: reading", percent((read - decode) / (read + slot_wait)));
    rows += pair_row("worker time: decoding", percent(decode / (read + slot_wait)));
    rows += pair_row("worker time: waiting for a free slot", percent(slot_wait / (read + slot_wait)));
  }
  const InputPathRates rates = input_path_rates(ranks);
  if (rates.copy > 0)
    rows += pair_row("host-to-device copies alone",
                     cat(number(rates.copy), " samples/s, ", bytes_text(rates.copy_bytes), "/s"));
  if (rates.input_pass > 0)
    rows += pair_row("the input pass alone",
                     cat(number(rates.input_pass), " samples/s, ", bytes_text(rates.input_pass * bytes), "/s"));
  rows += pair_row("steps waited for data", cat(seconds_text(median(waits)), ranks.size() > 1 ? " (median rank)" : ""));
  rows += pair_row("time to the first batch", seconds_text(*std::max_element(firsts.begin(), firsts.end())));
  return figure("Loader", cat(depth_columns(ranks), "<table class=\"pairs\"><tbody>", rows, "</tbody></table>"));
}

std::string communication_of(const Run& run) {
  const RankAccount* first = first_of(run);
  if (!first || first->sums.empty() || run.summary->account.ranks.size() < 2) return "";
  constexpr std::size_t max_rows = 12;
  const auto ranks = double(run.summary->account.ranks.size());
  std::string rows;
  std::size_t shown = 0;
  for (const CollectiveOpStats& s : first->sums) {
    if (s.times == 0 || shown++ >= max_rows) continue;
    const double times = double(s.times);
    rows += cat("<tr><th>", s.tag >= 0 ? cat("bucket ", s.tag) : std::string(s.tag == -1 ? "statistics" : "other"),
                s.op == CollectiveOp::all_reduce ? std::string() : cat(", ", name_of(s.op)), "</th><td>",
                bytes_text(double(s.bytes) / times), "</td><td>", fixed(s.ready / times * 1e3, 2), "</td><td>",
                fixed(s.queued / times * 1e3, 2), "</td><td>", fixed(s.busy / times * 1e3, 2), "</td><td>",
                fixed(s.needed / times * 1e3, 2), "</td><td>", fixed(s.exposed / times * 1e3, 2), "</td><td>",
                s.busy > 0 ? fixed(s.bus_rate(ranks) * 1e-9, 2) : "–", "</td></tr>");
  }
  return figure(
      "All-reduces",
      cat("<div class=\"scroll\"><table><thead><tr><th>mean per step</th><th>size</th><th>ready at ms</th><th>queued "
          "ms</th><th>busy ms</th><th>needed at ms</th><th>exposed ms</th><th>GB/s</th></tr></thead><tbody>",
          rows, "</tbody></table></div>"),
      cat("Rank 0. Ready at and needed at are measured from the beginning of the step. Exposed: the step waited for "
          "it. GB/s: bus bandwidth of a ring.",
          shown > max_rows ? cat(" The first ", int(max_rows), " of ", int(shown), " are shown.") : std::string()),
      true);
}

std::string kernels_of(const Run& run) {
  if (!run.summary) return "";
  const auto& ranks = run.summary->account.ranks;
  const auto traced =
      std::find_if(ranks.begin(), ranks.end(), [](const RankAccount& r) { return r.device.seconds > 0; });
  if (traced == ranks.end()) return "";
  const DeviceTime& d = traced->device;
  std::string rows;
  for (const KernelTime& k : d.kernels) {
    const double share = k.seconds / d.seconds, roof = k.least_seconds > 0 ? k.least_seconds / k.seconds : 0;
    rows += cat("<tr><th><code>", escaped(k.name.substr(0, 160)), "</code></th><td>", percent(share), "</td><td>",
                number(double(k.launches)), "</td><td>", number(k.seconds / std::max(1.0, double(k.launches)) * 1e6),
                "</td>", meter(roof), "</tr>");
  }
  return cat(
      "<figure class=\"wide\"><figcaption>Device time, and the most expensive kernels compared with "
      "their roofline</figcaption><p class=\"quiet\">",
      d.steps, " traced steps on rank ", int(traced - ranks.begin()), ": busy ", percent(d.busy / d.seconds),
      ", computing ", percent(d.computing / d.seconds), "; exposed communication ", percent(d.exposed_sums / d.seconds),
      ", exposed copies ", percent(d.exposed_copies / d.seconds),
      ".</p><div class=\"scroll\"><table class=\"kernels\"><thead><tr><th>kernel</th><th>share of "
      "time</th><th>launches</th><th>µs each</th><th>share of roofline</th></tr></thead><tbody>",
      rows, "</tbody></table></div></figure>\n");
}

std::string layers_of(const Run& run) {
  constexpr std::size_t max_rows = 16;
  std::vector<const LayerTiming*> all;
  double sum = 0, bound = 0, longest = 0;
  for (const LayerTiming& op : run.layers) {
    all.push_back(&op);
    sum += op.forward_ms + op.backward_ms;
    bound += op.least_ms;
    longest = std::max(longest, op.forward_ms + op.backward_ms);
  }
  if (sum <= 0) return "";
  std::stable_sort(all.begin(), all.end(), [](const LayerTiming* a, const LayerTiming* b) {
    return a->forward_ms + a->backward_ms > b->forward_ms + b->backward_ms;
  });
  std::string rows;
  for (std::size_t i = 0; i < std::min(max_rows, all.size()); ++i) {
    const LayerTiming& op = *all[i];
    const double ms = op.forward_ms + op.backward_ms;
    const auto part = [&](const char* css, double value) {
      return cat("<i class=\"", css, "\" style=\"width:", fixed(100 * value / longest, 2), "%\"></i>");
    };
    rows += cat("<tr><th><code>", escaped(op.name.substr(0, 60)), "</code><br><small>",
                escaped(op.implementation.substr(0, 80)), "</small></th><td class=\"long\"><span class=\"bar\">",
                part("p-forward", op.forward_ms), part("p-backward", op.backward_ms), "</span></td><td>", number(ms),
                "</td><td>", percent(ms / sum), "</td>", meter(op.least_ms / ms), "</tr>");
  }
  return cat(
      "<figure class=\"wide\"><figcaption>Operations of a micro-batch, compared with their roofline</figcaption><div "
      "class=\"legend\"><span><i class=\"key p-forward\"></i>forward</span><span><i class=\"key p-backward\"></i>"
      "backward</span></div><div class=\"scroll\"><table class=\"kernels\"><thead><tr><th>operation</th><th></th>"
      "<th>ms</th><th>share of time</th><th>share of roofline</th></tr></thead><tbody>",
      rows, "</tbody></table></div><p class=\"quiet\">Rank 0; each operation by itself, best of several runs. The ",
      int(all.size()), " operations take ", number(sum),
      " ms together. By the roofline, from the measured peak rates of arithmetic and memory, they need at least ",
      percent(bound / sum), " of this time.",
      all.size() > max_rows ? cat(" The ", int(max_rows), " most expensive ones are shown.") : std::string(),
      "</p></figure>\n");
}

}  // namespace millrace::report
