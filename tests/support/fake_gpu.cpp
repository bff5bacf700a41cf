// A fake GPU: it replaces the ExecutionContext of src/cuda in tests, and runs on the host. It behaves like an
// asynchronous device. Its memory is separate from the host's, its work is done as late as possible, and captured steps
// are replayed: the function of a step is not called again. It checks a requirement of NCCL: an all-reduce comes from
// the same captured step on all ranks, or from no captured step on any rank. Operations are the kernels of the CUDA
// backend, with convolutions and matrix multiplications of the CPU backend; or all operations are those of the CPU.
#include "support/fake_gpu.hpp"

#include <fmt/core.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "cpu/common/parallel.hpp"
#include "cuda/errors/flight_recorder.hpp"
#include "cuda/runtime/record_breadcrumb.hpp"
#include "millrace/base/error.hpp"
#include "millrace/compute/execution_context.hpp"
#include "millrace/device/activity.hpp"
#include "support/deferred_device.hpp"
#include "support/host/kernels_backend.hpp"

namespace millrace {
namespace {

using cuda::FlightRecorder;
using test::DeferredDevice;
using Work = DeferredDevice::Work;

class FakeGpu : public DeferredDevice {
 public:
  explicit FakeGpu(const CudaOptions& options)
      : DeferredDevice(test::fake_gpu().eager_copies),
        options_(options),
        flight_recorder_(options.breadcrumbs, &breadcrumb_, [this](std::uint64_t place, FlightRecorder::Write what) {
          const bool begins = what == FlightRecorder::Write::begin;
          enqueue(Stream::compute, [this, place, begins] {
            cuda::record_breadcrumb({}, &breadcrumb_.place, place, begins ? &breadcrumb_.runs : nullptr);
          });
        }) {}
  std::string name() const override { return "replaying"; }
  void* allocate(MemoryKind kind, std::size_t bytes) override {  // like a small GPU: too little memory to measure peaks
    if (bytes > (8u << 20)) fail(Exit::config, "cannot allocate {} bytes", bytes);
    return DeferredDevice::allocate(kind, bytes);
  }
  void copy_to_device(Stream stream, void* to, const void* from, std::size_t bytes) override {
    if (stream == Stream::copy && test::fake_gpu().copy_seconds > 0)
      enqueue(stream,
              [] { std::this_thread::sleep_for(std::chrono::duration<double>(test::fake_gpu().copy_seconds)); });
    DeferredDevice::copy_to_device(stream, to, from, bytes);
  }
  int max_captured_micro_batches() const override { return options_.graph_micro_batches; }
  std::unique_ptr<CapturedStep> capture(const std::string& key, Work step) override {
    const Work with_breadcrumbs = [this, step = std::move(step), number = flight_recorder_.add(key)] {
      FlightRecorder::Recording recording(flight_recorder_, number, FlightRecorder::Launch::one_by_one);
      step();
      recording.end();
    };
    struct StepWithBreadcrumbs : CapturedStep {
      FakeGpu& device;
      std::unique_ptr<CapturedStep> step;
      StepWithBreadcrumbs(FakeGpu& d, std::unique_ptr<CapturedStep> s) : device(d), step(std::move(s)) {}
      void run() override {
        device.flight_recorder_.begin_run(device.entered_.empty() ? "" : device.entered_.front());
        step->run();
      }
    };
    return std::make_unique<StepWithBreadcrumbs>(*this, options_.graph ? DeferredDevice::capture(key, with_breadcrumbs)
                                                                       : HostDevice::capture(key, with_breadcrumbs));
  }
  void push_label(const char* what) override {
    entered_.push_back(what);
    ++occasion_;
    flight_recorder_.enter_operation(what);
  }
  void pop_label() override { entered_.pop_back(); }
  std::unique_ptr<ActivityTracer> make_activity_tracer(std::string*) override {
    struct Tracer : ActivityTracer {
      FakeGpu& device;
      std::vector<Activity> seen;
      explicit Tracer(FakeGpu& d) : device(d) {}
      void start() override {
        device.synchronize();  // finishes the steps that were enqueued before
        device.trace_ = &seen;
      }
      std::vector<Activity> stop() override {
        device.trace_ = nullptr;
        return std::exchange(seen, {});
      }
    };
    return std::make_unique<Tracer>(*this);
  }
  bool read_health(DeviceHealth& h) override {
    h.clock_mhz = 1200;
    h.top_clock_mhz = 2000;
    h.throttle_reasons = {"power cap"};
    return true;
  }

