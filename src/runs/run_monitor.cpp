#include "millrace/runs/run_monitor.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace {

using nlohmann::json;

std::string this_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// A file that is being replaced, or of another version, gives what it gives.
json read_json(const std::filesystem::path& path) {
  try {
    json out = json::parse(read_file(path), nullptr, false);
    return out.is_object() ? out : json::object();
  } catch (const Error&) {
    return json::object();
  }
}

template <class T>
T value(const json& j, const char* key, T otherwise) {
  const auto it = j.find(key);
  if (it == j.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>)
    return it->is_string() ? it->get<T>() : otherwise;
  else
    return it->is_number() ? it->get<T>() : otherwise;
}

double age(double modified) { return modified < 0 ? -1 : std::max(0.0, unix_time() - modified); }

}  // namespace

RunStatus run_status_of(const StatusInputs& s) {
  constexpr double patience = 10, least = 5;  // seconds
  if (s.run_age < 0) return RunStatus::absent;
  if (s.summary_age >= 0 && (s.summary_age <= s.run_age || s.summary_is_final)) return RunStatus::ended;
  const bool gone = s.same_host && !s.process_there;
  if (!s.stepped || s.metrics_age < 0) return gone && s.run_age > least ? RunStatus::process_lost : RunStatus::starting;
  if (s.metrics_age <= std::max(least, 3 * s.step_seconds)) return RunStatus::running;
  if (gone) return RunStatus::process_lost;
  return s.metrics_age <= std::max(patience, 5 * s.step_seconds) ? RunStatus::running : RunStatus::no_progress;
}

bool RunMonitor::WatchedFile::changed() {
  struct stat now {};
  const WatchedFile then = *this;
  const bool there = ::stat(path.c_str(), &now) == 0;
  modified = there ? double(now.st_mtim.tv_sec) + 1e-9 * double(now.st_mtim.tv_nsec) : -1;
  inode = std::int64_t(now.st_ino), bytes = std::int64_t(now.st_size);
  return modified != then.modified || inode != then.inode || bytes != then.bytes;
}

RunMonitor::RunMonitor(const std::string& dir)
    : metrics_(dir + "/metrics.jsonl"),
      validations_(dir + "/validation.jsonl"),
      run_{dir + "/run.json"},
      summary_{dir + "/summary.json"},
      latest_{dir + "/checkpoints/latest"} {
  view_.dir = dir;
}

void RunMonitor::read_run() {
  const json run = read_json(run_.path);
  view_.planned_steps = value(run.value("resolved", json::object()), "steps", std::int64_t(0));
  view_.device = value(run, "device", std::string());
  view_.precision = value(run.value("provenance", json::object()), "precision", std::string());
  resumed_at_ = value(run, "resumed_at_step", std::int64_t(0));
  pid_ = value(run, "pid", 0);
  view_.hosts.clear(), view_.ranks = 0;
  for (const json& rank : run.value("ranks", json::array())) {
    const std::string host = rank.is_object() ? value(rank, "host", std::string()) : "";
    if (view_.ranks++ == 0) host_ = host;
    if (std::find(view_.hosts.begin(), view_.hosts.end(), host) == view_.hosts.end()) view_.hosts.push_back(host);
  }
}

void RunMonitor::read_summary() {
  const json summary = read_json(summary_.path);
  view_.status = value(summary, "status", std::string());
  summary_steps_ = value(summary, "steps", std::int64_t(-1));
  view_.valid_accuracy = value(summary, "valid_accuracy", -1.0);
  view_.valid_loss = value(summary, "valid_loss", std::numeric_limits<double>::quiet_NaN());
  const json findings = summary.value("findings", json::array());
  const json first = findings.is_array() && !findings.empty() ? findings[0] : json::object();
  view_.advice = first.is_object() ? value(first, "advice", std::string()) : "";
}

void RunMonitor::read_checkpoint() {
  view_.checkpoint_step = -1;
  long long step = -1;
  try {
    if (latest_.modified >= 0 && std::sscanf(read_file(latest_.path).c_str(), "step-%lld.h5", &step) == 1)
      view_.checkpoint_step = step;
  } catch (const Error&) {  // replaced in this moment: next time
    latest_.modified = -1;
  }
}

void RunMonitor::read_validations() {
  const FileTail::Lines news = validations_.read();
  if (news.anew) view_.valid_step = -1;
  if (news.lines.empty()) return;
  const json last = json::parse(news.lines.back(), nullptr, false);
  if (!last.is_object()) return;
  view_.valid_step = value(last, "step", std::int64_t(-1));
  view_.valid_accuracy = value(last, "accuracy", -1.0);
  view_.valid_loss = value(last, "loss", std::numeric_limits<double>::quiet_NaN());
}

const RunSnapshot& RunMonitor::poll() {
  if (run_.changed()) read_run();
  if (summary_.changed()) read_summary();
  read_validations();
  if (latest_.changed()) read_checkpoint();
  const FileTail::Lines news = metrics_.read();
  const auto now = std::chrono::steady_clock::now();
  if (looked_ && !news.lines.empty()) last_change_ = now;  // old lines are no news
  looked_ = true;
  if (news.anew) view_.steps.clear();
  for (const std::string& line : news.lines)
    if (const auto step = parse_metrics(line)) view_.steps.add(*step);

  StatusInputs signs{age(run_.modified), age(news.modified), age(summary_.modified)};
  if (signs.metrics_age >= 0)  // the clock of the files' host may be another
    signs.metrics_age = std::min(signs.metrics_age, std::chrono::duration<double>(now - last_change_).count());
  signs.summary_is_final = view_.status == "finished" && summary_steps_ >= view_.planned_steps;
  signs.same_host = host_ == this_host() && pid_ > 0;
  signs.process_there = ::kill(pid_, 0) == 0 || errno == EPERM;
  signs.stepped = !view_.steps.empty() && view_.steps.last().step > resumed_at_;
  signs.step_seconds = view_.steps.recent().step_seconds();
  view_.state = run_status_of(signs);
  view_.seconds_since_step = signs.metrics_age < 0 ? signs.run_age : std::min(signs.run_age, signs.metrics_age);
  view_.checkpoint_age = age(latest_.modified);
  return view_;
}

}  // namespace millrace
