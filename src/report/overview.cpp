// What a run is and came to: its state, figures, findings, settings.
#include <algorithm>
#include <cmath>
#include <set>

#include "millrace/base/error.hpp"
#include "report/html.hpp"
#include "report/plot.hpp"
#include "report/sections.hpp"

namespace millrace::report {
namespace {

std::string progress_of(const Run& run) {
  return run.curves.last == 0 ? std::string("no step is written yet")
                              : cat("step ", (long long)run.curves.last, " of ", (long long)run.steps_wanted);
}

// "checkpoint.every 1 -> 100" with the arrow that it means.
std::string arrows(const std::string& text) {
  std::string out = escaped(text);
  for (std::size_t at = 0; (at = out.find("-&gt;", at)) != out.npos;) out.replace(at, 5, "→");
  return out;
}

}  // namespace

State state_of(const Run& run) {
  if (run.going) return {"busy", "still going", progress_of(run)};
  const std::string lost = cat("killed, crashed, or going on on another machine; ", progress_of(run), "; ");
  if (!run.ending) return {"bad", "no end", lost + "no account was written"};
  if (run.outdated)
    return {"bad", "no end", cat(lost, "the account is of an earlier start, that ended at step ", run.ending->steps)};
  const std::string& status = run.ending->status;
  return {status == "finished" ? "good" : status == "stopped" ? "busy" : "bad", status, progress_of(run)};
}

std::vector<std::pair<std::string, std::string>> run_facts(const Run& run) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto add = [&](const char* name, const std::string& value) { out.emplace_back(name, value); };
  const bool over = run.ending && !run.outdated;
  if (run.curves.last > 0)
    add("training loss", number(over && run.ending->loss ? *run.ending->loss : run.curves.last_loss, 4));
  double accuracy = -1, loss = NAN;
  for (const Validation& v : run.validations) {
    if (std::isfinite(v.accuracy)) accuracy = std::max(accuracy, v.accuracy);
    loss = v.loss;
  }
  if (run.ending && run.ending->valid_accuracy) accuracy = std::max(accuracy, *run.ending->valid_accuracy);
  if (run.ending && run.ending->valid_loss && !std::isfinite(loss)) loss = *run.ending->valid_loss;
  if (std::isfinite(loss)) add("validation loss", number(loss, 4));
  if (accuracy >= 0) add("best accuracy", fixed(100 * accuracy, 2) + " %");
  if (run.ending && run.ending->samples_per_second > 0)
    add("samples/s", number(run.ending->samples_per_second));
  else if (!run.curves.rate.mid.empty())
    add("samples/s", number(quantile(run.curves.rate.mid, 0.5)));
  if (run.ending) add("time", seconds_text(run.ending->seconds));
  add("steps", whole(double(run.curves.last)));
  add("epochs done", std::to_string(over ? run.ending->epoch : run.curves.epoch));
  if (run.ending && run.ending->steps > 0 && !run.ending->account.ranks.empty()) {
    const StepTimeStats& t = run.ending->account.ranks.front().step_times;
    if (t.mean > 0) add("a step, median", seconds_text(t.p50)), add("a step, 99th %", seconds_text(t.p99));
  }
  std::set<std::string> hosts;
  for (const auto& [host, placement] : run.ranks) hosts.insert(host);
  add("ranks", cat((long long)run.ranks.size(),
                   hosts.size() > 1 ? cat(" on ", (long long)hosts.size(), " hosts") : std::string()));
  if (run.curves.skipped > 0) add("steps skipped", whole(double(run.curves.skipped)));
  if (run.ending && run.ending->unread_samples > 0) add("samples unread", whole(double(run.ending->unread_samples)));
  return out;
}

std::string findings_of(const Run& run) {
  if (!run.ending) return "<p class=\"quiet\">A verdict is written at the end of a run; this one has none.</p>";
  const RunSummary& e = *run.ending;
  std::string out;
  if (!e.verdict.empty()) out += cat("<p class=\"verdict\">", arrows(e.verdict), "</p>");
  if (e.verdict.empty() && e.findings.empty()) out += "<p class=\"verdict\">Nothing worth changing was found.</p>";
  std::string items;
  const auto add = [&](const std::string& gain, const Advice& a) {
    items +=
        cat("<li><span class=\"gain\">", gain, "</span><div><code>", arrows(a.advice), "</code><p>", arrows(a.evidence),
            a.caution.empty() ? std::string() : cat(" <em>", arrows(a.caution), "</em>"), "</p></div></li>");
  };
  for (const Advice& f : e.findings) add(cat(f.at_most ? "≤ " : "", fixed(f.gain, 2), " ×"), f);
  for (const Advice& h : e.hints) add("worth a trial", h);
  if (items.empty()) return out;
  return out + cat("<ol class=\"findings\">", items, "</ol>");
}

std::string settings_of(const Run& run) {
  std::string rows;
  const auto row = [&](const std::string& name, const std::string& value) {
    rows += cat("<tr><th>", escaped(name), "</th><td>", escaped(value), "</td></tr>");
  };
  row("folder", run.folder.string()), row("started", run.started);
  if (run.resumed_at > 0) row("resumed at step", std::to_string(run.resumed_at));
  row("device", run.device), row("sums", run.collective);
  for (const auto& [name, value] : run.facts) row(name, value);
  for (std::size_t r = 0; r < std::min<std::size_t>(run.ranks.size(), 64); ++r)
    row(cat("rank ", (long long)r), cat(run.ranks[r].first, ", ", run.ranks[r].second));
  return cat(
      "<details><summary>Where and with what it ran</summary><div class=\"scroll\"><table "
      "class=\"pairs words\"><tbody>",
      rows, "</tbody></table></div></details><details><summary>Its configuration, config.cfg</summary><pre>",
      escaped(run.config), "</pre></details>\n");
}

}  // namespace millrace::report
