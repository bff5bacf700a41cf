// Internal to the simulated CUDA runtime: what the simulated CUPTI and NVML learn of its calls and of its work.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "simulated_cuda/simulator.hpp"

namespace millrace::simulated {

struct Stream;

// One execution of a piece of work.
class Trace {
 public:
  virtual ~Trace() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
};

class Tracer {
 public:
  virtual ~Tracer() = default;
  // The calling thread makes this call of the runtime, or a call of a library, which launches by the driver.
  virtual void call(const char* name) = 0;
  // The last call of the thread launched this work. Null: it is not traced. node: of a graph; 0: of none.
  virtual std::shared_ptr<Trace> launch(const Activity&, const Stream&, std::uint64_t node = 0) = 0;
};
extern std::atomic<Tracer*> tracer;                 // null until CUPTI is used
extern std::atomic<std::int64_t> busy_nanoseconds;  // in which work of this process ran

}  // namespace millrace::simulated
