// Tables of the timing account: loader, all-reduces, and kernels and layers compared with their roofline.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "millrace/base/error.hpp"
#include "millrace/base/median.hpp"
#include "millrace/base/units.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"

namespace millrace::report {
namespace {

std::string pair_row(const char* name, const std::string& value) {
  return fmt::format("<tr><th>{}</th><td>{}</td></tr>", name, value);
}

std::string figure(const std::string& title, const std::string& body, const std::string& note = "", bool wide = false) {
  return fmt::format("{}<figcaption>{}</figcaption>{}{}</figure>\n", wide ? "<figure class=\"wide\">" : "<figure>",
                     title, body, note.empty() ? std::string() : fmt::format("<p class=\"quiet\">{}</p>", note));
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
    out += fmt::format("<div><span>{}</span><i{} style=\"height:{}rem\"></i><b>{}{}</b></div>", percents,
                       d == 0 ? " class=\"p-data_wait\"" : "", fixed(5.5 * counts[d] / max, 2), int(d),
                       d + 1 == counts.size() ? "+" : "");
  }
  return fmt::format(
      "<div class=\"columns\">{}</div><div class=\"xlabel\">batches ready when the step took one, in %</div>", out);
}

// A cell that a narrow page shows in a line of its own, with its label.
std::string cell(const char* label, const std::string& value) {
  return fmt::format("<td data-label=\"{}\"><span>{}</span></td>", label, value);
}

// The share of the roofline. An operation that was faster than the measured peaks has no share of them.
std::string meter(double share) {
  constexpr double rounding = 1e-6;
  std::string text = "–";
  if (share > 1 + rounding)
    text = "above";
  else if (share > 0)
    text = fmt::format("<b class=\"gauge\"><i style=\"width:{}%\"></i></b>{} %", fixed(100 * share, 1),
                       fixed(100 * share, 0));
  return fmt::format("<td class=\"meter\" data-label=\"share of roofline\"><span>{}</span></td>", text);
}

// A long name as a whole; only the instance of a template that fills a screen is cut, with the rest in a tip.
std::string code_of(const std::string& name) {
  constexpr std::size_t max_shown = 600;
  if (name.size() <= max_shown) return fmt::format("<code>{}</code>", escaped(name));
  return fmt::format("<code title=\"{}\">{}…</code>", escaped(name), escaped(name.substr(0, max_shown)));
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
  rows +=
      pair_row("loader can deliver", fmt::format("{} samples/s, {}/s", number(capacity), bytes_text(capacity * bytes)));
  rows += pair_row("step can consume", fmt::format("{} samples/s, {}/s", number(demand), bytes_text(demand * bytes)));
  rows += pair_row("size of a sample", format_bytes(std::uint64_t(bytes)));
  if (read + slot_wait > 0) {
    rows += pair_row("worker time: reading", percent((read - decode) / (read + slot_wait)));
    rows += pair_row("worker time: decoding", percent(decode / (read + slot_wait)));
    rows += pair_row("worker time: waiting for a free slot", percent(slot_wait / (read + slot_wait)));
  }
  const InputPathRates rates = input_path_rates(ranks);
  if (rates.copy > 0)
    rows += pair_row("host-to-device copies alone",
                     fmt::format("{} samples/s, {}/s", number(rates.copy), bytes_text(rates.copy_bytes)));
  if (rates.input_pass > 0)
    rows += pair_row("the input pass alone",
                     fmt::format("{} samples/s, {}/s", number(rates.input_pass), bytes_text(rates.input_pass * bytes)));
  rows += pair_row("steps waited for data",
                   fmt::format("{}{}", seconds_text(median(waits)), ranks.size() > 1 ? " (median rank)" : ""));
  rows += pair_row("time to the first batch", seconds_text(*std::max_element(firsts.begin(), firsts.end())));
  return figure("Loader",
                fmt::format("{}<table class=\"pairs\"><tbody>{}</tbody></table>", depth_columns(ranks), rows));
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
    const std::string name = s.tag >= 0    ? fmt::format("bucket {}", s.tag)
                             : s.tag == -1 ? "statistics"
                             : s.tag == -4 ? "weight of the loss"
                             : s.tag == -8 ? "updates of muon"
                             : s.tag <= -5 ? "norms of all ranks"
                                           : "other";
    const auto ms = [&](double seconds) { return fixed(seconds / times * 1e3, 2); };
    rows += fmt::format("<tr><th>{}{}</th>", name,
                        s.op == CollectiveOp::all_reduce ? std::string() : fmt::format(", {}", name_of(s.op)));
    rows += cell("size", format_bytes(std::uint64_t(double(s.bytes) / times)));
    rows += cell("ready at ms", ms(s.ready)) + cell("queued ms", ms(s.queued)) + cell("busy ms", ms(s.busy));
    rows += cell("needed at ms", ms(s.needed)) + cell("exposed ms", ms(s.exposed));
    rows += cell("GB/s", s.busy > 0 ? fixed(s.bus_rate(ranks) * 1e-9, 2) : "–") + "</tr>";
  }
  return figure(
      "All-reduces",
      fmt::format(
          "<div class=\"scroll\"><table class=\"stack\"><thead><tr><th>mean per step</th><th>size</th><th>ready at "
          "ms</th><th>queued ms</th><th>busy ms</th><th>needed at ms</th><th>exposed "
          "ms</th><th>GB/s</th></tr></thead><tbody>{}</tbody></table></div>",
          rows),
      fmt::format(
          "Rank 0. Ready at and needed at are measured from the beginning of the step. Exposed: the "
          "step waited for it. GB/s: bus bandwidth of a ring.{}",
          shown > max_rows ? fmt::format(" The first {} of {} are shown.", int(max_rows), int(shown)) : std::string()),
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
    rows += fmt::format("<tr><th>{}</th>{}{}{}{}</tr>", code_of(k.name), cell("share of time", percent(share)),
                        cell("launches", number(double(k.launches))),
                        cell("µs each", number(k.seconds / std::max(1.0, double(k.launches)) * 1e6)), meter(roof));
  }
  return fmt::format(
      "<figure class=\"wide\"><figcaption>Device time, and the most expensive kernels compared with their "
      "roofline</figcaption><p class=\"quiet\">{} traced steps on rank {}: busy {}, computing {}; exposed "
      "communication {}, exposed copies {}.</p><div class=\"scroll\"><table "
      "class=\"stack kernels\"><thead><tr><th>kernel</th><th>share of time</th><th>launches</th><th>µs "
      "each</th><th>share of "
      "roofline</th></tr></thead><tbody>{}</tbody></table></div></figure>\n",
      d.steps, int(traced - ranks.begin()), percent(d.busy / d.seconds), percent(d.computing / d.seconds),
      percent(d.exposed_sums / d.seconds), percent(d.exposed_copies / d.seconds), rows);
}

