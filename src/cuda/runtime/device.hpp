// CudaDevice: one GPU of this rank. Lanes are streams, recorded steps are graphs, waits of the host have a deadline.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cuda/runtime/block.hpp"
#include "cuda/runtime/cupti.hpp"
#include "cuda/runtime/error_context.hpp"
#include "cuda/runtime/flight_recorder.hpp"
#include "cuda/runtime/nvml.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/device/device.hpp"

namespace millrace::cuda {

struct DeviceOptions {
  bool graph = true;             // false: recorded steps are launched one by one, for debugging
  int graph_micro_batches = 1;   // micro-batches of a graph, at most
  double timeout_seconds = 600;  // a wait of the host longer than this is an Error(comm)
  int rank = 0;                  // for messages
  FlightRecorder::Detail breadcrumbs = FlightRecorder::Detail::some;  // what recorded steps tell of where they failed
};

// Where a rank computes: its host, its GPU's bus id, and how many GPUs it sees. Of a GPU that is cut by MIG, a process
// sees one slice alone, whatever is there; slices of a GPU have its bus id.
struct GpuAssignment {
  std::string host, bus_id;
  int visible = 1;
  std::string mig_instance = {};  // which slice, without spaces; empty: a whole GPU
};
// How the ranks' GPUs lie, from the seats of all of them.
struct GpuTopology {
  int ranks_per_gpu = 1;               // ranks on this rank's GPU, or slice of one
  int max_ranks_per_gpu = 1;           // of all GPUs and slices
  int max_ranks_per_physical_gpu = 1;  // of all GPUs, their slices together; above 1: NCCL does not allow it
  bool uses_mig = false;               // a GPU of any rank
  // A host whose ranks see one GPU each, not the same one, or empty: the scheduler bound them, and NCCL cannot use the
  // links between the GPUs.
  std::string host_with_hidden_gpus;
};
GpuTopology gpu_topology_of(const std::vector<GpuAssignment>&, std::size_t rank);
// What is to be said of it, nothing where all is well; and why NCCL cannot sum, or empty.
std::vector<std::string> topology_warnings(const GpuTopology&);
std::string why_not_nccl(const GpuTopology&);

// Which slice a process computes on, by the device's name, its unique identifier and CUDA_VISIBLE_DEVICES (or null).
// Empty: on a whole GPU.
std::string mig_instance_of(const std::string& name, std::span<const char> uuid, const char* visible);
// Of several slices that CUDA_VISIBLE_DEVICES lists, CUDA shows the first to everyone: the one for this rank of the
// host instead, in turn. Empty where there is nothing to choose.
std::string mig_instance_for(const char* visible, int local_rank);

// Why a process has no GPU, with the mend. Versions as CUDA gives them, 12040 for 12.4; driver 0: there is none.
// visible: CUDA_VISIBLE_DEVICES, or null.
std::string explain_no_gpu(cudaError_t, int driver, int runtime, const char* visible);
// Why a GPU cannot be used, or empty.
std::string explain_old_gpu(const std::string& name, int major, int minor);

class CudaDevice : public Device {
 public:
  CudaDevice(int ordinal, const DeviceOptions&);  // Error(config): no such GPU, too old, driver too old
  ~CudaDevice() override;
  StreamHandle stream(Stream lane) const { return streams_[std::size_t(lane)]; }
  int ordinal() const { return ordinal_; }
  int multiprocessors() const { return multiprocessors_; }
  bool capturing(Stream = Stream::compute) const;  // is the lane being recorded now?
  std::string bus_id() const;                      // "0000:1b:00.0": the same for ranks that share the GPU
  const std::string& mig_instance() const { return mig_instance_; }  // see slice_of()
  // Looks again what memory is free, now that libraries have taken theirs, for this one of so many ranks. Some is left
  // for what comes later: code that is loaded when a kernel is first launched, and what graphs take for themselves.
  void set_memory_share(int ranks);
  void disable_graphs() { options_.graph = false; }  // a collective needs the host in the middle of a step
  FlightRecorder& flight_recorder() { return flight_recorder_; }

  std::string name() const override { return name_; }
  std::string describe() const override;
  std::size_t memory_bytes() const override { return memory_bytes_; }
  void* allocate(MemoryKind, std::size_t bytes) override;
  void release(MemoryKind, void*, std::size_t) noexcept override;
  void copy_to_device(Stream, void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(Stream, void* host, const void* device, std::size_t bytes) override;
  void fill_zero(Stream, void* device, std::size_t bytes) override;
  bool shares_host_memory() const override { return false; }
  std::unique_ptr<Event> make_event() override;
  std::unique_ptr<Timestamps> make_timestamps(int count) override;
  std::unique_ptr<CapturedStep> record(const std::string& key, std::function<void()> step) override;
  // Without graphs too: the same work in the same order.
  int max_captured_micro_batches() const override { return options_.graph_micro_batches; }
  void synchronize() override;
  void enter(const char* what) override { error_context::push_label(what), flight_recorder_.enter_operation(what); }
  void leave() override { error_context::pop_label(); }
  std::unique_ptr<ActivityTracer> make_activity_tracer(std::string* why_not) override {
    return make_cupti_tracer(why_not);
  }
  bool read_health(DeviceHealth&) override;

 private:
  using Breadcrumb = std::unique_ptr<FlightRecorder::Breadcrumb, void (*)(FlightRecorder::Breadcrumb*)>;
  static Breadcrumb allocate_breadcrumb(int ordinal, const DeviceOptions&);
  DeviceOptions options_;
  int ordinal_ = 0, multiprocessors_ = 0, capability_ = 0;
  std::string name_, mig_instance_;
  std::size_t memory_bytes_ = 0, total_bytes_ = 0;
  std::array<StreamHandle, 3> streams_{};
  Breadcrumb breadcrumb_;
  FlightRecorder flight_recorder_;
  std::once_flag nvml_tried_;
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace millrace::cuda
