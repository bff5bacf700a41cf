// RunWatch: a run's folder seen from outside, as often as one likes. Each look reads what is new in metrics.jsonl, and
// the other files when they were written anew: little to do for a shared file system.
#pragma once
#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "millrace/runs/file_tail.hpp"
#include "millrace/runs/step_history.hpp"

namespace millrace {

// Whether a run goes on, told from its files and, on its own host, its process.
enum class RunStatus {
  absent,    // no run.json yet
  starting,  // no step of this start yet
  running,
  no_progress,   // no step for longer than steps take: it evaluates, writes a checkpoint, or is stuck
  process_lost,  // its process is no longer there, and it left no summary
  ended
};
struct StatusInputs {  // ages in seconds; below 0: no such file
  double run_age = -1, metrics_age = -1, summary_age = -1;
  bool summary_is_final = false;  // it tells of the last step that run.json plans
  bool stepped = false;           // since this start
  bool same_host = false, process_there = false;
  double step_seconds = 0;
};
RunStatus run_status_of(const StatusInputs&);

// What is known of a run by now.
struct RunSnapshot {
  std::string dir;
  RunStatus state = RunStatus::absent;
  double seconds_since_step = 0;  // since the last step, or the start
  // Of run.json.
  std::int64_t planned_steps = 0;
  int ranks = 1;
  std::vector<std::string> hosts;  // each once
  std::string device, precision;
  // Of checkpoints/latest; step -1: none.
  std::int64_t checkpoint_step = -1;
  double checkpoint_age = 0;
  // Of summary.json, when ended.
  std::string status, advice;
  // Of the last line of validation.jsonl, and of summary.json when ended. step -1: not evaluated yet; accuracy, loss:
  // below 0 and NaN when there is none.
  std::int64_t valid_step = -1;
  double valid_accuracy = -1, valid_loss = std::numeric_limits<double>::quiet_NaN();
  StepHistory steps;
};

class RunMonitor {
 public:
  explicit RunMonitor(const std::string& dir);
  const RunSnapshot& poll();  // Error(data) when a file is there and cannot be read
  const RunSnapshot& view() const { return view_; }

 private:
  // A small file that is read again when it was written anew.
  struct WatchedFile {
    std::filesystem::path path;
    double modified = -1;  // not there: -1
    std::int64_t inode = 0, bytes = 0;
    bool changed();  // it was
  };
  void read_run();
  void read_summary();
  void read_checkpoint();
  void read_validations();
  RunSnapshot view_;
  FileTail metrics_, validations_;
  WatchedFile run_, summary_, latest_;
  std::int64_t summary_steps_ = -1, resumed_at_ = 0;
  std::string host_;
  int pid_ = 0;
  bool looked_ = false;
  std::chrono::steady_clock::time_point last_change_{};  // when a look last found lines
};

}  // namespace millrace
