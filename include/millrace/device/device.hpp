// Device: memory, lanes, events, time marks, and recording of a step. One of the three classes (with Backend and
// Collective) that carry every difference between processors.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace millrace {

// Three queues of work. On CUDA a stream is a stream; on the CPU, compute is immediate, copy is the loader's workers
// writing straight into the slot, and comm is the collective's progress thread. Crossings: copy->compute (batch ready),
// compute->comm (bucket filled), comm->compute (finish).
enum class Stream { copy, compute, comm };

enum class MemoryKind {
  device,  // where ops compute
  pinned   // host memory that copies asynchronously to the device (plain aligned memory on the CPU)
};

class ActivityTracer;
class Device;
struct DeviceHealth;

// Owns one allocation; moves, never copies. 4096-byte aligned (also the padding), so that O_DIRECT and vector code may
// use it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, MemoryKind kind, std::size_t bytes);
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_), std::swap(kind_, other.kind_), std::swap(data_, other.data_),
        std::swap(bytes_, other.bytes_);
    return *this;
  }
  void reset();
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  MemoryKind kind_ = MemoryKind::device;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// A point in a stream. record() marks it, wait() makes another stream wait for the last record() before it,
// synchronize() makes the host wait. Both may be part of a recorded step, where an event is the step's tie to what goes
// on outside of it: at every run, wait() is for the last record() called before that run() (one in the same step does
// not count, so what it waits for has to be enqueued before run()), and record() is seen by calls after that run().
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream) = 0;
  virtual void wait(Stream) = 0;
  virtual void synchronize() = 0;
};

// Time stamps on a stream, read later without stopping it. mark(i) may be part of a recorded step.
class Timestamps {
 public:
  virtual ~Timestamps() = default;
  virtual void record(Stream, int index) = 0;
  // Seconds of marks [0, out.size()) relative to mark 0. May wait for the device: call it late.
  virtual void read(std::span<double> out) = 0;
};

// The marks of a part of a step, one after the other on the compute stream. None: nothing is marked.
struct TimestampSeries {
  Timestamps* marks = nullptr;
  int next = 0;
  void record() {
    if (marks) marks->record(Stream::compute, next++);
  }
};

// Work made once and run many times: the CPU keeps the function and calls it, CUDA calls it once as it is, captures it
// the second time and launches the capture as a whole from then on. So the function holds by value, or by reference to
// what lives as long, all that it needs, and changes nothing on the host that a later run would need to see; what
// changes from run to run lies in memory of the device, or in pinned memory that the function copies from.
class CapturedStep {
 public:
  virtual ~CapturedStep() = default;
  virtual void run() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;          // "cpu" or the device's own
  virtual std::string describe() const = 0;      // one line: model, cores or SMs, memory, instruction set
  virtual std::size_t memory_bytes() const = 0;  // what a rank may plan with: its share of what was free at the start
  virtual void* allocate(MemoryKind,
                         std::size_t bytes) = 0;  // zero-filled; Error(config) with what is needed and what there is
  virtual void release(MemoryKind, void*, std::size_t bytes) noexcept = 0;
  virtual void copy_to_device(Stream, void* device, const void* host,
                              std::size_t bytes) = 0;  // host is pinned or stays alive until synchronize()
  virtual void copy_to_host(Stream, void* host, const void* device, std::size_t bytes) = 0;
  virtual void fill_zero(Stream, void* device, std::size_t bytes) = 0;
  virtual bool shares_host_memory() const = 0;  // true: a slot is read where it lies, copies cost nothing
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual std::unique_ptr<Timestamps> make_timestamps(int count) = 0;
  virtual std::unique_ptr<CapturedStep> record(const std::string& key, std::function<void()> step) = 0;
  // How many micro-batches one recording should hold at most: 1 where a run of many costs as much as many runs.
  virtual int max_captured_micro_batches() const { return 1; }
  virtual void synchronize() = 0;
  // Names what this thread enqueues from here to leave(): in failures, and in profilers. Nests; may be part of a
  // recorded step. The text lives at least as long.
  virtual void enter(const char*) {}
  virtual void leave() {}
  // See activity.hpp. Null, with the reason, where the device cannot tell what it runs.
  virtual std::unique_ptr<ActivityTracer> make_activity_tracer(std::string* why_not);
  // Clock, power and heat now. Takes milliseconds, on any thread. False where the device cannot tell.
  virtual bool read_health(DeviceHealth&);
};

// enter() and leave() of a scope.
class ScopedLabel {
 public:
  ScopedLabel(Device& device, const char* what) : device_(device) { device_.enter(what); }
  ~ScopedLabel() { device_.leave(); }
  ScopedLabel(const ScopedLabel&) = delete;

 private:
  Device& device_;
};

}  // namespace millrace
