// Device: memory, streams, events, timestamps and captured steps. One of the three abstract classes, with Backend and
// Collective, that hide the difference between the CPU and a GPU.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace millrace {

// The three queues of work of a device. Work in one stream runs in the order in which it was enqueued. Work in
// different streams may overlap; where one stream needs the result of another, an Event makes it wait.
//
//   stream    work                                     CUDA            CPU
//   copy      copies of batches to the device          cudaStream_t    no copies: operations read the loader's memory
//   compute   the operations of the step               cudaStream_t    runs at once, on the calling thread
//   comm      all-reduce and the other collectives     cudaStream_t    the progress thread of the collective
//
// A step waits across streams at these places:
//
//   copy    -> compute   the batch has arrived on the device, so the input pass may read it
//   compute -> copy      the step no longer needs the batch, so the next copy may overwrite the slot
//   compute -> comm      the gradients of a bucket are complete, so its all-reduce may start
//   comm    -> compute   all all-reduces are complete, so the optimizer may read the gradients
enum class Stream { copy, compute, comm };

enum class MemoryKind {
  device,  // memory that operations compute in
  pinned   // page-locked host memory, which can be copied to the device asynchronously; on the CPU: plain memory
};

class ActivityTracer;
class Device;
struct DeviceHealth;

// Owns one allocation of a device. Movable, not copyable. Address and size are multiples of 4096 bytes, as O_DIRECT and
// vector code need.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, MemoryKind kind, std::size_t bytes);
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
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

// A point in a stream that other streams, or the host, can wait for.
//
// Why does a batch wait for an event? Batches go through slots in device memory. The copy stream fills a slot, and the
// compute stream reads it. Each slot has two events:
//
//   copied     The copy stream records it after the copy. The compute stream waits for it before the input pass;
//              otherwise the step could read a slot that is only half filled.
//   consumed   The compute stream records it after the last operation that reads the batch, at the end of the backward
//              pass. The copy stream waits for it before it copies another batch into the slot; otherwise it could
//              overwrite data that the step has still to read.
//
// The host enqueues all of this ahead of time. Of these two events it waits only for `copied`, and only before it
// reuses the host memory that the copy reads. A step of one micro-batch with two slots would be correct without
// `consumed`, because the host collects the results of step N - 1 before it enqueues step N + 1. With several
// micro-batches in a step, slots are reused within the step, so `consumed` is needed.
//
// record() and wait() may be part of a captured step. There an event connects the step with work outside of it, and
// every CapturedStep::run() follows these rules:
//
//   - wait() waits for the last record() that was called before run(). So the work that it waits for must be enqueued
//     before run(). A record() in the same step does not count.
//   - record() takes effect for calls of wait() and synchronize() that come after run().
//
// On CUDA such calls become external event nodes of the graph. A step with several micro-batches therefore needs one
// slot for each of them: all copies are enqueued before the graph is launched.
class Event {
 public:
  virtual ~Event() = default;
  // Sets the point: after all work that was enqueued in the stream so far.
  virtual void record(Stream) = 0;
  // Later work of the stream starts after the last recorded point. Does not block the host. An event that was never
  // recorded delays nothing.
  virtual void wait(Stream) = 0;
  // Blocks the host until the last recorded point is reached.
  virtual void synchronize() = 0;
};

// Times at which streams reached certain points. The host reads them later, so no stream has to stop for them. record()
// may be part of a captured step.
class Timestamps {
 public:
  virtual ~Timestamps() = default;
  virtual void record(Stream, int index) = 0;
  // Seconds of timestamps [0, out.size()) relative to timestamp 0. Waits for the device if they are not reached yet.
  virtual void read(std::span<double> out) = 0;
};

// Consecutive timestamps on the compute stream, for one part of a step. marks = null: records nothing.
struct TimestampSeries {
  Timestamps* marks = nullptr;
  int next = 0;
  void record() {
    if (marks) marks->record(Stream::compute, next++);
  }
};

// A function that enqueues work, made once and run many times.
//
//   CPU    every run() calls the function.
//   CUDA   run 1 calls the function. Run 2 calls it again, captures the work as a CUDA graph, and launches the graph.
//          All later runs only launch the graph: one call instead of one for each kernel.
//
// With CUDA, the function is not called in later runs, and the arguments of all kernels stay those of the capture.
// Therefore the function
//   - owns all that it uses, or refers to objects that live at least as long as this object;
//   - changes nothing on the host that a later run needs;
//   - reads values that change from step to step (learning rate, epoch, loss scale) from device memory, or copies them
//     from pinned memory; see StepState.
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
  virtual std::size_t memory_bytes() const = 0;  // what this rank may use: its part of the memory free at the start
  // Zero-filled memory. Error(config), with the needed and the free bytes, if there is too little.
  virtual void* allocate(MemoryKind, std::size_t bytes) = 0;
  virtual void release(MemoryKind, void*, std::size_t bytes) noexcept = 0;
  // Copies and fill_zero() are enqueued and return at once. `host` is pinned, or stays alive until synchronize().
  virtual void copy_to_device(Stream, void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(Stream, void* host, const void* device, std::size_t bytes) = 0;
  // A copy of some bytes, a multiple of 4, within or between device memory and pinned memory. It does not wait for
  // larger copies: a GPU's copy engine serves one copy after the other, so that a step could wait for a batch or a
  // checkpoint.
  virtual void copy_small(Stream s, void* to, const void* from, std::size_t bytes) {
    copy_to_device(s, to, from, bytes);
  }
  virtual void fill_zero(Stream, void* device, std::size_t bytes) = 0;
  virtual bool shares_host_memory() const = 0;  // true: operations read host memory directly
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual std::unique_ptr<Timestamps> make_timestamps(int count) = 0;
  // A step for run(). key: its name in messages.
  virtual std::unique_ptr<CapturedStep> capture(const std::string& key, std::function<void()> step) = 0;
  // The largest number of micro-batches that one captured step should contain. 1: larger steps save no time.
  virtual int max_captured_micro_batches() const { return 1; }
  // How captured steps are launched so far: "on" (as graphs), "off", or "off: " or "on, but " with the reason. "": the
  // device has no graphs.
  virtual std::string graphs() const { return ""; }
  virtual void synchronize() = 0;  // blocks the host until all streams are idle
  // Labels the work that this thread enqueues until pop_label(), for error messages and profilers. Labels nest. Both
  // may be part of a captured step. The text must live until pop_label(); for an Activity that refers to it, until that
  // is read.
  virtual void push_label(const char*) {}
  virtual void pop_label() {}
  // See activity.hpp. Null, with the reason in why_not (may be null), if the device cannot trace its work.
  virtual std::unique_ptr<ActivityTracer> make_activity_tracer(std::string* why_not);
  // Traces labelled work, one Activity for each label. Null unless operations run on the host and end before their
  // labels, so that two readings of the clock suffice.
  virtual std::unique_ptr<ActivityTracer> make_label_tracer();
  // Reads clock, power and temperature. Takes milliseconds; any thread may call it. False: the device cannot report
  // them.
  virtual bool read_health(DeviceHealth&);
};

// Calls push_label() now and pop_label() at the end of the scope.
class ScopedLabel {
 public:
  ScopedLabel(Device& device, const char* what) : device_(device) { device_.push_label(what); }
  ~ScopedLabel() { device_.pop_label(); }
  ScopedLabel(const ScopedLabel&) = delete;

 private:
  Device& device_;
};

}  // namespace millrace
