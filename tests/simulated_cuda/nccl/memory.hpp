// Internal to the simulated NCCL: its memory.
#pragma once

struct ncclComm;

namespace millrace::simulated {

// Memory that is registered with this communicator may not be freed.
void know(ncclComm&);
// A fault of MILLRACE_SIMULATED_FAULT: this process has a version without windows.
bool is_old_nccl();

}  // namespace millrace::simulated
