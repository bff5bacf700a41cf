// The files that a run writes about itself in its folder: config.cfg, run.json and summary.json.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/telemetry/account.hpp"
#include "millrace/train/session/session.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/logging/speed_of_light.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

// Locks the folder of a run against a second run for as long as this object lives. Rank 0 does the work. Both functions
// are collective, and fail on all ranks.
class RunFolderLock {
 public:
  // Locks the folder if it is one of a run. A run must do so before it looks for a checkpoint there: a Slurm job waits
  // here until the job before it has ended, which may still write one.
  RunFolderLock(World&, const std::filesystem::path&);
  ~RunFolderLock();
  RunFolderLock(const RunFolderLock&) = delete;
  // Creates the folder if there is none, locks it, and removes what a killed run left.
  void create();

 private:
  // Locks the file "lock". flags: O_CREAT creates it. On a file system without locks, a second run is not detected.
  // Returns "", or why the folder cannot be used.
  std::string lock(int flags);
  World& world_;
  const std::filesystem::path dir_;
  int lock_ = -1;
};
// Removes what an earlier run left in the folder: checkpoints, summary, traces and events. Otherwise a new run that is
// killed early would be mistaken for the earlier one. metrics.jsonl and validation.jsonl stay: they are truncated when
// they are opened.
void remove_old_run(const std::filesystem::path& dir);
// "training resnet (308 k parameters) on 60000 samples, 2 ranks, ..."
std::string describe_run(const Session&, const Network&);

// Identifies one launch of the training. Files that name the same launch belong together.
struct Launch {
  std::string time;  // UTC
  int pid = 0;       // of rank 0
};
// Writes run.json and config.cfg on rank 0; the launch is empty on other ranks. Collective.
Launch write_run_json(Session&, const std::filesystem::path& dir, std::int64_t resumed_at, const SpeedOfLight&);

struct Summary {
  Launch launch;
  std::string status;   // finished, stopped, diverged, unread or unsaved
  const RunState& run;  // must outlive the Summary
  std::optional<Evaluation> validation;
  // Of this launch only.
  std::int64_t session_steps = 0, session_samples = 0;
  double samples_per_second = 0, seconds = 0, final_loss = 0;
  std::string cuda_graph = {};  // as Device::graphs()
  LightStats light = {};
};
// Whether the file is the summary of a run that finished after this many steps.
bool is_final_summary(const std::filesystem::path& summary, std::int64_t steps);
// Writes summary.json. A finished run that is launched again keeps its summary.
void write_summary(const std::filesystem::path& dir, const Summary&, const Account&, const BottleneckMetrics&);

}  // namespace millrace
