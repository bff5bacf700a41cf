#include "cuda/runtime/device.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "cuda/errors/check.hpp"
#include "cuda/runtime/captured_step.hpp"
#include "cuda/runtime/copy_small.hpp"
#include "cuda/runtime/events.hpp"
#include "cuda/runtime/gpu_topology.hpp"
#include "millrace/base/units.hpp"

namespace millrace::cuda {
namespace {

constexpr std::size_t buffer_alignment = 4096;  // of Buffer; CUDA guarantees 256 bytes, and less for page-locked memory
constexpr int min_capability = 80;              // the oldest architecture that cmake/cuda.cmake compiles kernels for

// While this object lives, the thread allocates memory on the NUMA node of the GPU, if Linux knows that node. The
// destructor restores the thread's memory policy.
class NumaNodeGuard {
 public:
  explicit NumaNodeGuard(std::string bus_id) {
    for (char& c : bus_id) c = char(std::tolower(c));
    int node = -1;
    if (!(std::ifstream("/sys/bus/pci/devices/" + bus_id + "/numa_node") >> node) || node < 0 || node >= 64) return;
    if (syscall(SYS_get_mempolicy, &mode_, nodes_.data(), max_nodes, nullptr, 0ul) != 0) return;
    const unsigned long mask = 1ul << node;
    set_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 65ul) == 0;
  }
  ~NumaNodeGuard() {
    if (set_) syscall(SYS_set_mempolicy, mode_, nodes_.data(), max_nodes + 1);
  }
  NumaNodeGuard(const NumaNodeGuard&) = delete;

 private:
  static constexpr unsigned long max_nodes = 1024;  // the limit of the Linux kernel
  std::array<unsigned long, max_nodes / 64> nodes_{};
  int mode_ = MPOL_DEFAULT;
  bool set_ = false;
};

}  // namespace

std::string explain_no_gpu(cudaError_t status, int driver, int runtime, const char* visible) {
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  if (status == cudaErrorInsufficientDriver && driver > 0)
    return fmt::format(
        "the NVIDIA driver supports CUDA {}, but millrace needs {}. update the driver, or install NVIDIA's package "
        "cuda-compat-{}-{} (on GPUs for data centers)",
        version(driver), version(runtime), runtime / 1000, runtime % 1000 / 10);
  if (status == cudaErrorInsufficientDriver)
    return "no NVIDIA driver on this machine. set run.device = cpu (or auto), or start on a node with GPUs";
  const std::string reason = status == cudaSuccess ? "CUDA lists none" : cudaGetErrorString(status);
  if (visible)
    return fmt::format("CUDA_VISIBLE_DEVICES = '{}' selects no GPU ({}). select a GPU that exists", visible, reason);
  return fmt::format("no GPU ({}). ask the scheduler for one, or set run.device = cpu", reason);
}

std::string explain_old_gpu(const std::string& name, int major, int minor) {
  if (major * 10 + minor >= min_capability) return "";
  return fmt::format(
      "{} has compute capability {}.{}, but millrace needs {}.{}. set run.device = cpu, or use a newer GPU", name,
      major, minor, min_capability / 10, min_capability % 10);
}

