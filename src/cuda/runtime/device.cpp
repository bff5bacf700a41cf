#include "cuda/runtime/device.hpp"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "cuda/runtime/check.hpp"
#include "cuda/runtime/record_breadcrumb.hpp"
#include "millrace/base/units.hpp"

namespace millrace::cuda {
namespace {

constexpr int oldest_capability = 80;  // what the kernels are compiled for, see cmake/cuda.cmake

// Sleeps from a short spin on, so that ranks waiting for GPUs leave the cores to the loader's workers.
void wait_until_done(double timeout_seconds, const std::string& what, const std::function<cudaError_t()>& query) {
  const auto began = std::chrono::steady_clock::now();
  for (int round = 0;; ++round) {
    const cudaError_t status = query();
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check(status, what.c_str());
    (void)cudaGetLastError();  // not ready counts as an error that a later call would find
    if (round < 64) continue;
    std::this_thread::sleep_for(std::chrono::microseconds(round < 1000 ? 20 : 200));
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() > timeout_seconds)
      fail(Exit::comm, "the GPU did not finish its work within ", format_seconds(timeout_seconds), " (", what,
           "). a rank is late or gone, or comm.timeout is too short");
  }
}

class CudaEvent : public Event {
 public:
  CudaEvent(CudaDevice& device, double timeout) : device_(device), timeout_(timeout) {
    MR_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  // In a capture as nodes of their own: else they would be nothing but edges of the graph.
  void record(Stream lane) override {
    MR_CUDA(cudaEventRecordWithFlags(event_, device_.stream(lane),
                                     device_.capturing(lane) ? cudaEventRecordExternal : cudaEventRecordDefault));
  }
  void wait(Stream lane) override {
    MR_CUDA(cudaStreamWaitEvent(device_.stream(lane), event_,
                                device_.capturing(lane) ? cudaEventWaitExternal : cudaEventWaitDefault));
  }
  void synchronize() override {
    wait_until_done(timeout_, "an event of the step", [this] { return cudaEventQuery(event_); });
  }

 private:
  CudaDevice& device_;
  double timeout_;
  cudaEvent_t event_ = nullptr;
};

class CudaMarks : public Timestamps {
 public:
  CudaMarks(CudaDevice& device, int count, double timeout)
      : device_(device), timeout_(timeout), events_(std::size_t(count)) {
    for (auto& event : events_) MR_CUDA(cudaEventCreate(&event));
  }
  ~CudaMarks() override {
    for (auto& event : events_) cudaEventDestroy(event);
  }
  void record(Stream lane, int index) override {  // external: a graph's own events cannot be read by the host
    MR_CUDA(cudaEventRecordWithFlags(events_.at(std::size_t(index)), device_.stream(lane),
                                     device_.capturing() ? cudaEventRecordExternal : cudaEventRecordDefault));
  }
  void read(std::span<double> out) override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      wait_until_done(timeout_, "a time mark of the step", [&] { return cudaEventQuery(events_.at(i)); });
      float milliseconds = 0;
      MR_CUDA(cudaEventElapsedTime(&milliseconds, events_[0], events_[i]));
      out[i] = double(milliseconds) * 1e-3;
    }
  }

 private:
  CudaDevice& device_;
  double timeout_;
  std::vector<cudaEvent_t> events_;
};

// Launched one by one the first time, when libraries load code and take memory; captured the second time.
class Graph : public CapturedStep {
 public:
  Graph(CudaDevice& device, std::string key, std::function<void()> step)
      : device_(device), key_(std::move(key)), step_(std::move(step)), number_(device.flight_recorder().add(key_)) {}
  ~Graph() override {
    if (executable_) cudaGraphExecDestroy(executable_);
  }
  void run() override {
    if (!warm_) {
      device_.flight_recorder().begin_run(error_context::outermost_label());
      call_step();
      warm_ = true;
      return;
    }
    if (!executable_) capture();
    device_.flight_recorder().begin_run(error_context::outermost_label());
    MR_CUDA(cudaGraphLaunch(executable_, device_.stream(Stream::compute)));
    error_context::note_replay(key_);
  }

 private:
  void call_step() {
    FlightRecorder::Recording recording(device_.flight_recorder(), number_);
    step_();
    recording.end();
  }
  void capture() {
    const StreamHandle stream = device_.stream(Stream::compute);
    cudaGraph_t graph = nullptr;
    MR_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      call_step();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (ended != cudaSuccess) check(ended, ("recording of '" + key_ + "'").c_str());
    // Or the comm lane's kernels would lose their priority over those that they overlap with.
    const cudaError_t made = cudaGraphInstantiate(&executable_, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    check(made, ("instantiation of '" + key_ + "'").c_str());
    MR_CUDA(cudaGraphUpload(executable_, stream));
  }

  CudaDevice& device_;
  std::string key_;
  std::function<void()> step_;
  std::size_t number_;  // in the device's trail
  cudaGraphExec_t executable_ = nullptr;
  bool warm_ = false;
};

class EagerStep : public CapturedStep {
 public:
  EagerStep(FlightRecorder& flight_recorder, const std::string& key, std::function<void()> step)
      : flight_recorder_(flight_recorder), number_(flight_recorder.add(key)), step_(std::move(step)) {}
  void run() override {
    flight_recorder_.begin_run(error_context::outermost_label());
    FlightRecorder::Recording recording(flight_recorder_, number_);
    step_();
    recording.end();
  }

