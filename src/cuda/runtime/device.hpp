// CudaDevice: the GPU of this rank. A Stream is a cudaStream_t, a captured step is a CUDA graph, and every wait of the
// host has a timeout.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cuda/block/block.hpp"
#include "cuda/errors/error_context.hpp"
#include "cuda/errors/flight_recorder.hpp"
#include "cuda/runtime/breadcrumb_writer.hpp"
#include "cuda/runtime/cupti.hpp"
#include "cuda/runtime/nvml.hpp"
#include "millrace/device/device.hpp"

namespace millrace::cuda {

struct DeviceOptions {
  bool graph = true;             // false: captured steps launch their kernels one by one, for debugging
  int graph_micro_batches = 1;   // the largest number of micro-batches in one graph
  double timeout_seconds = 600;  // the host throws Error(comm) if it would wait longer for the GPU
  int rank = 0;                  // named in messages
  FlightRecorder::Detail breadcrumbs = FlightRecorder::Detail::some;  // how exactly a fault in a graph is located
};

// For captures that contain collectives: set by the collective.
struct CapturedCollectives {
  std::function<std::uint64_t()> begun;  // number of operations so far
  // The first rank whose capture failed, and why; the same on all ranks. Each gives why its own failed, or "".
  struct Outcome {
    std::string problem = {};  // "": it worked on all ranks
    int rank = -1;
  };
  std::function<Outcome(const std::string& problem)> agree;
};

// Explains why a process has no GPU, and what to do. Versions are in CUDA's form, 12040 for 12.4; driver 0: no driver
// is installed. visible: the value of CUDA_VISIBLE_DEVICES, or null.
std::string explain_no_gpu(cudaError_t, int driver, int runtime, const char* visible);
// Explains why a GPU is too old for millrace, or returns an empty string.
std::string explain_old_gpu(const std::string& name, int major, int minor);

class CudaDevice : public Device {
 public:
  CudaDevice(int ordinal, const DeviceOptions&);  // Error(config): the GPU or its driver is missing or too old
  ~CudaDevice() override;
  StreamHandle stream(Stream s) const { return streams_[std::size_t(s)]; }
  int ordinal() const { return ordinal_; }
  int multiprocessors() const { return multiprocessors_; }
  std::int64_t shared_bytes() const { return shared_bytes_; }  // of a multiprocessor
  int compute_capability() const { return capability_; }       // 90 for 9.0
  bool capturing(Stream = Stream::compute) const;              // whether the stream is in a capture now
  std::string bus_id() const;                                  // "0000:1b:00.0": the same for ranks that share the GPU
  const std::string& mig_instance() const { return mig_instance_; }  // see mig_instance_of()
  // Sets memory_bytes() to this rank's part of the memory that is free now, after the libraries have allocated theirs.
  // ranks: how many ranks share the GPU. A reserve stays free for code that is loaded at a kernel's first launch, and
  // for the memory of graphs.
  void set_memory_share(int ranks);
  // For a collective that needs the host in the middle of a step, and after a failed capture.
  void disable_graphs(const std::string& why);
  // After the failed capture of one step that no other rank takes part in.
  void note_failed_capture(const std::string& what);
  bool graphs_enabled() const { return options_.graph; }
  std::string graphs() const override { return graphs_; }
  int rank() const { return options_.rank; }
  void set_captured_collectives(CapturedCollectives collectives) { captured_collectives_ = std::move(collectives); }
  const CapturedCollectives& captured_collectives() const { return captured_collectives_; }
  FlightRecorder& flight_recorder() { return flight_recorder_; }

  std::string name() const override { return name_; }
  std::string describe() const override;
  std::size_t memory_bytes() const override { return memory_bytes_; }
  void* allocate(MemoryKind, std::size_t bytes) override;
  void release(MemoryKind, void*, std::size_t) noexcept override;
  void copy_to_device(Stream, void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(Stream, void* host, const void* device, std::size_t bytes) override;
  void copy_small(Stream, void* to, const void* from, std::size_t bytes) override;
  void fill_zero(Stream, void* device, std::size_t bytes) override;
  bool shares_host_memory() const override { return false; }
  std::unique_ptr<Event> make_event() override;
  std::unique_ptr<Timestamps> make_timestamps(int count) override;
  std::unique_ptr<CapturedStep> capture(const std::string& key, std::function<void()> step) override;
  // The same without graphs, so that the work is the same, in the same order.
  int max_captured_micro_batches() const override { return options_.graph_micro_batches; }
  void synchronize() override;
  void push_label(const char* what) override {
    error_context::push_label(what);
    flight_recorder_.enter_operation(what);
  }
  void pop_label() override { error_context::pop_label(); }
  std::unique_ptr<ActivityTracer> make_activity_tracer(std::string* why_not) override {
    return make_cupti_tracer(why_not);
  }
  bool read_health(DeviceHealth&) override;

 private:
  void* aligned(void* allocation);  // notes the allocation for release()
  DeviceOptions options_;
  std::string graphs_;
  int ordinal_ = 0, multiprocessors_ = 0, capability_ = 0;
  std::string name_, mig_instance_;
  std::size_t memory_bytes_ = 0, total_bytes_ = 0;
  std::int64_t shared_bytes_ = 0;
  std::array<StreamHandle, 3> streams_{};
  BreadcrumbWriter breadcrumbs_;
  FlightRecorder flight_recorder_;
  std::mutex allocations_mutex_;
  std::unordered_map<void*, void*> allocations_;  // what CUDA returned, by the aligned address in it
  CapturedCollectives captured_collectives_;
  std::once_flag nvml_tried_;
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace millrace::cuda
