#include "simulated_cuda/simulator.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "simulated_cuda/runtime.hpp"

namespace millrace::simulated {
namespace {

constexpr int violation_code = 70;

double number_of(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atof(text) : otherwise;
}

std::atomic<bool> lost{false};
std::atomic<int> captures{0};

Settings settings_of_environment() {
  Settings s;
  s.gpus = int(number_of("MILLRACE_SIMULATED_GPUS", 8));
  s.memory_bytes = std::size_t(number_of("MILLRACE_SIMULATED_MEMORY", 4096)) << 20;
  s.seed = std::uint64_t(number_of("MILLRACE_SIMULATED_SEED", 1));
  s.delay_seconds = number_of("MILLRACE_SIMULATED_DELAY", 50) * 1e-6;
  s.capture_seconds = number_of("MILLRACE_SIMULATED_CAPTURE", 0) * 1e-6;
  const char* large = std::getenv("MILLRACE_SIMULATED_LARGE");
  s.skips_large = large && std::string(large) == "skip";
  const char* fault = std::getenv("MILLRACE_SIMULATED_FAULT");
  s.fault = fault ? fault : "";
  const char* graphs = std::getenv("MILLRACE_SIMULATED_GRAPHS");
  s.graphs_file = graphs ? graphs : "";
  const char* protection = std::getenv("MILLRACE_SIMULATED_PROTECTION");
  s.protection = protection ? protection : "";
  return s;
}
Settings& current_settings() {
  static Settings all = settings_of_environment();
  return all;
}

// A fault "KIND:RANK:N" of MILLRACE_SIMULATED_FAULT.
struct Fault {
  std::string kind;
  int rank = -1;
  long number = 1;
};
const Fault& planned_fault() {
  static const Fault fault = [] {
    Fault f;
    std::istringstream in(settings().fault);
    std::string rank, number;
    std::getline(in, f.kind, ':');
    if (std::getline(in, rank, ':')) f.rank = std::atoi(rank.c_str());
    if (std::getline(in, number, ':')) f.number = std::atol(number.c_str());
    return f;
  }();
  return fault;
}

}  // namespace

const Settings& settings() { return current_settings(); }
void read_settings_again() { current_settings() = settings_of_environment(); }

int rank_of_process() {
  static const int rank = int(number_of("OMPI_COMM_WORLD_RANK", 0));
  return rank;
}

int host_of_process() {
  static const int ranks = int(number_of("MILLRACE_TEST_RANKS_PER_HOST", 0));
  return ranks > 0 ? rank_of_process() / ranks : 0;
}

void violation(const std::string& call, const std::string& rule) {
  const std::string line = fmt::format("simulated CUDA: rank {}: {}: {}\n", rank_of_process(), call, rule);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  std::_Exit(violation_code);
}
void violation(const std::string& call, cudaStream_t stream, const std::string& rule) {
  violation(call + " on " + name_of(stream), rule);
}

void leave_out(const char* call, cudaStream_t stream, const std::string& text) {
  if (!settings().skips_large) violation(call, stream, text + " (MILLRACE_SIMULATED_LARGE=skip leaves it out)");
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard hold(mutex);
  if (said.insert(text).second) fmt::print(stderr, "simulated CUDA: {}: left out\n", text);
}

ThreadState& this_thread() {
  thread_local ThreadState state;
  return state;
}

bool context_lost() { return lost; }
void lose_context() { lost = true; }

cudaError_t done(cudaError_t status) {
  if (lost) status = cudaErrorIllegalAddress;  // sticky: "the only way to continue is to end the process"
  if (status != cudaSuccess) this_thread().last = status;
  return status;
}

bool any_capture() { return captures > 0; }
void note_capture(int change) {
  captures += change;
  this_thread().captures += change;
}

void check_call(const char* call, Safety safety) {
  const ThreadState& thread = this_thread();
  // CUDA C++ programming guide, host functions: work in a stream must not make CUDA calls.
  if (thread.runs_work) violation(call, "is called by work that runs in a stream");
  // The first call of a thread without cudaSetDevice creates a context on GPU 0, which costs memory there and is not
  // the context of this rank.
  if (thread.device < 0) violation(call, "is called by a thread that has not chosen a GPU (cudaSetDevice)");
  // cudaThreadExchangeStreamCaptureMode: a thread with a capture that is not relaxed is prohibited from potentially
  // unsafe calls.
  if (safety == Safety::unsafe_in_capture && thread.captures > 0)
    violation(call, "is not allowed while this thread captures a stream");
  if (Tracer* const all = tracer) all->call(call);
}

void check_enqueue(const char* call, cudaStream_t stream) {
  check_call(call, Safety::always);
  if (const int device = stream_of(call, stream).device; device != this_thread().device)
    violation(call, stream,
              fmt::format("the stream belongs to GPU {}, the thread uses GPU {}", device, this_thread().device));
  // cudaGetLastError: errors stay until they are read. A library reads them after its launches.
  if (const cudaError_t left = this_thread().last; left != cudaSuccess && !lost)
    violation(call, stream, fmt::format("an earlier call of this thread left the error {}", int(left)));
}

std::size_t random_below(std::size_t n) {
  static std::mutex mutex;
  static std::mt19937_64 generator(settings().seed * 1000003 + std::uint64_t(rank_of_process()));
  const std::lock_guard hold(mutex);
  return std::size_t(generator() % n);
}

bool fault_now(const char* kind) {
  static std::atomic<long> calls{0};
  const Fault& fault = planned_fault();
  if (fault.kind != kind || fault.rank != rank_of_process()) return false;
  return ++calls == fault.number;
}

std::atomic<Tracer*> tracer{nullptr};
std::atomic<std::int64_t> busy_nanoseconds{0};

void run_work(const std::string& what, const std::function<void()>& work, WorkOptions options) {
  const double longest = settings().delay_seconds;
  // Most work starts at once, as on a GPU with a full queue; a quarter of it starts late.
  if (longest > 0 && random_below(4) == 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(longest * double(random_below(1000)) / 1000));
  if (lost) return;
  if (fault_now("kernel")) return lose_context();
  ThreadState& thread = this_thread();
  thread.work = what.c_str();
  thread.waited = false;
  if (options.trace) options.trace->begin();
  const auto began = std::chrono::steady_clock::now();
  work();
  busy_nanoseconds += (std::chrono::steady_clock::now() - began) / std::chrono::nanoseconds(1);
  if (options.trace) options.trace->end();
  // A kernel that does not wait may end before the one before it, and the next kernel waits for this one only.
  if (options.dependent && !thread.waited)
    violation(what, "a dependent kernel ends without a wait for earlier kernels");
}

void run_dependent(std::size_t kernels, const std::function<void(std::size_t)>& run) {
  if (kernels == 0) return;
  ThreadState& thread = this_thread();
  thread.earlier = [&, kernels] { run_dependent(kernels - 1, run); };
  run(kernels - 1);
  if (auto skipped = std::exchange(thread.earlier, nullptr)) skipped();  // the context is lost
}

void wait_for_earlier_kernels() {
  ThreadState& thread = this_thread();
  const char* const work = thread.work;
  if (auto earlier = std::exchange(thread.earlier, nullptr)) earlier();
  thread.work = work;
  thread.waited = true;
}

}  // namespace millrace::simulated
