// The overview of a run: state, results, findings and settings.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "millrace/base/error.hpp"
#include "report/html.hpp"
#include "report/plot.hpp"
#include "report/sections.hpp"

namespace millrace::report {
namespace {

std::string progress_of(const Run& run) {
  return run.curves.last == 0
             ? std::string("no step has been written yet")
             : fmt::format("step {} of {}", (long long)run.curves.last, (long long)run.record.planned_steps);
}

// Whether summary.json describes the launch of run.json. Files of old versions do not say.
bool has_own_summary(const Run& run) {
  const RunSummary& summary = *run.summary;
  return summary.started.empty() || (summary.started == run.record.started && summary.pid == run.record.pid);
}

// The time of all launches. Of launches that were killed nobody knows it.
std::string time_of(const Run& run) {
  double sum = 0;
  bool all = run.record.earlier.front().resumed_at_step == 0;  // older versions did not note the starts before it
  for (const EarlierStart& start : run.record.earlier) {
    sum += start.seconds.value_or(0);
    all = all && start.seconds.has_value();
  }
  if (!run.summary || !has_own_summary(run)) return (all ? "" : "&gt; ") + seconds_text(sum);
  return (all ? "" : "&gt; ") + seconds_text(sum + run.summary->seconds);
}

// Escapes the text and shows "->" as an arrow.
std::string arrows(const std::string& text) {
  std::string out = escaped(text);
  for (std::size_t at = 0; (at = out.find("-&gt;", at)) != out.npos;) out.replace(at, 5, "→");
  return out;
}

}  // namespace

State state_of(const Run& run) {
  if (run.running) return {"busy", "running", progress_of(run)};
  const std::string lost = fmt::format("killed, crashed, or running on another host; {}; ", progress_of(run));
  if (!run.summary) return {"bad", "interrupted", lost + "no summary was written"};
  if (run.outdated)
    return {
        "bad", "interrupted",
        fmt::format("{}the summary is that of an earlier launch, which ended at step {}", lost, run.summary->steps)};
  const std::string& status = run.summary->status;
  return {status == "finished" ? "good" : status == "stopped" ? "busy" : "bad", status, progress_of(run)};
}

std::vector<std::pair<std::string, std::string>> run_facts(const Run& run) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto add = [&](const char* name, const std::string& value) { out.emplace_back(name, value); };
  const bool ended = run.summary && !run.outdated;
  if (run.curves.last > 0)
    add("loss", number(ended && run.summary->loss ? *run.summary->loss : run.curves.last_loss, 4));
  double accuracy = -1, loss = NAN;
  for (const Validation& v : run.validations) {
    if (std::isfinite(v.accuracy)) accuracy = std::max(accuracy, v.accuracy);
    loss = v.loss;
  }
  if (run.summary && run.summary->valid_accuracy) accuracy = std::max(accuracy, *run.summary->valid_accuracy);
  if (run.summary && run.summary->valid_loss && !std::isfinite(loss)) loss = *run.summary->valid_loss;
  if (std::isfinite(loss)) add("validation loss", number(loss, 4));
  if (accuracy >= 0) add("best top-1", fixed(100 * accuracy, 2) + " %");
  if (run.summary && run.summary->samples_per_second > 0)
    add("samples/s", number(run.summary->samples_per_second));
  else if (!run.curves.rate.mid.empty())
    add("samples/s", number(quantile(run.curves.rate.mid, 0.5)));
  if (ended && run.summary->speed_of_light) add("speed of light", fixed(100 * *run.summary->speed_of_light, 1) + " %");
  if (run.record.earlier.empty() && run.summary)
    add("time", seconds_text(run.summary->seconds));
  else if (!run.record.earlier.empty())
    add("time of all starts", time_of(run));
  add("steps", integer_text(double(run.curves.last)));
  add("completed epochs", std::to_string(ended ? run.summary->epoch : run.curves.epoch));
  if (run.summary && run.summary->steps > 0 && !run.summary->account.ranks.empty()) {
    const StepTimeStats& t = run.summary->account.ranks.front().step_times;
    if (t.mean > 0) {
      add("step time, median", seconds_text(t.p50));
      add("step time, p99", seconds_text(t.p99));
    }
  }
  std::set<std::string> hosts;
  for (const auto& [host, placement] : run.record.ranks) hosts.insert(host);
  add("ranks", fmt::format("{}{}", (long long)run.record.ranks.size(),
                           hosts.size() > 1 ? fmt::format(" on {} hosts", (long long)hosts.size()) : std::string()));
  if (run.curves.skipped > 0) add("skipped steps", integer_text(double(run.curves.skipped)));
  if (run.summary && run.summary->unread_samples > 0)
    add("unread samples", integer_text(double(run.summary->unread_samples)));
  return out;
}