  void enqueue_op(const char* name, Work run) {
    if (!capturing()) ++test::fake_gpu().operations;
    // The current label. Work of captured steps has none.
    const char* work = capturing() || entered_.empty() ? nullptr : entered_.back();
    const bool fails = !entered_.empty() && entered_.back() == test::fake_gpu().fails_in;
    enqueue(Stream::compute, [this, name, work, fails, occasion = work ? occasion_ : 0, run = std::move(run)] {
      if (fails && test::fake_gpu().fails_after-- == 0) {
        const auto place = flight_recorder_.place();
        fail(Exit::comm, "illegal address; {}",
             place ? fmt::format("the GPU was at {}", place->text) : "place unknown");
      }
      const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); };
      const std::int64_t began = now();
      run();
      if (trace_) trace_->push_back({Activity::Kind::kernel, name, began, now(), work, occasion});
    });
  }
  std::size_t replayed() const { return replayed_; }  // identifies the captured step that runs now; 0: none

 protected:
  void captured(const std::string&) override { ++test::fake_gpu().captures; }
  void launching(const std::string& key) override {
    ++test::fake_gpu().launches;
    const std::size_t name = 1 + std::hash<std::string>()(key) % (1u << 20);
    enqueue(Stream::compute, [this, name] { replayed_ = name; });
  }
  void launched() override {
    enqueue(Stream::compute, [this] { replayed_ = 0; });
  }

 private:
  const CudaOptions options_;
  FlightRecorder::Breadcrumb breadcrumb_;
  FlightRecorder flight_recorder_;
  std::vector<const char*> entered_;
  std::uint64_t occasion_ = 0;
  std::vector<Activity>* trace_ = nullptr;  // where operations are traced; null: not traced
  std::size_t replayed_ = 0;
};

class EnqueuedOp : public Op {
 public:
  EnqueuedOp(FakeGpu& device, std::unique_ptr<Op> op) : device_(device), op_(std::move(op)) {}
  MemoryRequirements memory_requirements() const override { return op_->memory_requirements(); }
  std::string implementation() const override { return op_->implementation(); }
  void forward(const OpArgs& args) override {
    device_.enqueue_op("forward_kernel", [this, args] { op_->forward(args); });
  }
  void backward(const OpArgs& args) override {
    device_.enqueue_op("backward_kernel", [this, args] { op_->backward(args); });
  }
  void repack(const OpArgs& args) override {
    device_.enqueue(Stream::compute, [this, args] { op_->repack(args); });
  }

 private:
  FakeGpu& device_;
  std::unique_ptr<Op> op_;
};

class EnqueuedOptimizer : public OptimizerOp {
 public:
  EnqueuedOptimizer(FakeGpu& device, std::unique_ptr<OptimizerOp> op) : device_(device), op_(std::move(op)) {}
  int phases() const override { return op_->phases(); }
  void run(int phase, const OptimizerArgs& args) override {
    device_.enqueue_op("optimizer_kernel", [this, phase, args] { op_->run(phase, args); });
  }

 private:
  FakeGpu& device_;
  std::unique_ptr<OptimizerOp> op_;
};

