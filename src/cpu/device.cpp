#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "cpu/backend.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/host_memory.hpp"
#include "millrace/base/pages.hpp"
#include "millrace/base/units.hpp"
#include "millrace/device/activity.hpp"

namespace millrace {
namespace {

std::string processor_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "processor";
}

// Operations run at once on the calling thread, so the work before an event is always complete. The loader itself
// orders the writes of its workers.
struct ImmediateEvent : Event {
  void record(Stream) override {}
  void wait(Stream) override {}
  void synchronize() override {}
};

class ClockTimestamps : public Timestamps {
 public:
  explicit ClockTimestamps(int count) : at_(std::size_t(count)) {}
  void record(Stream, int index) override { at_.at(std::size_t(index)) = std::chrono::steady_clock::now(); }
  void read(std::span<double> out) override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::chrono::duration<double>(at_.at(i) - at_[0]).count();
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> at_;
};

class EagerStep : public CapturedStep {
 public:
  explicit EagerStep(std::function<void()> step) : step_(std::move(step)) {}
  void run() override { step_(); }

 private:
  std::function<void()> step_;
};

// What labels took, while it is started. Labels that enclose others are recorded too.
class LabelTrace {
 public:
  void push(const char* label) {
    if (on_) open_.push_back({Activity::Kind::kernel, {}, now(), 0, label, ++labels_});
  }
  void pop() {
    if (!on_ || open_.empty()) return;
    open_.back().ended = now();
    ended_.push_back(std::move(open_.back()));
    open_.pop_back();
  }
  void start() {
    ended_.clear();
    open_.clear();
    on_ = true;
  }
  std::vector<Activity> stop() {
    on_ = false;
    return std::move(ended_);
  }

 private:
  static std::int64_t now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  bool on_ = false;
  std::uint64_t labels_ = 0;
  std::vector<Activity> open_, ended_;
};

class LabelTracer : public ActivityTracer {
 public:
  explicit LabelTracer(std::shared_ptr<LabelTrace> trace) : trace_(std::move(trace)) {}
  ~LabelTracer() override { trace_->stop(); }
  void start() override { trace_->start(); }
  std::vector<Activity> stop() override { return trace_->stop(); }

 private:
  std::shared_ptr<LabelTrace> trace_;
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int ranks_on_host) : share_(host_memory().available / std::size_t(std::max(1, ranks_on_host))) {
    cpu::take_denormals_for_zero();
  }
  std::string name() const override { return "cpu"; }
  std::string describe() const override {
    return fmt::format("{}, {} threads, {}, oneDNN {}.{} with {}", processor_model(), cpu::thread_count(),
                       format_bytes(total_), DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, cpu::onednn::isa_name());
  }
  std::size_t memory_bytes() const override { return share_; }
  void* allocate(MemoryKind kind, std::size_t bytes) override {
    void* data = nullptr;
    if (bytes <= share_) data = is_lazy(kind, bytes) ? mapped(padded_to_pages(bytes)) : allocate_pages(bytes);
    if (!data)
      fail(Exit::config,
           "not enough memory (one allocation needs {}, but this rank may use {}). use a smaller micro-batch or more "
           "ranks",
           format_bytes(bytes), format_bytes(share_));
    return data;
  }
  void release(MemoryKind kind, void* data, std::size_t bytes) noexcept override {
    if (is_lazy(kind, bytes))
      ::munmap(data, padded_to_pages(bytes));
    else
      std::free(data);
  }
  void copy_to_device(Stream, void* device, const void* host, std::size_t bytes) override { copy(device, host, bytes); }
  void copy_to_host(Stream, void* host, const void* device, std::size_t bytes) override { copy(host, device, bytes); }
  void fill_zero(Stream, void* device, std::size_t bytes) override {
    if (bytes) std::memset(device, 0, bytes);
  }
  bool shares_host_memory() const override { return true; }
  std::unique_ptr<Event> make_event() override { return std::make_unique<ImmediateEvent>(); }
  std::unique_ptr<Timestamps> make_timestamps(int count) override { return std::make_unique<ClockTimestamps>(count); }
  std::unique_ptr<CapturedStep> capture(const std::string&, std::function<void()> step) override {
    return std::make_unique<EagerStep>(std::move(step));
  }
  void synchronize() override {}
  void push_label(const char* label) override { trace_->push(label); }
  void pop_label() override { trace_->pop(); }
  std::unique_ptr<ActivityTracer> make_label_tracer() override { return std::make_unique<LabelTracer>(trace_); }

 private:
  // Large pinned memory holds the ring of the loader, which may be longer than needed. It is mapped lazily: only the
  // slots that are used take memory, on the NUMA node of the thread that first writes them.
  static bool is_lazy(MemoryKind kind, std::size_t bytes) { return kind == MemoryKind::pinned && bytes >= 4u << 20; }
  static void* mapped(std::size_t bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    prefer_huge_pages(at, bytes);
    return at;
  }
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes && to != from) std::memcpy(to, from, bytes);
  }
  const std::size_t total_ = host_memory().total, share_;
  const std::shared_ptr<LabelTrace> trace_ = std::make_shared<LabelTrace>();
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int ranks_on_host) { return std::make_unique<CpuDevice>(ranks_on_host); }

}  // namespace millrace
