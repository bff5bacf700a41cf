// The collective of devices with memory of their own that no faster way connects: regions lie on the device, sums are
// made by the host collective in host memory. Pieces of `chunk_bytes` travel there on the comm stream and back on the
// copy stream, while a worker sums those that have arrived. finish() makes the caller wait for the worker, so a step
// that calls it, or begin_*, cannot be captured by a device.
#pragma once
#include <functional>
#include <memory>

#include "millrace/comm/collective.hpp"

namespace millrace {

// What a device may want besides; each may be empty.
struct StagingHooks {
  // Let it copy faster from and to host memory that it did not allocate (CUDA: page-locks it).
  std::function<void(void* memory, std::size_t bytes)> pin;
  std::function<void(void* memory)> unpin;  // never throws
  std::function<void()> begin_thread;       // by the worker, before it uses the device
};

std::unique_ptr<Collective> make_staged_collective(World&, Device&, const CollectiveOptions&, StagingHooks = {});

}  // namespace millrace
