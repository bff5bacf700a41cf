// What the rules of the verdict go by besides times: the configuration as it was resolved.
#pragma once
#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/train/session/session.hpp"

namespace millrace {

ResolvedConfig resolved_config_of(const Session&);
double step_flops(const Session&, Network&);  // of this rank in a full step, forward and backward

}  // namespace millrace
