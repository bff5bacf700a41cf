// The CPU's device and backend on their own, without a World: for tests and benches. Programs call make_cpu_context.
#pragma once
#include <memory>

#include "millrace/ops/backend.hpp"

namespace millrace {

// sharers: ranks on this host, which share its memory.
std::unique_ptr<Device> make_cpu_device(int ranks_on_host = 1);
std::unique_ptr<Backend> make_cpu_backend(
    Device&);  // the device must outlive it. Computes with the OpenMP threads of the caller.

}  // namespace millrace
