#include "tracker.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "check.hpp"
#include "count_up.hpp"

namespace millrace::cuda {
namespace {

using Kind = Watchdog::Kind;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Not ready counts as an error that launches of kernels would stumble over.
bool happened(cudaEvent_t event) {
  if (cudaEventQuery(event) == cudaSuccess) return true;
  (void)cudaGetLastError();
  return false;
}

}  // namespace

Tracker::Tracker(double timeout_seconds) : watchdog_(timeout_seconds) {
  void* memory = nullptr;
  MR_CUDA(cudaHostAlloc(&memory, 2 * sizeof *counters_, cudaHostAllocMapped | cudaHostAllocPortable));
  counters_ = static_cast<std::uint64_t*>(memory);
  counters_[0] = counters_[1] = 0;
}

Tracker::~Tracker() {
  for (const Operation& op : in_flight_) spare_.push_back({op.started, op.ended});
  for (const EventPair& pair : spare_) cudaEventDestroy(pair.started), cudaEventDestroy(pair.ended);
  cudaFreeHost(counters_);
}

Tracker::EventPair Tracker::take_pair() {
  EventPair pair;
  if (spare_.empty()) {
    MR_CUDA(cudaEventCreate(&pair.started));
    MR_CUDA(cudaEventCreate(&pair.ended));
  } else {
    pair = spare_.back();
    spare_.pop_back();
  }
  return pair;
}

Tracker::Operation Tracker::begin(Kind kind, int tag, std::size_t bytes, Stream stream) {
  Operation op;
  {
    const std::lock_guard lock(mutex_);
    const EventPair pair = take_pair();
    op.started = pair.started, op.ended = pair.ended;
  }
  op.kind = kind, op.span = {tag, bytes, now(), 0, 0};
  MR_CUDA(cudaEventRecord(op.started, stream));
  return op;
}

void Tracker::end(Operation op, Stream stream) {
  MR_CUDA(cudaEventRecord(op.ended, stream));
  const std::lock_guard lock(mutex_);
  op.number = watchdog_.begin(op.kind, op.span.tag, op.span.bytes, op.span.queued);
  in_flight_.push_back(op);
}

void Tracker::begin_captured(Stream stream) { count_up({stream}, counters_); }
void Tracker::end_captured(Stream stream) { count_up({stream}, counters_ + 1); }

void Tracker::take_spans(std::vector<CommSpan>& out) {
  out.clear();
  const std::lock_guard lock(mutex_);
  poll();
  std::swap(out, spans_);
}

void Tracker::poll() {
  while (!in_flight_.empty() && happened(in_flight_.front().ended)) {
    Operation op = in_flight_.front();
    watchdog_.done(op.number, now());
    if (op.kind != Kind::step && op.kind != Kind::broadcast) {
      op.span.started = std::max(op.span.queued, clock_.seconds_of(op.started));
      op.span.ended = std::max(op.span.started, clock_.seconds_of(op.ended));
      spans_.push_back(op.span);
    }
    spare_.push_back({op.started, op.ended});
    in_flight_.pop_front();
  }
}

std::optional<Watchdog::Late> Tracker::late() {
  const std::lock_guard lock(mutex_);
  poll();
  const double time = now();
  if (time - clock_.renewed() > 20) clock_.renew();
  const auto count = [&](int k) { return std::atomic_ref<std::uint64_t>(counters_[k]).load(); };
  watchdog_.replays(count(0), count(1), time);
  return watchdog_.late(time);
}

std::uint64_t Tracker::begun() {
  const std::lock_guard lock(mutex_);
  return watchdog_.begun();
}

}  // namespace millrace::cuda
