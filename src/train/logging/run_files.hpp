// The run directory's own files: config.cfg, run.json, summary.json.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/telemetry/account.hpp"
#include "millrace/train/session/session.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

// The run's folder, made by rank 0 and locked against a second run for as long as this lives. Error on all ranks when
// that fails.
class RunFolder {
 public:
  RunFolder(World&, const std::filesystem::path&);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;

 private:
  int lock_ = -1;
};
// Its checkpoints, and what tells of its steps or its end: a new run that is killed would be taken for that one. Not
// metrics.jsonl and validation.jsonl, which are cut when they are opened.
void remove_old_run(const std::filesystem::path& dir);
// "training resnet (308 k parameters) on 60000 samples, 2 ranks, ..."
std::string describe_run(const Session&, const Network&);

// A start of the training: of rank 0. What names the same one belongs together.
struct Start {
  std::string time;  // UTC
  int pid = 0;
};
Start write_run_json(Session&, const std::filesystem::path& dir, std::int64_t resumed_at);

struct Summary {
  Start start;
  std::string status;   // finished, stopped, diverged, unread, unsaved
  const RunState& run;  // outlives it
  std::optional<Evaluation> validation;
  // Of this start alone, as the rest is.
  std::int64_t session_steps = 0, session_samples = 0;
  double samples_per_second = 0, seconds = 0, final_loss = 0;
};
// A finished run that is started again keeps what its last steps said.
void write_summary(const std::filesystem::path& dir, const Summary&, const Account&, const BottleneckMetrics&);

}  // namespace millrace