class EnqueuedBackend : public Backend {
 public:
  EnqueuedBackend(FakeGpu& device, std::unique_ptr<Backend> backend) : device_(device), backend_(std::move(backend)) {}
  Device& device() override { return device_; }
  std::unique_ptr<Op> make(const Spec& spec) override {
    return std::make_unique<EnqueuedOp>(device_, backend_->make(spec));
  }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) override {
    return std::make_unique<EnqueuedOptimizer>(device_, backend_->make_optimizer(spec));
  }
  void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) override {
    device_.enqueue(Stream::compute, [=, this] { backend_->convert(dst, dst_type, src, src_type, count); });
  }
  bool merges_norm(const BatchNormSpec& spec) const override { return backend_->merges_norm(spec); }
  std::string why_not_fused(const Spec& spec) override { return backend_->why_not_fused(spec); }
  int max_fusion_level() const override { return backend_->max_fusion_level(); }
  int default_fusion_level() const override { return 1; }
  std::string precision_note(DType) const override { return ""; }

 private:
  FakeGpu& device_;
  std::unique_ptr<Backend> backend_;
};

class EnqueuedCollective : public Collective {
 public:
  EnqueuedCollective(World& world, FakeGpu& device, std::unique_ptr<Collective> inner)
      : world_(world), device_(device), inner_(std::move(inner)) {}
  std::string describe() const override { return inner_->describe(); }
  SharedRegion allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void all_reduce_async(const SharedRegion& region, std::size_t begin, std::size_t count, DType dtype,
                        int tag) override {
    device_.enqueue(Stream::compute, [=, this] { inner_->all_reduce_async(region, begin, count, dtype, tag); });
  }
  void reduce_scatter_async(const SharedRegion& region, std::size_t begin, std::size_t count, DType dtype,
                            int tag) override {
    device_.enqueue(Stream::compute, [=, this] { inner_->reduce_scatter_async(region, begin, count, dtype, tag); });
  }
  void all_gather_async(const SharedRegion& region, std::size_t begin, std::size_t count, DType dtype,
                        int tag) override {
    device_.enqueue(Stream::compute, [=, this] { inner_->all_gather_async(region, begin, count, dtype, tag); });
  }
  void wait(int tag) override {
    device_.enqueue(Stream::compute, [=, this] { inner_->wait(tag); });
  }
  void finish() override {
    device_.enqueue(Stream::compute, [this] {
      inner_->finish();
      const double number = double(device_.replayed());
      double sums[2] = {number, number * number};
      inner_->all_reduce_scalars(sums);
      MR_CHECK(sums[0] * sums[0] == sums[1] * world_.size(),
               "an all-reduce comes from different captured steps on the ranks");
    });
  }
  void all_reduce_scalars(std::span<double> values) override { inner_->all_reduce_scalars(values); }
  void broadcast(const SharedRegion& region, std::size_t begin, std::size_t bytes, int root) override {
    device_.synchronize();
    inner_->broadcast(region, begin, bytes, root);
  }
  void take_spans(std::vector<CommSpan>& out) override { inner_->take_spans(out); }

 private:
  World& world_;
  FakeGpu& device_;
  std::unique_ptr<Collective> inner_;
};

}  // namespace

ExecutionContext make_cuda_context(World& world, const ExecutionOptions& options) {
  cpu::set_thread_count(options.placement.compute_threads);
  auto device = std::make_unique<FakeGpu>(options.cuda);
  ExecutionContext compute;
  std::unique_ptr<Backend> operations;
  if (test::fake_gpu().kernels)
    operations = std::make_unique<test::HostKernelsBackend>(*device);
  else
    operations = make_cpu_backend(*device);
  compute.backend = std::make_unique<EnqueuedBackend>(*device, std::move(operations));
  compute.collective =
      std::make_unique<EnqueuedCollective>(world, *device, make_host_collective(world, options.collective));
  // Operations run on the device's thread, where they wait for the other ranks.
  if (options.exchanges && world.size() > 1) compute.exchange = make_host_collective(world, options.collective);
  compute.device = std::move(device);
  return compute;
}

std::vector<int> cpus_near_gpu(const World&) { return {}; }
bool cuda_usable(const World&, std::string* why_not) {
  *why_not = test::missing_gpu_reason();
  return why_not->empty();
}
std::string describe_gpus() { return "1 x replaying device"; }

namespace test {

FakeGpuControl& fake_gpu() {
  static FakeGpuControl all;
  return all;
}

std::string& missing_gpu_reason() {
  thread_local std::string why;
  return why;
}

}  // namespace test
}  // namespace millrace