 private:
  FlightRecorder& flight_recorder_;
  std::size_t number_;
  std::function<void()> step_;
};

// Pinned memory on the GPU's own NUMA node where the kernel names it; the policy of the thread is put back afterwards.
class NumaNodeGuard {
 public:
  explicit NumaNodeGuard(std::string bus_id) {
    for (char& c : bus_id) c = char(std::tolower(c));
    int node = -1;
    if (!(std::ifstream("/sys/bus/pci/devices/" + bus_id + "/numa_node") >> node) || node < 0 || node >= 64) return;
    if (syscall(SYS_get_mempolicy, &mode_, nodes_.data(), most_nodes, nullptr, 0ul) != 0) return;
    const unsigned long mask = 1ul << node;
    set_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 65ul) == 0;
  }
  ~NumaNodeGuard() {
    if (set_) syscall(SYS_set_mempolicy, mode_, nodes_.data(), most_nodes + 1);
  }
  NumaNodeGuard(const NumaNodeGuard&) = delete;

 private:
  static constexpr unsigned long most_nodes = 1024;  // the kernel's own limit
  std::array<unsigned long, most_nodes / 64> nodes_{};
  int mode_ = MPOL_DEFAULT;
  bool set_ = false;
};

}  // namespace

std::string explain_no_gpu(cudaError_t status, int driver, int runtime, const char* visible) {
  const auto version = [](int v) { return cat(v / 1000, ".", v % 1000 / 10); };
  if (status == cudaErrorInsufficientDriver && driver > 0)
    return cat("the NVIDIA driver serves CUDA ", version(driver), ", this millrace needs ", version(runtime),
               ". update the driver");
  if (status == cudaErrorInsufficientDriver)
    return "no NVIDIA driver on this machine. set run.device = cpu (or auto), or start on a node with GPUs";
  const std::string words = status == cudaSuccess ? "none is listed" : cudaGetErrorString(status);
  if (visible) return cat("CUDA_VISIBLE_DEVICES = '", visible, "' leaves no GPU (", words, "). name one that is there");
  return cat("no GPU (", words, "). ask the scheduler for one, or set run.device = cpu");
}

std::string explain_old_gpu(const std::string& name, int major, int minor) {
  if (major * 10 + minor >= oldest_capability) return "";
  return cat(name, " has compute capability ", major, ".", minor, ", this millrace needs ", oldest_capability / 10, ".",
             oldest_capability % 10, ". set run.device = cpu, or use a newer GPU");
}

// Page-locked, and the GPU writes to it; null where recordings leave no marks.
CudaDevice::Breadcrumb CudaDevice::allocate_breadcrumb(int ordinal, const DeviceOptions& options) {
  void* memory = nullptr;
  if (options.breadcrumbs != FlightRecorder::Detail::none) {
    MR_CUDA(cudaSetDevice(ordinal));
    MR_CUDA(cudaHostAlloc(&memory, sizeof(FlightRecorder::Breadcrumb), cudaHostAllocMapped | cudaHostAllocPortable));
    new (memory) FlightRecorder::Breadcrumb;
  }
  return {static_cast<FlightRecorder::Breadcrumb*>(memory),
          [](FlightRecorder::Breadcrumb* words) { cudaFreeHost(words); }};
}

CudaDevice::CudaDevice(int ordinal, const DeviceOptions& options)
    : options_(options),
      ordinal_(ordinal),
      breadcrumb_(allocate_breadcrumb(ordinal, options)),
      flight_recorder_(options.breadcrumbs, breadcrumb_.get(), [this](std::uint64_t place, bool begins) {
        record_breadcrumb({stream(Stream::compute)}, &breadcrumb_->place, place, begins ? &breadcrumb_->runs : nullptr);
      }) {
  error_context::set_rank(options.rank);
  MR_CUDA(cudaSetDevice(ordinal_));
  cudaDeviceProp properties{};
  MR_CUDA(cudaGetDeviceProperties(&properties, ordinal_));
  name_ = properties.name;
  mig_instance_ = mig_instance_of(name_, properties.uuid.bytes, std::getenv("CUDA_VISIBLE_DEVICES"));
  capability_ = properties.major * 10 + properties.minor;
  multiprocessors_ = properties.multiProcessorCount;
  const std::string too_old = explain_old_gpu(name_, properties.major, properties.minor);
  if (!too_old.empty()) fail(Exit::config, too_old);
  int lowest = 0, highest = 0;
  MR_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  for (const Stream lane : {Stream::copy, Stream::compute, Stream::comm})
    MR_CUDA(cudaStreamCreateWithPriority(&streams_[std::size_t(lane)], cudaStreamNonBlocking,
                                         lane == Stream::comm ? highest : lowest));
  std::size_t free = 0, total = 0;
  MR_CUDA(cudaMemGetInfo(&free, &total));
  memory_bytes_ = free;
  total_bytes_ = total;
  error_context::set_flight_recorder(&flight_recorder_);
}

