// Checks which settings changed between a checkpoint and the run that resumes from it.
#pragma once
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

}  // namespace millrace
