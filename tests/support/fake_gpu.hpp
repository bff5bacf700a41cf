// What the stand-in of replaying_compute.cpp is to do, and has done so far, over all ranks of this process.
#pragma once
#include <atomic>
#include <string>

namespace millrace::test {

struct FakeGpuControl {
  // The CUDA backend's kernels, which take milliseconds each; else the processor's operations.
  std::atomic<bool> kernels{true};
  std::atomic<bool> eager_copies{false};  // see LazyDevice
  std::atomic<double> copy_seconds{0};    // that a copy of the copy lane takes
  std::atomic<int> launches{0};           // of recorded work as a whole
  std::atomic<int> captures{0};           // recordings made
  std::atomic<int> operations{0};         // forward, backward and optimizer passes enqueued one by one
  // The n-th time that this piece of work runs, it fails as a GPU does: an Error that says what the trail knows.
  std::string fails_in;
  std::atomic<int> fails_after{0};  // the first time is 0
};
FakeGpuControl& fake_gpu();
std::string& missing_gpu_reason();  // of this thread's rank: why it has none; empty: it has one

}  // namespace millrace::test