CudaDevice::~CudaDevice() {
  error_context::set_flight_recorder(nullptr);
  for (const StreamHandle stream : streams_)
    if (stream) cudaStreamDestroy(stream);
}

bool CudaDevice::capturing(Stream lane) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  MR_CUDA(cudaStreamIsCapturing(stream(lane), &status));
  return status == cudaStreamCaptureStatusActive;
}

void CudaDevice::set_memory_share(int ranks) {
  std::size_t free = 0, total = 0;
  MR_CUDA(cudaMemGetInfo(&free, &total));
  const std::size_t reserve = std::min(total / 16, std::size_t(512) << 20);
  memory_bytes_ = std::min(memory_bytes_, free > reserve ? free - reserve : 0) / std::size_t(ranks);
}

std::string CudaDevice::bus_id() const {
  char text[32] = "";
  MR_CUDA(cudaDeviceGetPCIBusId(text, sizeof text, ordinal_));
  return text;
}

std::string CudaDevice::describe() const {
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime), cudaDriverGetVersion(&driver);
  return cat(name_, " (", ordinal_, "), ", multiprocessors_, " multiprocessors, ", format_bytes(total_bytes_),
             ", compute capability ", capability_ / 10, ".", capability_ % 10, ", CUDA ", runtime / 1000, ".",
             runtime % 1000 / 10, ", driver for ", driver / 1000, ".", driver % 1000 / 10);
}

bool CudaDevice::read_health(DeviceHealth& health) {
  std::call_once(nvml_tried_, [&] { nvml_ = Nvml::open(bus_id(), nullptr); });
  if (nvml_) nvml_->read(health);
  return nvml_ != nullptr;
}

void* CudaDevice::allocate(MemoryKind kind, std::size_t bytes) {
  const std::size_t padded = (bytes + 4095) / 4096 * 4096;
  void* memory = nullptr;
  if (kind == MemoryKind::pinned) {
    const NumaNodeGuard near(bus_id());
    const cudaError_t status = cudaHostAlloc(&memory, padded, cudaHostAllocPortable);
    if (status != cudaSuccess)
      fail(Exit::config, "no ", format_bytes(bytes), " of pinned host memory (", cudaGetErrorString(status),
           "). lower data.prefetch or train.micro_batch");
    std::memset(memory, 0, padded);
    return memory;
  }
  const cudaError_t status = cudaMalloc(&memory, padded);
  if (status != cudaSuccess) {
    std::size_t free = 0, total = 0;
    cudaGetLastError();
    cudaMemGetInfo(&free, &total);
    fail(Exit::config, name_, " has ", format_bytes(free), " free, ", format_bytes(bytes), " are needed (",
         cudaGetErrorString(status), "). lower train.micro_batch");
  }
  MR_CUDA(cudaMemsetAsync(memory, 0, padded, stream(Stream::compute)));
  MR_CUDA(cudaStreamSynchronize(stream(Stream::compute)));
  return memory;
}

void CudaDevice::release(MemoryKind kind, void* memory, std::size_t) noexcept {
  kind == MemoryKind::pinned ? cudaFreeHost(memory) : cudaFree(memory);
}

void CudaDevice::copy_to_device(Stream lane, void* device, const void* host, std::size_t bytes) {
  if (bytes) MR_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream(lane)));
}
void CudaDevice::copy_to_host(Stream lane, void* host, const void* device, std::size_t bytes) {
  if (bytes) MR_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream(lane)));
}
void CudaDevice::fill_zero(Stream lane, void* device, std::size_t bytes) {
  if (bytes) MR_CUDA(cudaMemsetAsync(device, 0, bytes, stream(lane)));
}

std::unique_ptr<Event> CudaDevice::make_event() { return std::make_unique<CudaEvent>(*this, options_.timeout_seconds); }
std::unique_ptr<Timestamps> CudaDevice::make_timestamps(int count) {
  return std::make_unique<CudaMarks>(*this, count, options_.timeout_seconds);
}
std::unique_ptr<CapturedStep> CudaDevice::record(const std::string& key, std::function<void()> step) {
  if (!options_.graph) return std::make_unique<EagerStep>(flight_recorder_, key, std::move(step));
  return std::make_unique<Graph>(*this, key, std::move(step));
}

void CudaDevice::synchronize() {
  for (const Stream lane : {Stream::copy, Stream::compute, Stream::comm})
    wait_until_done(options_.timeout_seconds, "all work", [&] { return cudaStreamQuery(stream(lane)); });
}

}  // namespace millrace::cuda
