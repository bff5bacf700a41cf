// Stands in for src/cuda's Compute: an asynchronous device as seen from above, on the host. Its memory is apart from
// the host's; a recorded step runs its function twice (once as it is, once into a tape) and then replays the tape, as a
// captured graph does: whatever the function would change on the host is not changed again. Sums must come from the
// same recording on all ranks, or from none, as NCCL demands. Operations are the CUDA backend's own kernels and the
// processor's products.
#include <chrono>
#include <cstring>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/compute/compute.hpp"
#include "millrace/device/activity.hpp"
#include "support/host_device.hpp"
#include "support/kernels_backend.hpp"

namespace millrace {
namespace {

using Work = std::function<void()>;

struct Tape {
  std::vector<Activity>* trace = nullptr;  // of the operations that run now
  const char* work = nullptr;              // as entered; a replayed step enters nothing
  std::uint64_t occasion = 0;
  void run_op(const char* name, const Work& run) {
    const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); };
    const std::int64_t began = now();
    run();
    if (trace) trace->push_back({Activity::Kind::kernel, name, began, now(), work, work ? occasion : 0});
  }
  std::vector<Work>* recording = nullptr;
  int recordings = 0, replayed = 0;  // so far; the one that is replayed now, from 1
  void add(Work work) { recording ? recording->push_back(std::move(work)) : work(); }
};

class ReplayingDevice : public test::HostDevice {
 public:
  ReplayingDevice() : HostDevice(false) {}
  Tape tape;

  std::string name() const override { return "replaying"; }
  void* allocate(MemoryKind kind, std::size_t bytes) override {  // as a small GPU: no room to measure peaks
    if (bytes > (128u << 20)) fail(Exit::config, "no room for ", bytes, " bytes");
    return HostDevice::allocate(kind, bytes);
  }
  void enter(const char* what) override {
    entered_.push_back(what);
    tape.work = what, ++tape.occasion;
  }
  void leave() override {
    entered_.pop_back();
    tape.work = entered_.empty() ? nullptr : entered_.back();
  }
  std::unique_ptr<ActivityWatch> watch_activity(std::string*) override {
    struct Watch : ActivityWatch {
      Tape& tape;
      std::vector<Activity> seen;
      explicit Watch(Tape& t) : tape(t) {}
      void start() override { tape.trace = &seen; }
      std::vector<Activity> stop() override {
        tape.trace = nullptr;
        return std::exchange(seen, {});
      }
    };
    return std::make_unique<Watch>(tape);
  }
  bool read_health(Health& h) override {
    h.clock_mhz = 1200, h.top_clock_mhz = 2000, h.slowed = {"power cap"};
    return true;
  }
  void copy_in(Lane lane, void* to, const void* from, std::size_t bytes) override {
    tape.add([=, this] { HostDevice::copy_in(lane, to, from, bytes); });
  }
  void copy_out(Lane lane, void* to, const void* from, std::size_t bytes) override {
    tape.add([=, this] { HostDevice::copy_out(lane, to, from, bytes); });
  }
  void fill_zero(Lane lane, void* to, std::size_t bytes) override {
    tape.add([=, this] { HostDevice::fill_zero(lane, to, bytes); });
  }
  std::unique_ptr<Marks> make_marks(int count) override {
    struct Clocks : Marks {
      Tape& tape;
      std::vector<double> at;
      Clocks(Tape& t, int n) : tape(t), at(std::size_t(n)) {}
      void mark(Lane, int index) override {
        tape.add([this, index] {
          at.at(std::size_t(index)) =
              std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
        });
      }
      void read(std::span<double> out) override {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = at[i] - at[0];
      }
    };
    return std::make_unique<Clocks>(tape, count);
  }
  std::unique_ptr<Recorded> record(const std::string&, Work step) override {
    struct Graph : Recorded {
      ReplayingDevice& device;
      Work step;
      std::vector<Work> work;
      bool warm = false;
      int number = 0;
      Graph(ReplayingDevice& d, Work s) : device(d), step(std::move(s)) {}
      void run() override {
        if (!warm) return warm = true, step();
        if (work.empty()) {
          device.tape.recording = &work;
          step();
          device.tape.recording = nullptr;
          number = ++device.tape.recordings;
        }
        const char* around = std::exchange(device.tape.work, nullptr);
        device.tape.replayed = number;
        for (const Work& piece : work) piece();
        device.tape.replayed = 0;
        device.tape.work = around;
      }
    };
    return std::make_unique<Graph>(*this, std::move(step));
  }

