// The current work of this thread, for error messages and profilers: a stack of labels ("step 17", "conv1 backward"),
// which Device::push_label() and pop_label() maintain. The labels are NVTX ranges too, which cost nothing unless a
// profiler is attached. The GPU runs work later than the host enqueues it, so the message of a fault also names the
// work enqueued last. All state here belongs to the calling thread.
#pragma once
#include <cuda_runtime.h>

#include <string>

namespace millrace::cuda {
class FlightRecorder;
}

namespace millrace::cuda::error_context {

void set_rank(int rank);  // named in the messages
void push_label(const char* name);
void pop_label();
// Is called at every push and pop of this thread.
class LabelListener {
 public:
  virtual ~LabelListener() = default;
  virtual void label_pushed(const char* name) = 0;
  virtual void label_popped() = 0;
};
// null: no listener. Must not be called between a push and its pop.
void set_label_listener(LabelListener*);
// The captured step with this name was replayed: it is the work that was enqueued last.
void note_replay(const std::string& captured_step);
std::string outermost_label();  // "" if there is no label
// Where messages of this thread look up the position of the GPU inside a captured step; null: nowhere. The flight
// recorder must live until it is replaced.
void set_flight_recorder(const FlightRecorder*);

// One line with the call, the rank, the labels, and the library's message (`why`).
std::string describe_failure(const char* call, const std::string& why);
// The same for an error of CUDA. A fault in a kernel is reported by whatever call comes later, so the line also says
// which work may have caused it, and how to find out.
std::string describe_failure(const char* call, cudaError_t);

}  // namespace millrace::cuda::error_context
