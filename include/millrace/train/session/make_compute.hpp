#pragma once
#include "millrace/comm/placement.hpp"
#include "millrace/compute/execution_context.hpp"
#include "millrace/config/run_config.hpp"

namespace millrace {

// Device, backend and collective by run.device, threads by placement.
ExecutionContext make_execution_context(World&, const RunConfig&, Placement* placement = nullptr);

}  // namespace millrace
