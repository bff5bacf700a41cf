// Finds out how far the GPU had come in a captured step when it failed. A captured step is one launch, and CUDA's error
// does not say which kernel of it failed. So captured steps record breadcrumbs: before each operation, or before every
// sixteenth, the GPU writes the operation's number to page-locked host memory. The host can still read that memory
// after the fault, when the CUDA context is lost.
//
// A breadcrumb between two operations would delay the second one. So in a graph it is on a branch: it is written when
// all earlier operations have ended, while its operation already runs, and before the next operation begins. If a fault
// comes, the last breadcrumb may then be missing, and the message names two operations. Steps that are launched one by
// one write breadcrumbs between the operations, and the message names one.
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
    std::uint64_t place = 0;  // number of the step and of the operation that runs now (or the next); 0: no step runs
    std::uint64_t runs = 0;   // runs of steps that have begun
  };
  // What to enqueue after the work that the stream holds so far.
  enum class Write {
    begin,      // breadcrumb->place = place, and ++breadcrumb->runs
    in_stream,  // breadcrumb->place = place
    on_branch,  // the same on a branch: later work of the stream does not wait for it
    join,       // nothing, but later work of the stream waits for the branch
  };
  using WriteBreadcrumb = std::function<void(std::uint64_t place, Write)>;
  enum class Launch { one_by_one, as_graph };  // of the operations of a step

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
    Recording(FlightRecorder& flight_recorder, std::size_t number, Launch launch) : flight_recorder_(flight_recorder) {
      flight_recorder_.begin(number, launch);
    }
    ~Recording() { flight_recorder_.leave(); }
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
    bool exact = false;  // false: with Detail::each, the text would name fewer operations
  };
  std::optional<Place> place() const;  // where the GPU is now; nullopt: it runs no step

 private:
  struct KnownStep {
    std::string name;
    std::vector<std::string> operations;  // in order; the same in every run
  };
  void begin(std::size_t number, Launch);
  void end();
  void join();  // later operations wait for the breadcrumbs on the branch
  void leave() noexcept;

  const Detail detail_;
  Breadcrumb* const breadcrumb_;
  const WriteBreadcrumb write_breadcrumb_;
  bool recording_ = false;  // this and the next four belong to the thread that enqueues
  Launch launch_ = Launch::one_by_one;
  bool on_branch_ = false;    // the last breadcrumb is on a branch that is not joined
  std::size_t number_ = 0;    // number of the step whose function is being called
  std::size_t next_ = 0;      // number of operations of that step so far
  mutable std::mutex mutex_;  // guards the members below
  std::deque<KnownStep> known_;
  std::array<std::string, 256> labels_;  // label of run i at i % 256; fewer runs than that are in flight
  std::uint64_t runs_ = 0;               // begin_run() calls so far
  std::function<std::string()> concurrent_work_;
};

}  // namespace millrace::cuda
