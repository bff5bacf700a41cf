// Chooses the device of a run, with its operations and its collective, from the configuration.
#pragma once
#include "millrace/comm/placement.hpp"
#include "millrace/compute/execution_context.hpp"
#include "millrace/config/run_config.hpp"

namespace millrace {

DType dtype_of(Precision);

// run.device selects the device. `placement`, if given, receives the cores and threads of this rank. Collective.
// Error(config): with run.device = auto, only some of the ranks have a GPU.
ExecutionContext make_execution_context(World&, const RunConfig&, Placement* placement = nullptr);

}  // namespace millrace
