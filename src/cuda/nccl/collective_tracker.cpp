#include "cuda/nccl/collective_tracker.hpp"

#include <algorithm>
#include <atomic>

#include "cuda/errors/check.hpp"
#include "cuda/runtime/increment_counter.hpp"
#include "millrace/base/clock.hpp"

namespace millrace::cuda {
namespace {

using Kind = Watchdog::Kind;

bool is_complete(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaSuccess) return true;
  (void)cudaGetLastError();  // the next kernel launch would report it otherwise
  if (status != cudaErrorNotReady) check(status, "an event of a collective");
  return false;
}

// Reads a counter that the GPU increments.
std::uint64_t read_counter(std::uint64_t& counter) { return std::atomic_ref<std::uint64_t>(counter).load(); }

}  // namespace

CollectiveTracker::CollectiveTracker(double timeout_seconds) : watchdog_(timeout_seconds) {
  void* memory = nullptr;
  MR_CUDA(cudaHostAlloc(&memory, max_captures * sizeof *counters_, cudaHostAllocMapped | cudaHostAllocPortable));
  counters_ = static_cast<Counters*>(memory);
  std::fill_n(counters_, max_captures, Counters{});
  // Loads the kernel now, because CUDA may refuse to load it during a capture.
  increment_counter({nullptr}, &counters_[0].begun);
  MR_CUDA(cudaStreamSynchronize(nullptr));
  counters_[0] = {};
}

CollectiveTracker::~CollectiveTracker() {
  for (const Operation& op : in_flight_) spare_.push_back({op.started, op.ended});
  for (const Capture& capture : captures_)
    for (const Operation& op : capture.operations) spare_.push_back({op.started, op.ended});
  for (const EventPair& pair : spare_) {
    cudaEventDestroy(pair.started);
    cudaEventDestroy(pair.ended);
  }
  cudaFreeHost(counters_);
}

