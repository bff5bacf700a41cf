// Events, and waits for them.
#include <fmt/core.h>

#include <chrono>

#include "simulated_cuda/runtime.hpp"

struct CUevent_st {
  std::shared_ptr<millrace::simulated::EventState> state;
};

namespace millrace::simulated {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::mutex events_mutex;
std::set<cudaEvent_t>& events() {
  static auto* const all = new std::set<cudaEvent_t>;
  return *all;
}

std::string name_of(const EventState& event) { return fmt::format("event {}", event.number); }

cudaError_t create(const char* call, cudaEvent_t* out, unsigned flags) {
  static std::atomic<int> made{0};
  check_call(call, Safety::always);
  auto* event = new CUevent_st{std::make_shared<EventState>()};
  event->state->number = made++;
  event->state->timing = (flags & cudaEventDisableTiming) == 0;
  const std::lock_guard hold(events_mutex);
  events().insert(event);
  *out = event;
  return done(cudaSuccess);
}

// An event that was recorded in a capture (without the external flag) stands for a place in that graph:
// cudaErrorCapturedEvent.
void check_not_captured(const char* call, const EventState& event) {
  check_call(call, Safety::unsafe_in_capture);
  if (event.capture) violation(call, name_of(event) + " was last recorded in a capture, which this call invalidates");
}

cudaError_t record(const char* call, cudaEvent_t handle, cudaStream_t stream_handle, unsigned flags) {
  check_enqueue(call, stream_handle);
  const auto event = event_of(call, handle);
  Stream& stream = stream_of(call, stream_handle);
  const std::lock_guard hold(api_mutex());
  const bool external = flags == cudaEventRecordExternal;
  if (!stream.capture) {
    // cudaEventRecordWithFlags: the external flag is for streams in a capture.
    if (external) violation(call, stream_handle, "the external flag outside of a capture");
    event->capture = nullptr;
    event->nodes.clear();
    event->last = std::make_shared<Recording>();
    stream.push({[recording = event->last] {
      run_work("an event", [] {});
      recording->set();
    }});
    return done(cudaSuccess);
  }
  if (external) {
    add_node(stream, {name_of(*event), {}, nullptr, event, nullptr});
  } else {
    event->last = nullptr;
    event->capture = stream.capture;
    event->nodes = stream.frontier;
  }
  return done(cudaSuccess);
}

// A wait of a stream that is in a capture.
void wait_in_capture(cudaStream_t handle, Stream& stream, const std::shared_ptr<EventState>& event, unsigned flags) {
  const char* call = "cudaStreamWaitEvent";
  if (flags == cudaEventWaitExternal) {
    add_node(stream, {"wait for " + name_of(*event), {}, nullptr, nullptr, event});
    return;
  }
  // The same chapter as in streams.cpp: it is invalid to wait for an event that was not captured, without the external
  // flag (cudaErrorStreamCaptureIsolation), or that belongs to another capture (cudaErrorStreamCaptureMerge).
  if (!event->capture)
    violation(call, handle, name_of(*event) + " was not recorded in this capture, and the external flag is missing");
  if (event->capture != stream.capture)
    violation(call, handle, name_of(*event) + " belongs to another capture, which would merge the two");
  stream.frontier.insert(event->nodes.begin(), event->nodes.end());
}

}  // namespace

void Recording::set() {
  seconds = now();
  done = true;
  done.notify_all();
}
void Recording::wait() { done.wait(false); }

std::shared_ptr<EventState> event_of(const char* call, cudaEvent_t event) {
  const std::lock_guard hold(events_mutex);
  if (!events().contains(event)) violation(call, "the event does not exist (any more)");
  return event->state;
}

}  // namespace millrace::simulated

using namespace millrace::simulated;

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* out) { return create("cudaEventCreate", out, cudaEventDefault); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return create("cudaEventCreateWithFlags", out, flags);
}
// "The resources are released once the event's work is complete": what still runs keeps the state.
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const auto event = event_of("cudaEventDestroy", handle);
  {
    const std::lock_guard hold(api_mutex());
    event->destroyed = true;
  }
  const std::lock_guard hold(events_mutex);
  events().erase(handle);
  delete handle;
  return done(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return record("cudaEventRecord", event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return record("cudaEventRecordWithFlags", event, stream, flags);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  const char* call = "cudaStreamWaitEvent";
  check_enqueue(call, handle);
  const auto event = event_of(call, event_handle);
  Stream& stream = stream_of(call, handle);
  const std::lock_guard hold(api_mutex());
  if (stream.capture) {
    wait_in_capture(handle, stream, event, flags);
    return done(cudaSuccess);
  }
  if (flags == cudaEventWaitExternal) violation(call, handle, "the external flag outside of a capture");
  if (event->capture) {
    // A wait for an event of a running capture adds the stream to that capture. After its end the event stands for
    // nothing (cudaErrorCapturedEvent).
    if (event->capture->ended)
      violation(call, handle, fmt::format("event {} was last recorded in a capture that has ended", event->number));
    stream.capture = event->capture;
    stream.capture->streams.insert(handle);
    stream.frontier = event->nodes;
  } else if (event->last) {
    stream.push({[recording = event->last] { recording->wait(); }});
  }
  return done(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const auto event = event_of("cudaEventQuery", handle);
  const std::lock_guard hold(api_mutex());
  check_not_captured("cudaEventQuery", *event);
  return done(!event->last || event->last->done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const auto event = event_of("cudaEventSynchronize", handle);
  std::shared_ptr<Recording> last;
  {
    const std::lock_guard hold(api_mutex());
    check_not_captured("cudaEventSynchronize", *event);
    last = event->last;
  }
  if (last) last->wait();
  return done(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const char* call = "cudaEventElapsedTime";
  check_call(call, Safety::always);
  const auto first = event_of(call, from), second = event_of(call, to);
  const std::lock_guard hold(api_mutex());
  for (const auto& event : {first, second}) {
    if (event->capture) violation(call, fmt::format("event {} was last recorded in a capture", event->number));
    // cudaErrorInvalidResourceHandle in both cases.
    if (!event->timing) violation(call, fmt::format("event {} was made with cudaEventDisableTiming", event->number));
    if (!event->last) violation(call, fmt::format("event {} was never recorded", event->number));
  }
  if (!first->last->done || !second->last->done) return done(cudaErrorNotReady);
  *milliseconds = float((second->last->seconds - first->last->seconds) * 1e3);
  return done(cudaSuccess);
}
}
