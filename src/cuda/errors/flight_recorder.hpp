// Finds out how far the GPU had come in a captured step when it failed. A captured step is one launch, and CUDA's error
// does not say which kernel of it failed. So captured steps record breadcrumbs: before each operation, or before every
// sixteenth, the stream writes the operation's number to page-locked host memory. The host can still read that memory
// after the fault, when the CUDA context is lost.
//
// This class does not depend on CUDA: its owner passes the function that makes the stream write. Thread-safe, except
// that one thread at a time enqueues steps.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "millrace/compute/execution_context.hpp"

namespace millrace::cuda {

class FlightRecorder {
 public:
  using Detail = CudaOptions::Breadcrumbs;
  static constexpr std::size_t breadcrumb_interval = 16;  // operations from one breadcrumb to the next, with `some`

  // Only the device writes it.
  struct Breadcrumb {
    std::uint64_t place = 0;  // number of the step and of the operation that runs now; 0: no step runs
    std::uint64_t runs = 0;   // runs of steps that have begun
  };
  // Enqueues the write of a breadcrumb after the work that the stream holds so far: breadcrumb->place = place, and
  // ++breadcrumb->runs if a run begins.
  using WriteBreadcrumb = std::function<void(std::uint64_t place, bool begins)>;

  // The breadcrumb may be null with Detail::none. It must outlive this object.
  FlightRecorder(Detail, Breadcrumb*, WriteBreadcrumb);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // Adds a step with this name; returns its number.
  std::size_t add(const std::string& step);
  // Exists while the caller calls the function of a step, inside a capture or not. During that time each operation
  // records breadcrumbs.
  class Recording {
   public:
    Recording(FlightRecorder& flight_recorder, std::size_t number) : flight_recorder_(flight_recorder) {
      flight_recorder_.begin(number);
    }
    ~Recording() { flight_recorder_.recording_ = false; }
    Recording(const Recording&) = delete;
    void end() { flight_recorder_.end(); }  // the step is enqueued completely

   private:
    FlightRecorder& flight_recorder_;
  };
  void enter_operation(const char* name);    // has an effect only during a Recording
  void begin_run(const std::string& label);  // a step is about to run; label: of the training step, such as "step 9"

  // A function that names work which may run at the same time as the step, such as an all-reduce; "" for none. It must
  // not block.
  void set_concurrent_work(std::function<std::string()>);

  struct Place {
    std::string text;    // "step 9, conv1 backward"
    bool exact = false;  // true: the text names one operation; false: a range of operations
  };
  std::optional<Place> place() const;  // where the GPU is now; nullopt: it runs no step

 private:
  struct KnownStep {
    std::string name;
    std::vector<std::string> operations;  // in order; the same in every run
  };
  void begin(std::size_t number);
  void end();

  const Detail detail_;
  Breadcrumb* const breadcrumb_;
  const WriteBreadcrumb write_breadcrumb_;
  bool recording_ = false;    // this and the next two belong to the thread that enqueues
  std::size_t number_ = 0;    // number of the step whose function is being called
  std::size_t next_ = 0;      // number of operations of that step so far
  mutable std::mutex mutex_;  // guards the members below
  std::deque<KnownStep> known_;
  std::array<std::string, 256> labels_;  // label of run i at i % 256; fewer runs than that are in flight
  std::uint64_t runs_ = 0;               // begin_run() calls so far
  std::function<std::string()> concurrent_work_;
};

}  // namespace millrace::cuda
