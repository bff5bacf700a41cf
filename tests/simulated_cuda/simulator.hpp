// A CUDA without a GPU: the functions of the CUDA runtime, cuBLASLt, cuDNN, NCCL, CUPTI and NVML that src/cuda
// calls, for the program millrace_simulated of the tests. A stream is a thread, device memory is memory that the host
// may not touch, and a kernel is its body compiled for the host (cuda/block/host_block.hpp), which runs when its turn
// in the stream comes.
//
// The simulation is strict: a call that CUDA's documentation forbids ends the process with a line that names the call,
// the stream and the rule. Each rule has its source in a comment. What it cannot show: races inside a kernel, the
// alignment that instructions need, which kernels a library has for a GPU, and all times.
//
// Environment variables:
//   MILLRACE_SIMULATED_GPUS      number of GPUs on this host (8)
//   MILLRACE_SIMULATED_MEMORY    memory of each, in MiB (4096)
//   MILLRACE_SIMULATED_SEED      of the random delays and of the order of a graph's nodes (1)
//   MILLRACE_SIMULATED_DELAY     longest random delay before a piece of work, in microseconds (50)
//   MILLRACE_SIMULATED_CAPTURE   duration of each call that adds to a capture, in microseconds (0)
//   MILLRACE_SIMULATED_LARGE     skip: work that would take minutes is left out; otherwise it ends the process
//   MILLRACE_SIMULATED_PROTECTION  arena, pages: protect device memory without protection keys, by one call for all of
//                                it (if the kernel has guards) or by one for each allocation
//   MILLRACE_SIMULATED_GRAPHS    a file, to which each capture appends a line "CAPTURE: WORK" for each piece of work
//   MILLRACE_SIMULATED_FAULT     KIND:RANK:N: the N-th piece of work (kernel), cudaMalloc (malloc) or cudaHostAlloc
//                                (host-alloc), launch of a kernel in a capture (capture-launch) or end of a capture
//                                (capture) of the rank fails; for those of NCCL see nccl/communicator.hpp
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

namespace millrace::simulated {

// Ends the process with code 70 and one line: "simulated CUDA: rank 1: CALL on stream 2: RULE".
[[noreturn]] void violation(const std::string& call, cudaStream_t, const std::string& rule);
[[noreturn]] void violation(const std::string& call, const std::string& rule);
// For work that would take minutes: prints a line, once for each text, and the caller leaves the work out. Ends the
// process unless MILLRACE_SIMULATED_LARGE is skip.
void leave_out(const char* call, cudaStream_t, const std::string& text);

// Every simulated function of a library that enqueues work calls this first. It checks that the calling thread has
// chosen a GPU (cudaSetDevice), that the stream belongs to that GPU, and that no error of an earlier call is left,
// which the library would report as its own.
void check_enqueue(const char* call, cudaStream_t);

// What CUPTI reports of a piece of work.
struct Activity {
  enum class Kind { kernel, copy, fill };
  Kind kind = Kind::kernel;
  std::string name;       // of a kernel, as the compiler mangles it
  std::size_t bytes = 0;  // of a copy or fill
  // A kernel with cudaLaunchAttributeProgrammaticStreamSerialization: if a kernel comes before it in its stream, it may
  // start before that one has ended, and must call wait_for_earlier_kernels().
  bool dependent = false;
};
// Enqueues work: it runs in the thread of the stream, in order. If the stream is in a capture, the work becomes a node
// of the graph, and runs at each replay. So `work` must own all that it needs; it may run several times. what: its name
// in messages. Work may access device memory; the calling thread may not.
void enqueue(cudaStream_t, const std::string& what, std::function<void()> work, Activity = {});

// For the work of a dependent kernel: returns when the kernels before it have ended.
void wait_for_earlier_kernels();

bool is_capturing(cudaStream_t);
// True once for a stream in a capture, if this call shall fail: the capture is then invalid.
bool invalidate_capture(cudaStream_t);

// Device memory, filled with 0xff; null if the GPU has no room. It begins like memory of cudaMalloc, or at a page like
// that of ncclMemAlloc. free_device waits for all work of the GPU, as cudaFree
// does.
void* allocate_device(std::size_t bytes, bool at_page = false);
void free_device(const char* call, void*);
// Ends the process unless [p, p + bytes) lies in one live allocation of device memory. For the arguments of libraries.
void check_device_range(const char* call, cudaStream_t, const void* p, std::size_t bytes);
// The same, but page-locked host memory will do: kernels can read and write it.
void check_accessible_range(const char* call, cudaStream_t, const void* p, std::size_t bytes);

// For work that waits for other ranks: while this object lives, the work does not access device memory.
class Waiting {
 public:
  Waiting();
  ~Waiting();
  Waiting(const Waiting&) = delete;
};

// True after a kernel has failed on purpose. From then on work is skipped, and every call returns that error.
bool context_lost();

// The settings of the environment variables above.
struct Settings {
  int gpus;
  std::size_t memory_bytes;
  std::uint64_t seed;
  double delay_seconds, capture_seconds;
  bool skips_large;
  std::string fault, graphs_file, protection;
};
const Settings& settings();
// For a process that was forked: the environment may have changed since its parent used the settings.
void read_settings_again();
int rank_of_process();  // of mpirun; 0 without it. For messages, and to give ranks different delays
int host_of_process();  // its number, if millrace simulates hosts (MILLRACE_TEST_RANKS_PER_HOST); else 0

}  // namespace millrace::simulated
