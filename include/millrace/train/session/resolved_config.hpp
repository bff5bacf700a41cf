// The resolved configuration of a session, for the rules of the verdict.
#pragma once
#include "millrace/advisor/rules/resolved_config.hpp"
#include "millrace/train/session/session.hpp"

namespace millrace {

ResolvedConfig resolved_config_of(const Session&);
// FLOPs of this rank in a full step, forward and backward, with an even split of the micro-batches.
double step_flops(const Session&, Network&);

}  // namespace millrace
