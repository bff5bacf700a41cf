#include "millrace/runs/run_monitor.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/error.hpp"
#include "millrace/base/flat_json.hpp"
#include "millrace/telemetry/timeline.hpp"

namespace millrace {
namespace {

double age(double modified) { return modified < 0 ? -1 : std::max(0.0, unix_time() - modified); }

}  // namespace

RunStatus run_status_of(const StatusInputs& s) {
  constexpr double max_pause = 10, min_pause = 5;  // seconds
  if (s.run_age < 0) return RunStatus::absent;
  if (s.summary_age >= 0 && (s.summary_age <= s.run_age || s.summary_is_final)) return RunStatus::ended;
  const bool lost = s.same_host && !s.process_exists;
  if (!s.stepped || s.metrics_age < 0)
    return lost && s.run_age > min_pause ? RunStatus::process_lost : RunStatus::starting;
  if (s.metrics_age <= std::max(min_pause, 3 * s.step_seconds)) return RunStatus::running;
  if (lost) return RunStatus::process_lost;
  return s.metrics_age <= std::max(max_pause, 5 * s.step_seconds) ? RunStatus::running : RunStatus::no_progress;
}

bool RunMonitor::WatchedFile::changed() {
  struct stat now {};
  const WatchedFile before = *this;
  const bool exists = ::stat(path.c_str(), &now) == 0;
  modified = exists ? double(now.st_mtim.tv_sec) + 1e-9 * double(now.st_mtim.tv_nsec) : -1;
  inode = std::int64_t(now.st_ino);
  bytes = std::int64_t(now.st_size);
  return modified != before.modified || inode != before.inode || bytes != before.bytes;
}

RunMonitor::RunMonitor(const std::string& dir)
    : folder_(dir),
      metrics_(folder_.metrics_file()),
      validations_(folder_.validations_file()),
      record_file_{folder_.record_file()},
      summary_file_{folder_.summary_file()},
      latest_checkpoint_{folder_.latest_checkpoint_file()} {
  view_.dir = dir;
}

void RunMonitor::read_record() {
  record_ = folder_.try_record().value_or(RunRecord{});
  view_.planned_steps = record_.planned_steps;
  view_.device = record_.device;
  view_.precision = record_.precision;
  view_.ranks = int(record_.ranks.size());
  view_.hosts.clear();
  for (const auto& [host, placement] : record_.ranks)
    if (std::find(view_.hosts.begin(), view_.hosts.end(), host) == view_.hosts.end()) view_.hosts.push_back(host);
}

void RunMonitor::read_summary() {
  const RunSummary summary = folder_.try_summary().value_or(RunSummary{});
  view_.status = summary.status;
  summary_steps_ = summary.steps;
  view_.valid_accuracy = summary.valid_accuracy.value_or(-1);
  view_.valid_loss = summary.valid_loss.value_or(std::numeric_limits<double>::quiet_NaN());
  view_.advice = summary.findings.empty() ? "" : summary.findings.front().advice;
}

void RunMonitor::read_checkpoint() {
  const auto step = latest_checkpoint_.modified < 0 ? std::nullopt : folder_.try_latest_checkpoint_step();
  view_.checkpoint_step = step.value_or(-1);
  if (!step) latest_checkpoint_.modified = -1;  // perhaps it is being replaced: the next poll reads it again
}

void RunMonitor::read_validations() {
  const FileTail::Lines news = validations_.read();
  if (news.restarted) view_.valid_step = -1;
  if (news.lines.empty()) return;
  std::int64_t step = -1;
  double accuracy = -1, loss = std::numeric_limits<double>::quiet_NaN();
  const bool valid = parse_flat_json(news.lines.back(), [&](std::string_view key, double value) {
    if (std::isnan(value)) return;
    if (key == "step") step = std::int64_t(value);
    if (key == "accuracy") accuracy = value;
    if (key == "loss") loss = value;
  });
  if (!valid) return;
  view_.valid_step = step;
  view_.valid_accuracy = accuracy;
  view_.valid_loss = loss;
}

StatusInputs RunMonitor::status_inputs(double metrics_modified) const {
  StatusInputs in{age(record_file_.modified), age(metrics_modified), age(summary_file_.modified)};
  const std::chrono::duration<double> since_news = std::chrono::steady_clock::now() - last_step_seen_;
  // The clock of the file server may differ from the local one.
  if (in.metrics_age >= 0) in.metrics_age = std::min(in.metrics_age, since_news.count());
  in.summary_is_final = view_.status == "finished" && summary_steps_ >= view_.planned_steps;
  const std::optional<bool> exists = process_exists(record_);
  in.same_host = exists.has_value();
  in.process_exists = exists.value_or(false);
  in.stepped = !view_.steps.empty() && view_.steps.last().step > record_.resumed_at_step;
  in.step_seconds = view_.steps.recent().step_seconds();
  return in;
}

const RunSnapshot& RunMonitor::poll() {
  if (record_file_.changed()) read_record();
  if (summary_file_.changed()) read_summary();
  read_validations();
  if (latest_checkpoint_.changed()) read_checkpoint();
  const FileTail::Lines news = metrics_.read();
  if (polled_ && !news.lines.empty()) last_step_seen_ = std::chrono::steady_clock::now();  // the first lines are old
  polled_ = true;
  if (news.restarted) view_.steps.clear();
  for (const std::string& line : news.lines)
    if (const auto step = parse_metrics(line)) view_.steps.add(*step);
  const StatusInputs in = status_inputs(news.modified);
  view_.state = run_status_of(in);
  view_.seconds_since_step = in.metrics_age < 0 ? in.run_age : std::min(in.run_age, in.metrics_age);
  view_.checkpoint_age = age(latest_checkpoint_.modified);
  return view_;
}

}  // namespace millrace