 private:
  std::vector<const char*> entered_;
};

class TapedOp : public Op {
 public:
  TapedOp(Tape& tape, std::unique_ptr<Op> op) : tape_(tape), op_(std::move(op)) {}
  Needs needs() const override { return op_->needs(); }
  std::string implementation() const override { return op_->implementation(); }
  void forward(const OpArgs& args) override {
    tape_.add([this, args] { tape_.run_op("forward_kernel", [&] { op_->forward(args); }); });
  }
  void backward(const OpArgs& args) override {
    tape_.add([this, args] { tape_.run_op("backward_kernel", [&] { op_->backward(args); }); });
  }
  void refresh(const OpArgs& args) override {
    tape_.add([this, args] { op_->refresh(args); });
  }

 private:
  Tape& tape_;
  std::unique_ptr<Op> op_;
};

class TapedOptimizer : public OptimizerOp {
 public:
  TapedOptimizer(Tape& tape, std::unique_ptr<OptimizerOp> op) : tape_(tape), op_(std::move(op)) {}
  int parts() const override { return op_->parts(); }
  void run(int part, const OptimizerArgs& args) override {
    tape_.add([this, part, args] { op_->run(part, args); });
  }

 private:
  Tape& tape_;
  std::unique_ptr<OptimizerOp> op_;
};

class TapedBackend : public test::KernelsBackend {
 public:
  explicit TapedBackend(ReplayingDevice& device) : KernelsBackend(device), tape_(device.tape) {}
  std::unique_ptr<Op> make(const Spec& spec) override {
    return std::make_unique<TapedOp>(tape_, KernelsBackend::make(spec));
  }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) override {
    return std::make_unique<TapedOptimizer>(tape_, KernelsBackend::make_optimizer(spec));
  }
  void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) override {
    tape_.add([=, this] { KernelsBackend::convert(dst, dst_type, src, src_type, count); });
  }

 private:
  Tape& tape_;
};

class TapedCollective : public Collective {
 public:
  TapedCollective(World& world, Tape& tape, std::unique_ptr<Collective> inner)
      : world_(world), tape_(tape), inner_(std::move(inner)) {}
  std::string describe() const override { return inner_->describe(); }
  SharedRegion allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void begin_sum(const SharedRegion& region, std::size_t begin, std::size_t count, DType dtype, int tag) override {
    tape_.add([=, this] { inner_->begin_sum(region, begin, count, dtype, tag); });
  }
  void begin_reduce_scatter(const SharedRegion& region, std::size_t begin, std::size_t count, DType dtype,
                            int tag) override {
    tape_.add([=, this] { inner_->begin_reduce_scatter(region, begin, count, dtype, tag); });
  }
  void begin_all_gather(const SharedRegion& region, std::size_t begin, std::size_t count, DType dtype,
                        int tag) override {
    tape_.add([=, this] { inner_->begin_all_gather(region, begin, count, dtype, tag); });
  }
  void wait(int tag) override {
    tape_.add([=, this] { inner_->wait(tag); });
  }
  void finish() override {
    tape_.add([this] {
      inner_->finish();
      const double number = tape_.replayed;
      double sums[2] = {number, number * number};
      inner_->small_sum(sums);
      MR_CHECK(sums[0] * sums[0] == sums[1] * world_.size(), "a sum comes from different recordings of the ranks");
    });
  }
  void small_sum(std::span<double> values) override { inner_->small_sum(values); }
  void broadcast(const SharedRegion& region, std::size_t begin, std::size_t bytes, int root) override {
    inner_->broadcast(region, begin, bytes, root);
  }
  void take_spans(std::vector<CommSpan>& out) override { inner_->take_spans(out); }

 private:
  World& world_;
  Tape& tape_;
  std::unique_ptr<Collective> inner_;
};

}  // namespace

Compute make_cuda_compute(World& world, const ComputeOptions& options) {
  auto device = std::make_unique<ReplayingDevice>();
  Compute compute;
  compute.backend = std::make_unique<TapedBackend>(*device);
  compute.collective =
      std::make_unique<TapedCollective>(world, device->tape, make_host_collective(world, options.collective));
  compute.device = std::move(device);
  return compute;
}

bool cuda_usable(std::string*) { return true; }

}  // namespace millrace
