// Streams: each is a thread that runs its queue in order.
#include <fmt/core.h>

#include <chrono>

#include "simulated_cuda/memory/memory.hpp"
#include "simulated_cuda/runtime.hpp"

namespace millrace::simulated {
namespace {

std::mutex streams_mutex;
std::set<cudaStream_t>& streams() {
  static auto* const all = new std::set<cudaStream_t>;  // never destroyed: streams may outlive main()
  return *all;
}

// Whether the next piece of work starts before this one now.
bool may_start_early(const Work& work, const Work& next) {
  return work.kernel && next.dependent && random_below(2) == 0;
}

void serve(CUstream_st* stream) {
  this_thread().runs_work = true;
  std::unique_lock hold(stream->mutex);
  for (;;) {
    stream->changed.wait(hold, [&] { return !stream->queue.empty() || stream->closing; });
    if (stream->queue.empty()) break;
    std::vector<Work> works;
    do {
      works.push_back(std::move(stream->queue.front()));
      stream->queue.pop_front();
    } while (!stream->queue.empty() && may_start_early(works.back(), stream->queue.front()));
    stream->busy = true;
    hold.unlock();
    run_dependent(works.size(), [&](std::size_t k) { works[k].run(); });
    hold.lock();
    stream->busy = false;
    stream->changed.notify_all();
  }
  hold.unlock();
  delete stream;
}

CUstream_st* make_stream(int device, int priority) {
  static std::atomic<int> made{0};
  auto* stream = new CUstream_st;
  stream->number = made++;
  stream->device = device;
  stream->priority = priority;
  std::thread(serve, stream).detach();
  const std::lock_guard hold(streams_mutex);
  streams().insert(stream);
  return stream;
}

CUstream_st* null_stream() {
  static std::map<int, CUstream_st*> of_device;
  static std::mutex mutex;
  const std::lock_guard hold(mutex);
  auto& stream = of_device[this_thread().device];
  if (!stream) stream = make_stream(this_thread().device, 0);
  return stream;
}

cudaError_t create(const char* call, cudaStream_t* out, unsigned flags, int priority) {
  check_call(call, Safety::always);
  // Other streams would wait for the null stream implicitly, which is not simulated.
  if (flags != cudaStreamNonBlocking) violation(call, "only streams with cudaStreamNonBlocking are simulated");
  *out = make_stream(this_thread().device, priority);
  return done(cudaSuccess);
}

}  // namespace

void Stream::push(Work work) {
  const std::lock_guard hold(mutex);
  queue.push_back(std::move(work));
  changed.notify_all();
}
bool Stream::idle() {
  const std::lock_guard hold(mutex);
  return queue.empty() && !busy;
}
void Stream::wait_until_idle() {
  std::unique_lock hold(mutex);
  changed.wait(hold, [&] { return queue.empty() && !busy; });
}

Stream& stream_of(const char* call, cudaStream_t stream) {
  if (!stream) return *null_stream();
  const std::lock_guard hold(streams_mutex);
  if (!streams().contains(stream)) violation(call, "the stream does not exist (any more)");
  return *stream;
}

std::string name_of(cudaStream_t stream) {
  return stream ? fmt::format("stream {}", stream->number) : "the null stream";
}

std::vector<cudaStream_t> all_streams() {
  const std::lock_guard hold(streams_mutex);
  return {streams().begin(), streams().end()};
}
void wait_for_all_streams() {
  for (const cudaStream_t stream : all_streams()) stream->wait_until_idle();
}

void enqueue(cudaStream_t handle, const std::string& what, std::function<void()> work, Activity activity) {
  Stream& stream = stream_of(what.c_str(), handle);
  {
    const std::lock_guard hold(api_mutex());
    if (stream.capture) {
      add_node(stream, {what, {}, std::move(work), nullptr, nullptr, std::move(activity)});
      return;
    }
  }
  Tracer* const all = tracer;
  const bool kernel = activity.kind == Activity::Kind::kernel, dependent = activity.dependent;
  const auto run = [what, work = std::move(work), trace = all ? all->launch(activity, stream) : nullptr, dependent] {
    const DeviceAccess access;
    run_work(what, work, {trace.get(), dependent});
  };
  stream.push({run, kernel, dependent});
}

}  // namespace millrace::simulated

using namespace millrace::simulated;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return create("cudaStreamCreateWithFlags", out, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  return create("cudaStreamCreateWithPriority", out, flags, priority);
}

// "The function returns immediately, and the resources are released once the stream's work is complete."
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Stream& stream = stream_of("cudaStreamDestroy", handle);
  {
    const std::lock_guard hold(api_mutex());
    if (stream.capture) violation("cudaStreamDestroy", handle, "the stream is in a capture");
  }
  {
    const std::lock_guard hold(streams_mutex);
    streams().erase(handle);
  }
  const std::lock_guard hold(stream.mutex);
  stream.closing = true;
  stream.changed.notify_all();
  return done(cudaSuccess);
}

// CUDA C++ programming guide, "Prohibited and unhandled operations": it is invalid to synchronize or query the
// execution status of a stream which is being captured. Any thread, any capture mode; it invalidates the capture.
static void check_not_captured(const char* call, cudaStream_t handle) {
  check_call(call, Safety::unsafe_in_capture);
  Stream& stream = stream_of(call, handle);
  const std::lock_guard hold(api_mutex());
  if (stream.capture) violation(call, handle, "the stream is in a capture, which this call invalidates");
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  check_not_captured("cudaStreamQuery", handle);
  return done(stream_of("cudaStreamQuery", handle).idle() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  check_not_captured("cudaStreamSynchronize", handle);
  stream_of("cudaStreamSynchronize", handle).wait_until_idle();
  return done(cudaSuccess);
}

// The same chapter: the same holds for a device when any of its streams is in a capture.
cudaError_t cudaDeviceSynchronize() {
  check_call("cudaDeviceSynchronize", Safety::unsafe_in_capture);
  if (any_capture())
    violation("cudaDeviceSynchronize", "a stream of the GPU is in a capture, which this call invalidates");
  wait_for_all_streams();
  return done(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  check_call("cudaDeviceGetStreamPriorityRange", Safety::always);
  *least = 0;
  *greatest = -5;
  return done(cudaSuccess);
}
}
