// The Collective of devices with their own memory and without a direct connection such as NCCL. Regions are in device
// memory; the host collective works on copies in host memory. An all-reduce is split into pieces of `chunk_bytes`. They
// are copied to the host on the comm stream and back on the copy stream, while a worker thread reduces the pieces that
// have arrived. wait() and finish() block the calling thread until the worker is done, so a step that uses this
// Collective cannot be captured.
#pragma once
#include <functional>
#include <memory>

#include "millrace/comm/collective.hpp"

namespace millrace {

// Functions of the device; each may be empty.
struct StagingHooks {
  // Prepares host memory that the device did not allocate for faster copies (CUDA: page-locks it).
  std::function<void(void* memory, std::size_t bytes)> pin;
  std::function<void(void* memory)> unpin;  // undoes pin; must not throw
  std::function<void()> begin_thread;       // called by the worker thread before it uses the device
};

std::unique_ptr<Collective> make_staged_collective(World&, Device&, const CollectiveOptions&, StagingHooks = {});

}  // namespace millrace
