// RunMonitor: watches the folder of a run from outside. Each poll() reads the new lines of metrics.jsonl, and the other
// files only when they have changed, so that polling costs a shared file system little.
#pragma once
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "millrace/runs/file_tail.hpp"
#include "millrace/runs/run_folder.hpp"
#include "millrace/runs/step_history.hpp"

namespace millrace {

// The state of a run, judged by its files and, on the host where it runs, by its process.
enum class RunStatus {
  absent,    // there is no run.json yet
  starting,  // this launch has not completed a step yet
  running,
  no_progress,   // no step for longer than steps take: an evaluation, a checkpoint, or the run hangs
  process_lost,  // the process no longer exists and left no summary
  ended
};
// Ages in seconds since the last write; negative: no such file.
struct StatusInputs {
  double run_age = -1, metrics_age = -1, summary_age = -1;
  bool summary_is_final = false;  // the summary is of the last step that run.json plans
  bool stepped = false;           // this launch has completed a step
  bool same_host = false;         // rank 0 was launched on this host, so process_exists is known
  bool process_exists = false;
  double step_seconds = 0;  // recent mean time of a step
};
RunStatus run_status_of(const StatusInputs&);

// What the files of a run say at the moment.
struct RunSnapshot {
  std::string dir;
  RunStatus state = RunStatus::absent;
  double seconds_since_step = 0;  // since the last step, or since the launch when there is none
  // From run.json.
  std::int64_t planned_steps = 0;
  int ranks = 1;
  std::vector<std::string> hosts;  // without repetition
  std::string device, precision;
  // From checkpoints/latest. Step -1: there is no checkpoint.
  std::int64_t checkpoint_step = -1;
  double checkpoint_age = 0;  // seconds
  // From summary.json, for a run that has ended.
  std::string status, advice;
  // From the last line of validation.jsonl, or from summary.json for a run that has ended. Step -1: no evaluation yet.
  // An accuracy below 0 and a loss of NaN stand for values that were not recorded.
  std::int64_t valid_step = -1;
  double valid_accuracy = -1, valid_loss = std::numeric_limits<double>::quiet_NaN();
  StepHistory steps;
};

class RunMonitor {
 public:
  explicit RunMonitor(const std::string& dir);
  const RunSnapshot& poll();  // Error(data) when a file exists and cannot be read
  const RunSnapshot& view() const { return view_; }

 private:
  // A small file that is read again when it has changed.
  struct WatchedFile {
    std::filesystem::path path;
    double modified = -1;  // seconds since 1970; -1: no such file
    std::int64_t inode = 0, bytes = 0;
    bool changed();  // compares with the last call
  };
  void read_record();
  void read_summary();
  void read_checkpoint();
  void read_validations();
  StatusInputs status_inputs(double metrics_modified) const;
  const RunFolder folder_;
  RunSnapshot view_;
  FileTail metrics_, validations_;
  WatchedFile record_file_, summary_file_, latest_checkpoint_;
  RunRecord record_;
  std::int64_t summary_steps_ = -1;
  bool polled_ = false;
  std::chrono::steady_clock::time_point last_step_seen_{};  // when a poll last found new lines
};

}  // namespace millrace
