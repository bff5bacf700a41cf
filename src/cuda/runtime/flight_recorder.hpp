// What of a recorded step the GPU had begun when it failed. A graph is one launch, and CUDA's error says nothing of its
// nodes. So a recording leaves marks: before each named piece of work, or before every sixteenth, the stream writes the
// piece's place to page-locked host memory, which the host still reads when the context is lost. Knows nothing of CUDA:
// its owner says how the stream writes. Thread-safe.
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
  static constexpr std::size_t breadcrumb_interval = 16;  // pieces from mark to mark, with `some`

  // Written by the device alone; all zero at first.
  struct Breadcrumb {
    std::uint64_t place = 0;  // 0: no recording is under way
    std::uint64_t runs = 0;   // of recordings that have begun
  };
  // Enqueues behind what the recording holds so far: words->place = place; where a run begins, ++words->runs too.
  using WriteBreadcrumb = std::function<void(std::uint64_t place, bool begins)>;

  FlightRecorder(Detail, Breadcrumb*, WriteBreadcrumb);  // words may be null with Detail::none
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // A recording that is known by this name from now on.
  std::size_t add(const std::string& recording);
  // While this lives, the caller calls the recording's function: one by one, or into a capture.
  class Recording {
   public:
    Recording(FlightRecorder& flight_recorder, std::size_t number) : flight_recorder_(flight_recorder) {
      flight_recorder_.begin(number);
    }
    ~Recording() { flight_recorder_.open_ = false; }
    Recording(const Recording&) = delete;
    void end() { flight_recorder_.end(); }  // all is enqueued

   private:
    FlightRecorder& flight_recorder_;
  };
  void enter_operation(const char* piece);  // does nothing but within a Recording
  void begin_run(const std::string& step);  // a recording is about to be run, as a part of this step

  // Tells what else may run beside the recording, "" for nothing. Must not wait for anything.
  void set_concurrent_work(std::function<std::string()>);

  struct Place {
    std::string text;    // "step 9, conv1 backward"
    bool exact = false;  // one piece of work, not some
  };
  std::optional<Place> place() const;  // nullopt: no recording is under way

 private:
  struct RecordedCapture {
    std::string name;
    std::vector<std::string> pieces;  // in order; the same in every run
  };
  void begin(std::size_t number);
  void end();

  const Detail detail_;
  Breadcrumb* const breadcrumb_;
  const WriteBreadcrumb write_breadcrumb_;
  bool open_ = false;  // of the thread that enqueues, as the next two
  std::size_t number_ = 0, next_ = 0;
  mutable std::mutex mutex_;  // guards what follows
  std::deque<RecordedCapture> known_;
  std::array<std::string, 256> steps_;  // by the number of the run: more than can be in flight
  std::uint64_t runs_ = 0;
  std::function<std::string()> beside_;
};

}  // namespace millrace::cuda