std::string findings_of(const Run& run) {
  if (!run.summary) return "<p class=\"quiet\">There is no verdict yet. It is written when the run ends.</p>";
  const RunSummary& e = *run.summary;
  std::string out;
  if (!e.verdict.empty()) out += fmt::format("<p class=\"verdict\">{}</p>", arrows(e.verdict));
  if (e.verdict.empty() && e.findings.empty()) out += "<p class=\"verdict\">No setting worth changing was found.</p>";
  std::string items;
  const auto add = [&](const std::string& gain, const Advice& a) {
    items += fmt::format("<li><span class=\"gain\">{}</span><div><code>{}</code><p>{}{}</p></div></li>", gain,
                         arrows(a.advice), arrows(a.evidence),
                         a.caution.empty() ? std::string() : fmt::format(" <em>{}</em>", arrows(a.caution)));
  };
  for (const Advice& f : e.findings) add(fmt::format("{}{} ×", f.at_most ? "≤ " : "", fixed(f.gain, 2)), f);
  for (const Advice& h : e.hints) add("worth a trial", h);
  if (items.empty()) return out;
  return out + fmt::format("<ol class=\"findings\">{}</ol>", items);
}

// The launches of a run that was resumed, and the keys that each of them changed.
std::string starts_of(const Run& run) {
  const RunRecord& record = run.record;
  if (record.earlier.empty()) return "";
  std::string rows;
  const auto row = [&](const std::string& started, std::int64_t step, std::optional<double> seconds,
                       const std::vector<std::string>& changed) {
    std::string keys;
    for (const std::string& key : changed) keys += fmt::format("<code>{}</code><br>", arrows(key));
    const auto cell = [&](const char* label, const std::string& value) {
      rows += fmt::format("<td data-label=\"{}\"><span>{}</span></td>", label, value);
    };
    rows += fmt::format("<tr><th>{}</th>", escaped(started));
    cell("from step", integer_text(double(step)));
    cell("time", seconds ? seconds_text(*seconds) : std::string("–"));
    cell("changed keys", keys.empty() ? std::string("–") : keys);
    rows += "</tr>";
  };
  for (const EarlierStart& start : record.earlier)
    row(start.started, start.resumed_at_step, start.seconds, start.changed);
  const bool ended = run.summary && !run.outdated && has_own_summary(run);
  row(record.started, record.resumed_at_step, ended ? std::optional(run.summary->seconds) : std::nullopt,
      record.changed);
  return fmt::format(
      "<figure class=\"wide\"><figcaption>Starts</figcaption><div class=\"scroll\"><table class=\"stack words\"><thead>"
      "<tr><th>started</th><th>from step</th><th>time</th><th>changed keys</th></tr></thead><tbody>{}</tbody></table>"
      "</div></figure>\n",
      rows);
}

std::string settings_of(const Run& run) {
  std::string rows;
  const auto row = [&](const std::string& name, const std::string& value) {
    rows += fmt::format("<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(value));
  };
  row("folder", run.folder.string());
  row("started", run.record.started);
  if (run.record.resumed_at_step > 0) row("resumed at step", std::to_string(run.record.resumed_at_step));
  row("device", run.record.device);
  row("all-reduce", run.record.collective);
  if (run.summary && !run.summary->cuda_graph.empty()) row("CUDA graphs", run.summary->cuda_graph);
  for (const auto& [name, value] : run.record.facts) row(name, value);
  for (std::size_t r = 0; r < std::min<std::size_t>(run.record.ranks.size(), 64); ++r)
    row(fmt::format("rank {}", (long long)r),
        fmt::format("{}, {}", run.record.ranks[r].first, run.record.ranks[r].second));
  return starts_of(run) +
         fmt::format(
             "<details><summary>Environment of the run</summary><div class=\"scroll\"><table class=\"pairs "
             "words\"><tbody>{}</tbody></table></div></details><details><summary>Configuration "
             "(config.cfg)</summary><pre>{}</pre></details>\n",
             rows, escaped(run.config));
}

}  // namespace millrace::report
