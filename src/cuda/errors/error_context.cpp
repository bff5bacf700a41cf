#include "cuda/errors/error_context.hpp"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "cuda/errors/flight_recorder.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda::error_context {
namespace {

struct ThreadState {
  int rank = -1;  // -1: not set
  LabelListener* listener = nullptr;
  const FlightRecorder* flight_recorder = nullptr;
  std::array<const char*, 8> names{};  // the labels, outermost first; deeper ones are not stored
  std::size_t depth = 0;               // number of labels, stored or not
  std::array<char, 96> last{};         // the work enqueued last; a copy, since a label may be gone before a failure
  bool last_was_captured = false;      // it was the replay of a captured step
};
thread_local ThreadState state;

void remember_last(const char* name, bool captured) {
  const char* outer = state.depth > 0 && state.names[0] != name ? state.names[0] : nullptr;
  const auto end = fmt::format_to_n(state.last.data(), state.last.size() - 1, "{}{}{}{}", outer ? outer : "",
                                    outer ? ", " : "", captured ? "the captured " : "", name);
  *end.out = '\0';
  state.last_was_captured = captured;
}

std::string place() {
  std::string out;
  if (state.rank >= 0) out += fmt::format(" on rank {}", state.rank);
  const std::size_t known = std::min(state.depth, state.names.size());
  for (std::size_t i = 0; i < known; ++i) out += fmt::format("{}{}", i == 0 ? " in " : ", ", state.names[i]);
  return out;
}

// Whether the error comes from work that ran on the GPU, not from the call that reports it.
bool is_fault(cudaError_t status) {
  static constexpr cudaError_t faults[] = {
      cudaErrorIllegalAddress,      cudaErrorLaunchFailure,       cudaErrorLaunchTimeout,
      cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
      cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorAssert,
      cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, cudaErrorUnknown};
  return std::find(std::begin(faults), std::end(faults), status) != std::end(faults);
}

}  // namespace

void set_rank(int rank) { state.rank = rank; }

void push_label(const char* name) {
  if (state.depth < state.names.size()) state.names[state.depth] = name;
  ++state.depth;
  nvtxRangePushA(name);
  if (state.listener) state.listener->label_pushed(name);
}

void pop_label() {
  if (state.depth > 1) remember_last(state.names[std::min(state.depth, state.names.size()) - 1], false);
  if (state.depth > 0) --state.depth;
  nvtxRangePop();
  if (state.listener) state.listener->label_popped();
}

void set_label_listener(LabelListener* listener) { state.listener = listener; }

void note_replay(const std::string& captured_step) { remember_last(captured_step.c_str(), true); }

std::string outermost_label() { return state.depth > 0 ? state.names[0] : ""; }

void set_flight_recorder(const FlightRecorder* flight_recorder) { state.flight_recorder = flight_recorder; }

std::string describe_failure(const char* call, const std::string& why) {
  return fmt::format("{}{}: {}", call, place(), why);
}

std::string describe_failure(const char* call, cudaError_t status) {
  const std::string words = fmt::format("{} ({})", cudaGetErrorName(status), cudaGetErrorString(status));
  if (!is_fault(status)) return describe_failure(call, words);
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  const bool exact = blocking && std::strcmp(blocking, "1") == 0 && !state.last_was_captured;
  if (exact) return describe_failure(call, words);
  const std::string out = describe_failure(call, words) + "; ";
  const auto place = state.flight_recorder ? state.flight_recorder->place() : std::nullopt;
  if (place)
    return fmt::format(
        "{}the GPU was at {}{}{}", out, place->text, place->exact ? "" : ". cuda.breadcrumbs = on shows the operation",
        place->exact ? ". cuda.graph = off with CUDA_LAUNCH_BLOCKING=1 in the environment shows the call" : "");
  return fmt::format(
      "{}the fault is in work that was enqueued earlier{}. cuda.graph = off with CUDA_LAUNCH_BLOCKING=1 in the "
      "environment shows the operation",
      out, state.last[0] ? fmt::format(", at the latest in {}", state.last.data()) : "");
}

}  // namespace millrace::cuda::error_context
