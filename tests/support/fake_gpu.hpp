// Controls and counters of the fake GPU in fake_gpu.cpp, shared by all ranks of this process.
#pragma once
#include <atomic>
#include <string>

namespace millrace::test {

struct FakeGpuControl {
  // true: operations are the CUDA backend's kernels, which take milliseconds each; false: those of the CPU.
  std::atomic<bool> kernels{true};
  std::atomic<bool> eager_copies{false};  // see DeferredDevice
  std::atomic<double> copy_seconds{0};    // duration of a copy in the copy stream
  std::atomic<int> launches{0};           // captured steps launched as a whole
  std::atomic<int> captures{0};           // captures made
  std::atomic<int> operations{0};         // forward, backward and optimizer passes enqueued one by one
  // The operation with this label fails like a faulting GPU, with an Error that contains what the flight recorder
  // knows.
  std::string fails_in;
  std::atomic<int> fails_after{0};  // number of runs before the one that fails
};
FakeGpuControl& fake_gpu();
std::string& missing_gpu_reason();  // why the rank of this thread has no GPU; empty: it has one

}  // namespace millrace::test
