#include "cuda/plans/device_timing.hpp"

#include <fmt/core.h>

#include <charconv>
#include <string>

#include "millrace/base/log.hpp"
#include "millrace/plans/time_candidates.hpp"

namespace millrace::cuda {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// Several calls as one launch.
class RecordedCalls {
 public:
  RecordedCalls() = default;
  ~RecordedCalls() { reset(); }
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  // Whether it holds so many calls now.
  bool record(StreamHandle stream, int calls, const std::function<bool()>& enqueue) {
    if (calls == calls_) return true;
    reset();
    cudaGraph_t graph = nullptr;
    MR_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    bool good = true;
    for (int i = 0; i < calls && good; ++i) good = enqueue();
    good = cudaStreamEndCapture(stream, &graph) == cudaSuccess && good;
    good = good && cudaGraphInstantiate(&executable_, graph, 0) == cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
    if (good)
      calls_ = calls;
    else
      (void)cudaGetLastError();
    return good;
  }
  void launch(StreamHandle stream) { MR_CUDA(cudaGraphLaunch(executable_, stream)); }

 private:
  void reset() {
    if (executable_) cudaGraphExecDestroy(executable_);
    executable_ = nullptr;
    calls_ = 0;
  }
  cudaGraphExec_t executable_ = nullptr;
  int calls_ = 0;
};

constexpr std::size_t largest_copy = std::size_t(256) << 20, smallest_copy = std::size_t(64) << 20;

// A plan's text for the copy is its number of bytes.
PlanEntry time_copy(StreamHandle stream) {
  for (std::size_t bytes = largest_copy; bytes >= smallest_copy; bytes /= 2) {
    const ScratchMemory from(bytes), to(bytes);
    if (!from.data() || !to.data()) continue;
    const double seconds = time_on_device(stream, 1, [&](std::size_t) {
      return cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
    })[0];
    if (seconds > 0 && seconds < never) return {std::to_string(bytes), seconds};
  }
  log::local(
      fmt::format("warning: the bandwidth of the device's memory is not measured (no {} MiB are free). it is estimated",
                  2 * smallest_copy >> 20));
  return {};
}

// Not kept for later runs, which may have enough memory to measure.
PlanEntry estimate_copy() {
  int device = 0, clock = 0, width = 0;
  MR_CUDA(cudaGetDevice(&device));
  MR_CUDA(cudaDeviceGetAttribute(&clock, cudaDevAttrMemoryClockRate, device));
  MR_CUDA(cudaDeviceGetAttribute(&width, cudaDevAttrGlobalMemoryBusWidth, device));
  const double rate = copy_share_of_bus * bus_bytes_per_second(clock, width);
  if (rate <= 0) return {.plan = "", .persistent = false};
  return {std::to_string(largest_copy), 2 * double(largest_copy) / rate, false};
}

}  // namespace

std::vector<double> time_on_device(StreamHandle stream, std::size_t candidates,
                                   const std::function<bool(std::size_t)>& enqueue) {
  std::vector<RecordedCalls> recorded(candidates);
  const TimingEvent begin, end;
  return time_candidates(candidates, [&](std::size_t c, int calls) {
    // Not timed: it loads code, and the launch below is enqueued while it runs.
    if (!enqueue(c)) {
      (void)cudaGetLastError();
      return never;
    }
    if (!recorded[c].record(stream, calls, [&] { return enqueue(c); })) return never;
    MR_CUDA(cudaEventRecord(begin.get(), stream));
    recorded[c].launch(stream);
    MR_CUDA(cudaEventRecord(end.get(), stream));
    MR_CUDA(cudaEventSynchronize(end.get()));
    float milliseconds = 0;
    MR_CUDA(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    return double(milliseconds) * 1e-3;
  });
}

// The memory transfers twice in each period of its clock.
double bus_bytes_per_second(int memory_clock_khz, int bus_width_bits) {
  return 2e3 * double(memory_clock_khz) * double(bus_width_bits) / 8;
}

double copy_bytes_per_second(StreamHandle stream, PlanSelector& selector) {
  const PlanEntry entry = selector.get("copy in device memory", [&] {
    const PlanEntry timed = selector.timing_enabled() ? time_copy(stream) : PlanEntry{};
    return timed.seconds > 0 ? timed : estimate_copy();
  });
  std::size_t bytes = 0;
  std::from_chars(entry.plan.data(), entry.plan.data() + entry.plan.size(), bytes);
  return entry.seconds > 0 ? 2 * double(bytes) / entry.seconds : 0;
}

}  // namespace millrace::cuda
