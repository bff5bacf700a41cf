#include "cuda/runtime/captured_step.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <utility>

#include "cuda/errors/check.hpp"
#include "cuda/runtime/device.hpp"
#include "millrace/base/log.hpp"

namespace millrace::cuda {
namespace {

// Calls the step's function; its operations leave breadcrumbs under the number that the flight recorder gave the step.
void call_with_breadcrumbs(CudaDevice& device, std::size_t number, FlightRecorder::Launch launch,
                           const std::function<void()>& step) {
  FlightRecorder::Recording recording(device.flight_recorder(), number, launch);
  step();
  recording.end();
}

class GraphStep : public CapturedStep {
 public:
  GraphStep(CudaDevice& device, const std::string& key, std::function<void()> step)
      : device_(device), key_(key), step_(std::move(step)), number_(device.flight_recorder().add(key)) {}
  ~GraphStep() override {
    if (executable_) cudaGraphExecDestroy(executable_);
  }
  void run() override {
    if (!warm_ || failed_ || !device_.graphs_enabled()) {
      const std::uint64_t before = collectives_begun();
      run_eagerly();
      communicates_ = collectives_begun() != before;
      warm_ = true;
      return;
    }
    if (!executable_ && !capture_everywhere()) {
      failed_ = true;
      return run_eagerly();
    }
    device_.flight_recorder().begin_run(error_context::outermost_label());
    MR_CUDA(cudaGraphLaunch(executable_, device_.stream(Stream::compute)));
    error_context::note_replay(key_);
  }

 private:
  void run_eagerly() {
    device_.flight_recorder().begin_run(error_context::outermost_label());
    call_with_breadcrumbs(device_, number_, FlightRecorder::Launch::one_by_one, step_);
  }
  std::uint64_t collectives_begun() const {
    const CapturedCollectives& collectives = device_.captured_collectives();
    return collectives.begun ? collectives.begun() : 0;
  }

  bool capture_everywhere() {
    std::string problem;
    try {
      capture();
    } catch (const Error& error) {
      problem = error.what();
      (void)cudaGetLastError();  // the next launch would report it otherwise
    }
    CapturedCollectives::Outcome outcome{problem, device_.rank()};
    const auto& agree = device_.captured_collectives().agree;
    if (communicates_) outcome = agree(problem);
    if (outcome.problem.empty()) return true;
    if (outcome.rank == device_.rank())
      log::local(
          fmt::format("warning: '{}' cannot be captured as a CUDA graph ({}). Its operations are launched one by one, "
                      "which is slower. cuda.graph = off does so from the start",
                      key_, problem));
    if (executable_) cudaGraphExecDestroy(std::exchange(executable_, nullptr));
    const std::string what = fmt::format("capture of '{}' failed on rank {}: {}", key_, outcome.rank, outcome.problem);
    // The ranks must go on alike where they communicate. A step without communication is this rank's own affair.
    if (communicates_ || !agree)
      device_.disable_graphs(what);
    else
      device_.note_failed_capture(what);
    return false;
  }

  void capture() {
    const StreamHandle stream = device_.stream(Stream::compute);
    cudaGraph_t graph = nullptr;
    MR_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      call_with_breadcrumbs(device_, number_, FlightRecorder::Launch::as_graph, step_);
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
    if (captured != cudaSuccess) check(captured, ("capture of '" + key_ + "'").c_str());
    // Node priorities: without them the kernels of the comm stream would lose their priority over those that they
    // overlap with.
    const cudaError_t instantiated = cudaGraphInstantiate(&executable_, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    check(instantiated, ("instantiation of '" + key_ + "'").c_str());
    MR_CUDA(cudaGraphUpload(executable_, stream));
  }

  CudaDevice& device_;
  std::string key_;
  std::function<void()> step_;
  std::size_t number_;  // of the step in the flight recorder
  cudaGraphExec_t executable_ = nullptr;
  bool warm_ = false;          // the first run is done
  bool communicates_ = false;  // the step contains collectives
  bool failed_ = false;        // it cannot be captured
};

class EagerStep : public CapturedStep {
 public:
  EagerStep(CudaDevice& device, const std::string& key, std::function<void()> step)
      : device_(device), number_(device.flight_recorder().add(key)), step_(std::move(step)) {}
  void run() override {
    device_.flight_recorder().begin_run(error_context::outermost_label());
    call_with_breadcrumbs(device_, number_, FlightRecorder::Launch::one_by_one, step_);
  }

 private:
  CudaDevice& device_;
  std::size_t number_;
  std::function<void()> step_;
};

}  // namespace

std::unique_ptr<CapturedStep> make_graph_step(CudaDevice& device, const std::string& key, std::function<void()> step) {
  return std::make_unique<GraphStep>(device, key, std::move(step));
}

std::unique_ptr<CapturedStep> make_eager_step(CudaDevice& device, const std::string& key, std::function<void()> step) {
  return std::make_unique<EagerStep>(device, key, std::move(step));
}

}  // namespace millrace::cuda