CudaDevice::CudaDevice(int ordinal, const DeviceOptions& options)
    : options_(options),
      graphs_(options.graph ? "on" : "off"),
      ordinal_(ordinal),
      breadcrumbs_(ordinal, options.breadcrumbs != FlightRecorder::Detail::none),
      flight_recorder_(options.breadcrumbs, breadcrumbs_.breadcrumb(),
                       [this](std::uint64_t place, FlightRecorder::Write what) {
                         breadcrumbs_.write(stream(Stream::compute), place, what);
                       }) {
  error_context::set_rank(options.rank);
  MR_CUDA(cudaSetDevice(ordinal_));
  cudaDeviceProp properties{};
  MR_CUDA(cudaGetDeviceProperties(&properties, ordinal_));
  name_ = properties.name;
  mig_instance_ = mig_instance_of(name_, properties.uuid.bytes, std::getenv("CUDA_VISIBLE_DEVICES"));
  capability_ = properties.major * 10 + properties.minor;
  shared_bytes_ = std::int64_t(properties.sharedMemPerMultiprocessor);
  multiprocessors_ = properties.multiProcessorCount;
  const std::string too_old = explain_old_gpu(name_, properties.major, properties.minor);
  if (!too_old.empty()) fail(Exit::config, "{}", too_old);
  int lowest = 0, highest = 0;
  MR_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  for (const Stream s : {Stream::copy, Stream::compute, Stream::comm})
    MR_CUDA(cudaStreamCreateWithPriority(&streams_[std::size_t(s)], cudaStreamNonBlocking,
                                         s == Stream::comm ? highest : lowest));
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

bool CudaDevice::capturing(Stream s) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  MR_CUDA(cudaStreamIsCapturing(stream(s), &status));
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
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  return fmt::format("{} ({}), {} multiprocessors, {}, compute capability {}.{}, CUDA {}.{}, driver for {}.{}", name_,
                     ordinal_, multiprocessors_, format_bytes(total_bytes_), capability_ / 10, capability_ % 10,
                     runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
}

bool CudaDevice::read_health(DeviceHealth& health) {
  std::call_once(nvml_tried_, [&] { nvml_ = Nvml::open(bus_id(), nullptr); });
  if (nvml_) nvml_->read(health);
  return nvml_ != nullptr;
}

void* CudaDevice::allocate(MemoryKind kind, std::size_t bytes) {
  const std::size_t padded = (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment,
                    allocated = padded + buffer_alignment;
  void* memory = nullptr;
  if (kind == MemoryKind::pinned) {
    const NumaNodeGuard near(bus_id());
    const cudaError_t status = cudaHostAlloc(&memory, allocated, cudaHostAllocPortable);
    if (status != cudaSuccess) {
      (void)cudaGetLastError();  // tune goes on, and a library would report the error as its own
      fail(Exit::config, "cannot allocate {} of pinned host memory ({}). lower data.prefetch or train.micro_batch",
           format_bytes(bytes), cudaGetErrorString(status));
    }
    memory = aligned(memory);
    std::memset(memory, 0, padded);
    return memory;
  }
  const cudaError_t status = cudaMalloc(&memory, allocated);
  if (status != cudaSuccess) {
    std::size_t free = 0, total = 0;
    cudaGetLastError();
    cudaMemGetInfo(&free, &total);
    fail(Exit::config, "{} has {} free, but {} are needed ({}). lower train.micro_batch", name_, format_bytes(free),
         format_bytes(bytes), cudaGetErrorString(status));
  }
  memory = aligned(memory);
  MR_CUDA(cudaMemsetAsync(memory, 0, padded, stream(Stream::compute)));
  MR_CUDA(cudaStreamSynchronize(stream(Stream::compute)));
  return memory;
}

void* CudaDevice::aligned(void* allocation) {
  const auto address = reinterpret_cast<std::uintptr_t>(allocation);
  void* const out = reinterpret_cast<void*>((address + buffer_alignment - 1) / buffer_alignment * buffer_alignment);
  const std::lock_guard hold(allocations_mutex_);
  allocations_[out] = allocation;
  return out;
}

void CudaDevice::release(MemoryKind kind, void* memory, std::size_t) noexcept {
  {
    const std::lock_guard hold(allocations_mutex_);
    if (const auto found = allocations_.find(memory); found != allocations_.end()) {
      memory = found->second;
      allocations_.erase(found);
    }
  }
  kind == MemoryKind::pinned ? cudaFreeHost(memory) : cudaFree(memory);
}

void CudaDevice::copy_to_device(Stream s, void* device, const void* host, std::size_t bytes) {
  if (bytes) MR_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream(s)));
}
void CudaDevice::copy_to_host(Stream s, void* host, const void* device, std::size_t bytes) {
  if (bytes) MR_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream(s)));
}
void CudaDevice::copy_small(Stream s, void* to, const void* from, std::size_t bytes) {
  for (const void* side : {static_cast<const void*>(to), from}) {
    cudaPointerAttributes attributes{};
    MR_CUDA(cudaPointerGetAttributes(&attributes, side));
    MR_CHECK(attributes.type != cudaMemoryTypeUnregistered, "a kernel cannot reach pageable memory");
  }
  cuda::copy_small({stream(s)}, to, from, bytes);
}
void CudaDevice::fill_zero(Stream s, void* device, std::size_t bytes) {
  if (bytes) MR_CUDA(cudaMemsetAsync(device, 0, bytes, stream(s)));
}

std::unique_ptr<Event> CudaDevice::make_event() { return make_cuda_event(*this, options_.timeout_seconds); }
std::unique_ptr<Timestamps> CudaDevice::make_timestamps(int count) {
  return make_cuda_timestamps(*this, count, options_.timeout_seconds);
}
std::unique_ptr<CapturedStep> CudaDevice::capture(const std::string& key, std::function<void()> step) {
  return options_.graph ? make_graph_step(*this, key, std::move(step)) : make_eager_step(*this, key, std::move(step));
}

void CudaDevice::disable_graphs(const std::string& why) {
  if (options_.graph) graphs_ = "off: " + why;
  options_.graph = false;
}

void CudaDevice::note_failed_capture(const std::string& what) {
  if (graphs_ == "on") graphs_ = "on, but the " + what;
}

void CudaDevice::synchronize() {
  for (const Stream s : {Stream::copy, Stream::compute, Stream::comm})
    wait_until_done(options_.timeout_seconds, "all work", [&] { return cudaStreamQuery(stream(s)); });
}

}  // namespace millrace::cuda