std::string layers_of(const Run& run) {
  constexpr std::size_t max_rows = 16;
  std::vector<const LayerTiming*> all;
  double sum = 0, bound = 0, longest = 0;
  for (const LayerTiming& op : run.layers) {
    all.push_back(&op);
    sum += op.forward_ms + op.backward_ms;
    bound += std::min(op.least_ms, op.forward_ms + op.backward_ms);
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
      return fmt::format("<i class=\"{}\" style=\"width:{}%\"></i>", css, fixed(100 * value / longest, 2));
    };
    rows += fmt::format(
        "<tr><th>{}<br><small>{}</small></th><td class=\"long\"><span class=\"bar\">{}{}</span></td>{}{}{}</tr>",
        code_of(op.name), escaped(op.implementation), part("p-forward", op.forward_ms),
        part("p-backward", op.backward_ms), cell("ms", number(ms)), cell("share of time", percent(ms / sum)),
        meter(op.least_ms / ms));
  }
  return fmt::format(
      "<figure class=\"wide\"><figcaption>Operations of a micro-batch, compared with their roofline</figcaption><div "
      "class=\"legend\"><span><i class=\"key p-forward\"></i>forward</span><span><i class=\"key "
      "p-backward\"></i>backward</span></div><div class=\"scroll\"><table "
      "class=\"stack kernels\"><thead><tr><th>operation</th><th></th><th>ms</th><th>share of time</th><th>share of "
      "roofline</th></tr></thead><tbody>{}</tbody></table></div><p class=\"quiet\">Rank 0; each operation by itself, "
      "best of several runs. The {} operations take {} ms together. By the roofline, from the highest rates of "
      "arithmetic and memory (or cache, for tensors that fit) that were measured, they need at least {} of this "
      "time.{}</p></figure>\n",
      rows, int(all.size()), number(sum), percent(bound / sum),
      all.size() > max_rows ? fmt::format(" The {} most expensive ones are shown.", int(max_rows)) : std::string());
}

std::string light_of(const Run& run) {
  constexpr std::size_t max_rows = 16;
  if (!run.summary || !run.summary->speed_of_light || run.summary->operations.empty()) return "";
  const auto& all = run.summary->operations;
  double traced = 0, least = 0;
  for (const OperationLight& op : all) {
    traced += op.step_ms;
    least += op.least_ms;
  }
  std::string rows;
  for (std::size_t i = 0; i < std::min(max_rows, all.size()); ++i) {
    const OperationLight& op = all[i];
    rows += fmt::format("<tr><th>{}<br><small>{}</small></th>", code_of(op.name), escaped(op.kind));
    if (traced > 0) rows += cell("ms", number(op.step_ms)) + cell("share of time", percent(op.step_ms / traced));
    rows += cell("least ms", number(op.least_ms));
    rows += (traced > 0 ? meter(op.step_ms > 0 ? op.least_ms / op.step_ms : 0) : std::string()) + "</tr>";
  }
  const char* const measured = traced > 0 ? "<th>ms</th><th>share of time</th>" : "";
  return fmt::format(
      "<figure class=\"wide\"><figcaption>The step at the speed of light</figcaption><div class=\"scroll\"><table "
      "class=\"stack kernels\"><thead><tr><th>operation</th>{}<th>least ms</th>{}</tr></thead><tbody>{}</tbody></table>"
      "</div><p class=\"quiet\">Of a step: the optimizer, and operations forward and backward. Least: max(FLOP / rate "
      "of arithmetic, bytes / rate of "
      "memory) by the rates of this machine.{} The steps reached {} of the speed of light, with loading and "
      "communication in their time.{}</p></figure>\n",
      measured, traced > 0 ? "<th>share of roofline</th>" : "", rows,
      traced > 0 ? fmt::format(" Together {} of {} ms in the traced steps.", number(least), number(traced)) : "",
      percent(*run.summary->speed_of_light),
      all.size() > max_rows ? fmt::format(" The {} longest operations are shown.", int(max_rows)) : std::string());
}

}  // namespace millrace::report