CollectiveTracker::EventPair CollectiveTracker::take_pair() {
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

CollectiveTracker::Operation CollectiveTracker::prepare(Kind kind, int tag, std::size_t bytes, bool blocking) {
  Operation op;
  const std::lock_guard lock(mutex_);
  const EventPair pair = take_pair();
  op.started = pair.started;
  op.ended = pair.ended;
  op.kind = kind;
  op.span = {tag, bytes, steady_seconds(), 0, 0, blocking};
  return op;
}

CollectiveTracker::Operation CollectiveTracker::begin(Kind kind, int tag, std::size_t bytes, StreamHandle stream,
                                                      StreamHandle blocked) {
  const Operation op = prepare(kind, tag, bytes, blocked != nullptr);
  MR_CUDA(cudaEventRecord(op.started, blocked ? blocked : stream));
  return op;
}

void CollectiveTracker::end(Operation op, StreamHandle stream) {
  MR_CUDA(cudaEventRecord(op.ended, stream));
  const std::lock_guard lock(mutex_);
  op.number = watchdog_.begin(op.kind, op.span.tag, op.span.bytes, op.span.queued);
  in_flight_.push_back(op);
}

void CollectiveTracker::begin_captured(StreamHandle stream) {
  {
    const std::lock_guard lock(mutex_);
    captures_.emplace_back();
  }
  increment_counter({stream}, &counters().begun);
}

void CollectiveTracker::end_captured(StreamHandle stream) { increment_counter({stream}, &counters().ended); }

CollectiveTracker::Operation CollectiveTracker::begin_captured_operation(Kind kind, int tag, std::size_t bytes,
                                                                         StreamHandle stream, StreamHandle blocked) {
  const Operation op = prepare(kind, tag, bytes, blocked != nullptr);
  increment_counter({stream}, &counters().operations_begun);
  // external: the host reads its time
  MR_CUDA(cudaEventRecordWithFlags(op.started, blocked ? blocked : stream, cudaEventRecordExternal));
  return op;
}

void CollectiveTracker::end_captured_operation(Operation op, StreamHandle stream) {
  MR_CUDA(cudaEventRecordWithFlags(op.ended, stream, cudaEventRecordExternal));
  increment_counter({stream}, &counters().operations_ended);
  const std::lock_guard lock(mutex_);
  captures_.back().operations.push_back(op);
}

void CollectiveTracker::take_spans(std::vector<CommSpan>& out) {
  out.clear();
  const std::lock_guard lock(mutex_);
  poll();
  take_replayed();
  std::swap(out, spans_);
}

void CollectiveTracker::poll() {
  while (!in_flight_.empty() && is_complete(in_flight_.front().ended)) {
    Operation op = in_flight_.front();
    watchdog_.done(op.number, steady_seconds());
    add_span(op);
    spare_.push_back({op.started, op.ended});
    in_flight_.pop_front();
  }
}

void CollectiveTracker::add_span(const Operation& op) {
  if (op.kind == Kind::step || op.kind == Kind::broadcast) return;
  CommSpan span = op.span;
  span.op = op.kind == Kind::all_gather       ? CollectiveOp::all_gather
            : op.kind == Kind::reduce_scatter ? CollectiveOp::reduce_scatter
                                              : CollectiveOp::all_reduce;
  span.started = std::max(span.queued, clock_.seconds_of(op.started));
  span.ended = std::max(span.started, clock_.seconds_of(op.ended));
  spans_.push_back(span);
}

void CollectiveTracker::take_replayed() {
  for (std::size_t i = 0; i < std::min(captures_.size(), max_captures - 1); ++i) {
    Capture& capture = captures_[i];
    const std::uint64_t ended = read_counter(counters_[i].ended);
    if (ended == capture.seen) continue;
    if (!std::all_of(capture.operations.begin(), capture.operations.end(),
                     [](const Operation& op) { return is_complete(op.started) && is_complete(op.ended); }))
      continue;  // the next replay runs already
    capture.seen = ended;
    for (Operation op : capture.operations) {
      op.span.queued = clock_.seconds_of(op.started);
      add_span(op);
    }
  }
}

// Reads the `ended` counters before the `begun` counters, so that ended <= begun holds in the result.
Watchdog::Replays CollectiveTracker::replays() const {
  Watchdog::Replays all;
  for (std::size_t i = 0; i < std::min(captures_.size(), max_captures); ++i) {
    Counters& c = counters_[i];
    const std::uint64_t ended = read_counter(c.ended), operations_ended = read_counter(c.operations_ended),
                        begun = read_counter(c.begun);
    all.ended += ended;
    all.begun += begun;
    all.operations_ended += operations_ended;
    all.operations_begun += read_counter(c.operations_begun);
    if (begun == ended || i >= captures_.size() || i == max_captures - 1) continue;
    const auto& operations = captures_[i].operations;
    const std::uint64_t done = operations_ended - ended * operations.size();
    if (done >= operations.size()) continue;
    const Operation& next = operations[done];
    all.known = true;
    all.kind = next.kind;
    all.tag = next.span.tag;
    all.bytes = next.span.bytes;
  }
  return all;
}

std::optional<Watchdog::StalledOperation> CollectiveTracker::late() {
  const std::lock_guard lock(mutex_);
  poll();
  const double time = steady_seconds();
  if (time - clock_.renewed() > 20) clock_.renew();
  watchdog_.replays(replays(), time);
  return watchdog_.late(time);
}

std::string CollectiveTracker::running_operation() {
  const std::unique_lock lock(mutex_, std::try_to_lock);  // the holder of the lock may itself be describing a failure
  if (!lock.owns_lock()) return "";
  const Watchdog::Replays r = replays();
  if (!r.known || r.operations_begun == r.operations_ended) return "";
  return Watchdog::name_of(r.kind, r.tag, r.bytes);
}

std::uint64_t CollectiveTracker::begun() {
  const std::lock_guard lock(mutex_);
  return watchdog_.begun();
}

}  // namespace millrace::cuda
