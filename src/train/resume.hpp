// What a run that goes on from a checkpoint may have changed, and what not.
#pragma once
#include "millrace/train/session/session.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace millrace {

// Sets the origin of the session's epochs. Another global batch or data set in the middle of an epoch would skip or
// repeat samples: Error(config) on every rank. Other changes are warned of in a line.
void resume_from(const RunState&, Session&);

}  // namespace millrace
