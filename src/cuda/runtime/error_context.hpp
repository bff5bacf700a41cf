// What this thread is doing for the GPU: the names between enter() and leave(), for failures and for profilers (NVTX
// ranges; nothing listens unless a profiler is attached). Work is done later than it is enqueued, so a failure also
// names what was enqueued last.
#pragma once
#include <cuda_runtime.h>

#include <string>

namespace millrace::cuda {
class FlightRecorder;
}

namespace millrace::cuda::error_context {

void set_rank(int rank);  // of this thread's messages
void push_label(const char* name);
void pop_label();
// Told of every enter() and leave() of this thread.
class LabelListener {
 public:
  virtual ~LabelListener() = default;
  virtual void label_pushed(const char* name) = 0;
  virtual void label_popped() = 0;
};
void set_label_listener(LabelListener*);          // null: nobody; not in the middle of named work
void note_replay(const std::string& recording);   // a recorded step was launched as a whole
std::string outermost_label();                    // of the names now, "" where there is none
void set_flight_recorder(const FlightRecorder*);  // for faults seen by this thread; null: no trail. Outlives its use

// One line: the call, the rank, the names, the library's words (`why`).
std::string describe_failure(const char* call, const std::string& why);
// The same for CUDA's errors. Faults of the GPU show up in any later call: says what may lie behind, and how to know.
std::string describe_failure(const char* call, cudaError_t);

}  // namespace millrace::cuda::error_context
