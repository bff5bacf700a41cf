#include "cuda/runtime/error_context.hpp"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/runtime/flight_recorder.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda::error_context {
namespace {

struct Now {
  int rank = -1;  // not told
  LabelListener* listener = nullptr;
  const FlightRecorder* flight_recorder = nullptr;
  std::array<const char*, 8> names{};
  std::size_t depth = 0;
  std::array<char, 96> last{};  // a copy: what it names may be gone when a failure is seen
  bool last_was_recorded = false;
};
thread_local Now now;

void remember(const char* name, bool recorded) {
  const char* around = now.depth > 0 && now.names[0] != name ? now.names[0] : nullptr;
  std::snprintf(now.last.data(), now.last.size(), "%s%s%s%s", around ? around : "", around ? ", " : "",
                recorded ? "the recorded " : "", name);
  now.last_was_recorded = recorded;
}

std::string place() {
  std::string out;
  if (now.rank >= 0) out += cat(" on rank ", now.rank);
  const std::size_t known = std::min(now.depth, now.names.size());
  for (std::size_t i = 0; i < known; ++i) out += cat(i == 0 ? " in " : ", ", now.names[i]);
  return out;
}

// Of work that ran, not of the call that reports it.
bool is_fault(cudaError_t status) {
  static constexpr cudaError_t faults[] = {
      cudaErrorIllegalAddress,      cudaErrorLaunchFailure,       cudaErrorLaunchTimeout,
      cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
      cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorAssert,
      cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, cudaErrorUnknown};
  return std::find(std::begin(faults), std::end(faults), status) != std::end(faults);
}

}  // namespace

void set_rank(int rank) { now.rank = rank; }

void push_label(const char* name) {
  if (now.depth < now.names.size()) now.names[now.depth] = name;
  ++now.depth;
  nvtxRangePushA(name);
  if (now.listener) now.listener->label_pushed(name);
}

void pop_label() {
  if (now.depth > 1) remember(now.names[std::min(now.depth, now.names.size()) - 1], false);
  if (now.depth > 0) --now.depth;
  nvtxRangePop();
  if (now.listener) now.listener->label_popped();
}

void set_label_listener(LabelListener* listener) { now.listener = listener; }

void note_replay(const std::string& recording) { remember(recording.c_str(), true); }

std::string outermost_label() { return now.depth > 0 ? now.names[0] : ""; }

void set_flight_recorder(const FlightRecorder* flight_recorder) { now.flight_recorder = flight_recorder; }

std::string describe_failure(const char* call, const std::string& why) { return cat(call, place(), ": ", why); }

std::string describe_failure(const char* call, cudaError_t status) {
  const std::string words = cat(cudaGetErrorName(status), " (", cudaGetErrorString(status), ")");
  if (!is_fault(status)) return describe_failure(call, words);
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  const bool exact = blocking && std::strcmp(blocking, "1") == 0 && !now.last_was_recorded;
  if (exact) return describe_failure(call, words);
  const std::string out = describe_failure(call, words) + "; ";
  const auto place = now.flight_recorder ? now.flight_recorder->place() : std::nullopt;
  if (place)
    return cat(out, "the GPU was at ", place->text, place->exact ? "" : ". cuda.breadcrumbs = on names the operation",
               place->exact ? ". cuda.graph = off with CUDA_LAUNCH_BLOCKING=1 in the environment names the call" : "");
  return cat(out, "the fault lies in what was enqueued", now.last[0] ? cat(", at the latest ", now.last.data()) : "",
             ". cuda.graph = off with CUDA_LAUNCH_BLOCKING=1 in the environment names the operation");
}

}  // namespace millrace::cuda::error_context
