// Internal to the simulated CUDA runtime: streams, events, captures and graphs.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "simulated_cuda/profiling/tracing.hpp"
#include "simulated_cuda/simulator.hpp"

namespace millrace::simulated {

// The mark that one cudaEventRecord sets when the work before it is done.
struct Recording {
  std::atomic<bool> done{false};
  std::atomic<double> seconds{0};
  void set();
  void wait();
};

struct Capture;

// What an event handle refers to. It lives as long as work or a graph uses it.
struct EventState {
  int number = 0;
  bool timing = true, destroyed = false;
  std::shared_ptr<Recording> last;   // null: never recorded, or last recorded in a capture
  std::shared_ptr<Capture> capture;  // the capture in which it was recorded last, without the external flag
  std::set<int> nodes;               // of that capture: what a wait for the event depends on
};

struct Node {
  std::string what;
  std::set<int> after;                  // nodes that must be done before
  std::function<void()> run;            // null: an event node
  std::shared_ptr<EventState> records;  // an external record
  std::shared_ptr<EventState> awaits;   // an external wait
  Activity activity{};
  std::uint64_t number = 0;  // one in the whole process
};

struct Capture {
  int number = 0;
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool ended = false, invalid = false;
  std::vector<Node> nodes;
  std::set<cudaStream_t> streams;
};

// A piece of work in the queue of a stream.
struct Work {
  std::function<void()> run;
  bool kernel = false, dependent = false;  // see Activity
};

struct Stream {
  int number = 0, device = 0, priority = 0;
  std::mutex mutex;  // guards the queue
  std::condition_variable changed;
  std::deque<Work> queue;
  bool busy = false, closing = false;
  // Guarded by api_mutex():
  std::shared_ptr<Capture> capture;
  std::set<int> frontier;  // nodes that the next node of this stream comes after

  void push(Work);
  bool idle();
  void wait_until_idle();
};

std::mutex& api_mutex();  // guards all state of captures and events

// The state of a calling thread.
struct ThreadState {
  int device = -1;  // -1: no cudaSetDevice yet
  cudaError_t last = cudaSuccess;
  bool runs_work = false;  // a thread of a stream
  const char* work = "";   // what it runs
  int captures = 0;        // captures that it began and that are not relaxed
  // Of the work that it runs:
  std::function<void()> earlier;  // runs the kernels before it that have not run yet; null: none
  bool waited = false;            // it has waited for them
};
ThreadState& this_thread();

// Every call of the runtime ends with this: it notes an error as the thread's last one. A lost context replaces it.
cudaError_t done(cudaError_t);
// Ends the process if the thread may not make this call now: work of a stream calls CUDA, no GPU is chosen, or the
// thread captures and the call is one that CUDA calls potentially unsafe.
enum class Safety { always, unsafe_in_capture };
void check_call(const char* call, Safety);

Stream& stream_of(const char* call, cudaStream_t);
std::string name_of(cudaStream_t);  // "stream 2", "the null stream"
std::vector<cudaStream_t> all_streams();
void wait_for_all_streams();
std::shared_ptr<EventState> event_of(const char* call, cudaEvent_t);

// Adds a node to the capture of the stream. api_mutex() is held.
int add_node(Stream&, Node);

// Runs a piece of work in this thread: after a random delay, with access to device memory, unless the context is lost.
// trace: null if nobody traces it. dependent: see Activity.
struct WorkOptions {
  Trace* trace = nullptr;
  bool dependent = false;
};
void run_work(const std::string& what, const std::function<void()>&, WorkOptions = {});
// Runs kernels of which each but the first is dependent on the one before it, with run(k). The last one starts first,
// and the others run when it waits for them.
void run_dependent(std::size_t kernels, const std::function<void(std::size_t)>& run);
// A number below n, from the generator of this process.
std::size_t random_below(std::size_t n);

bool any_capture();
void note_capture(int change);

// Faults on purpose: MILLRACE_SIMULATED_FAULT.
bool fault_now(const char* kind);  // counts a call of this kind; true for the one that shall fail
void lose_context();

}  // namespace millrace::simulated

struct CUstream_st : millrace::simulated::Stream {};
