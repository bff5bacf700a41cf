// The run directory's own files: config.cfg, run.json, summary.json.
#pragma once
#include <filesystem>
#include <string>

#include "evaluate.hpp"
#include "millrace/telemetry/account.hpp"
#include "session.hpp"

namespace millrace {

// Rank 0 makes the folders; Error(data) on all ranks when that fails.
void prepare_run_folder(World&, const std::filesystem::path&);
void write_run_json(Session&, const std::filesystem::path& dir, std::int64_t resumed_at);

struct Summary {
  std::string status;  // finished, stopped, diverged
  std::int64_t steps = 0, epoch = 0, samples = 0;
  double samples_per_second = 0, seconds = 0, final_loss = 0;
  bool evaluated = false;
  Evaluation validation;
};
void write_summary(const std::filesystem::path& dir, const Summary&, const Account&);

}  // namespace millrace
