// The run directory's own files: config.cfg, run.json, summary.json.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "evaluate.hpp"
#include "millrace/telemetry/account.hpp"
#include "millrace/telemetry/verdict.hpp"
#include "session.hpp"

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
void write_run_json(Session&, const std::filesystem::path& dir, std::int64_t resumed_at);

struct Summary {
  std::string status;  // finished, stopped, diverged, unread, unsaved
  std::int64_t steps = 0, epoch = 0, samples = 0, unread_samples = 0;
  // Of this start alone, as the rest is.
  std::int64_t session_steps = 0, session_samples = 0;
  double samples_per_second = 0, seconds = 0, final_loss = 0;
  bool evaluated = false;
  Evaluation validation;
};
// A finished run that is started again keeps what its last steps said.
void write_summary(const std::filesystem::path& dir, const Summary&, const Account&, const std::vector<Finding>&);

}  // namespace millrace
