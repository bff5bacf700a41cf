// The device and the backend of the CPU, without a World, for tests and benchmarks. Programs call make_cpu_context().
#pragma once
#include <memory>

#include "cpu/choice/conv_selector.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace {

// The available memory is divided evenly among the ranks of the host.
std::unique_ptr<Device> make_cpu_device(int ranks_on_host = 1);
// Computes with the threads of the caller (cpu/common/threads.hpp). The device must outlive the backend.
std::unique_ptr<Backend> make_cpu_backend(Device&, const cpu::ConvSelectorOptions& = {});

}  // namespace millrace
