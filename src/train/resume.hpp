// Checks which settings changed between a checkpoint and the run that resumes from it, and what an old run has left.
#pragma once
#include <filesystem>
#include <string>

#include "millrace/train/session/session.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace millrace {

// For checkpoints whose function cannot be compared, because their format or text is older. Error(config): a key that
// changes what the network computes has another value than in the checkpoint.
void require_same_function(const CheckpointModel&, const RunConfig&);

// Sets the origin of the session's epochs. Error(config) on every rank: the global batch, the data set, the kind of
// samples or their order changed in the middle of an epoch, which would skip or repeat samples. Other changes cause a
// warning.
void resume_from(const RunState&, Session&);

// The keys that decide what a run learns, with other values then and now: "optim.lr (0.1 then, 0.2 now)". then, now:
// texts of config.cfg.
std::string changed_training_keys(const std::string& then, const std::string& now);

// Error(config) if a new run in the folder would remove or rename the weights with which it begins.
void require_kept(const std::string& weights, const std::filesystem::path& dir);
// Renames the exported weights of an old run, so that nobody takes them for those of the new one. Returns a line that
// says so; "": there were none. For one rank.
std::string set_old_export_aside(const std::filesystem::path& dir);

}  // namespace millrace
