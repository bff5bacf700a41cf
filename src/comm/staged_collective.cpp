// An operation is split into pieces when it starts. Their copies to the host are enqueued at once, each followed by an
// event. The worker takes the pieces in order: it waits for the event, runs the operation with the other ranks, and
// enqueues the copy back to the device. This copy uses the copy stream. On the comm stream, it would queue behind the
// copies of later operations, which wait for their gradients. The copy stream never waits for work that is not enqueued
// yet, so there is no deadlock.
#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "comm/backoff.hpp"
#include "comm/operation.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/comm/staged.hpp"

namespace millrace {
namespace {

struct Region {
  Buffer device;
  SharedRegion host;
};

// A range of elements that the host collective processes at once, and the range that is copied back to the device.
struct Piece {
  const Region* region = nullptr;
  std::size_t begin = 0, count = 0, back_begin = 0, back_count = 0;
  DType dtype = DType::f32;
  std::unique_ptr<Event> here;  // recorded after the copy to the host
  bool first = false, last = false;
  CommSpan span;  // of the whole operation
};

class StagedCollective : public Collective {
 public:
  StagedCollective(World& world, Device& device, const CollectiveOptions& options, StagingHooks hooks)
      : world_(world.duplicate()), device_(device), options_(options), hooks_(std::move(hooks)) {
    CollectiveOptions host = options;
    host.progress = CollectiveOptions::Progress::inline_;  // the worker drives the operations
    host_ = make_host_collective(*world_, host);
    filled_ = device.make_event();
    landed_ = device.make_event();
    moved_ = device.make_event();
    if (world.size() > 1) worker_ = std::thread([this] { serve(); });
  }

  ~StagedCollective() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_.notify_all();
    if (worker_.joinable()) worker_.join();
    try {
      device_.synchronize();  // copies may still be running
    } catch (...) {
    }
    for (const Region& r : regions_)
      if (hooks_.unpin && r.host.data) hooks_.unpin(r.host.data);
  }

  std::string describe() const override {
    return alone() ? "one rank" : fmt::format("through host memory ({})", host_->describe());
  }

  SharedRegion allocate(std::size_t bytes) override {
    Region region;
    region.device = Buffer(device_, MemoryKind::device, std::max<std::size_t>(bytes, 4096));
    if (alone()) {
      regions_.push_back(std::move(region));
      return {regions_.back().device.data(), regions_.back().device.bytes(), int(regions_.size()) - 1};
    }
    region.host = host_->allocate(bytes);
    if (hooks_.pin) hooks_.pin(region.host.data, region.host.bytes);
    regions_.push_back(std::move(region));
    return {regions_.back().device.data(), region.host.bytes, int(regions_.size()) - 1};
  }

  void all_reduce_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    const std::size_t most = std::max<std::size_t>(1, options_.chunk_bytes / size_of(t));
    const CommSpan whole = span(CollectiveOp::all_reduce, tag, count, t);
    start(r, begin, count, t);
    for (std::size_t at = 0; at < count; at += most) {
      const std::size_t n = std::min(most, count - at);
      send({&region(r), begin + at, n, begin + at, n, t, nullptr, at == 0, at + n == count, whole}, begin + at, n);
    }
  }
  // These two operations are not split, because the parts of the ranks depend on the length of the whole range.
  void reduce_scatter_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    const std::size_t part = rank_slice_elements(count);
    start(r, begin, count, t);
    send({&region(r), begin, count, begin + part * rank(), part, t, nullptr, true, true,
          span(CollectiveOp::reduce_scatter, tag, count, t)},
         begin, count);
  }
  void all_gather_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    start_all_gather(r, begin, count, t, span(CollectiveOp::all_gather, tag, count, t));
  }
  void all_gather(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    CommSpan whole = span(CollectiveOp::all_gather, tag, count, t);
    whole.blocking = true;
    start_all_gather(r, begin, count, t, whole);
    wait(tag);
  }

  void wait(int tag) override {
    complete([&] {
      return std::none_of(queue_.begin(), queue_.end(), [&](const Piece& piece) { return piece.span.tag == tag; });
    });
  }
  void finish() override {
    complete([&] { return queue_.empty(); });
  }

  void all_reduce_scalars(std::span<double> values) override { host_->all_reduce_scalars(values); }

  void broadcast(const SharedRegion& r, std::size_t begin, std::size_t bytes, int root) override {
    if (alone()) return;
    MR_CHECK(begin + bytes <= region(r).device.bytes());
    char *host = static_cast<char*>(region(r).host.data) + begin, *here = static_cast<char*>(r.data) + begin;
    if (world_->rank() == root) {
      device_.copy_to_host(Stream::compute, host, here, bytes);
      moved_->record(Stream::compute);
      moved_->synchronize();
    }
    world_->broadcast(host, bytes, root);
    if (world_->rank() == root) return;
    device_.copy_to_device(Stream::compute, here, host, bytes);
    moved_->record(Stream::compute);
    moved_->synchronize();
  }

  void take_spans(std::vector<CommSpan>& out) override {
    out.clear();
    const std::lock_guard lock(mutex_);
    std::swap(out, spans_);
  }

 private:
  // Waits for the worker until done(). Then makes the compute stream wait for all copies to the device so far.
  template <class Done>
  void complete(const Done& done) {
    if (alone()) return;
    std::unique_lock lock(mutex_);
    advanced_.wait(lock, [&] { return failure_ || done(); });  // the host collective has the timeout
    if (failure_) std::rethrow_exception(failure_);
    landed_->wait(Stream::compute);
  }

  bool alone() const { return world_->size() == 1; }
  std::size_t rank() const { return std::size_t(world_->rank()); }
  const Region& region(const SharedRegion& r) const {
    MR_CHECK(r.id >= 0 && r.id < int(regions_.size()));
    return regions_[std::size_t(r.id)];
  }
  std::size_t rank_slice_elements(std::size_t count) const {
    MR_CHECK(count % std::size_t(world_->size()) == 0);
    return count / std::size_t(world_->size());
  }
  static CommSpan span(CollectiveOp op, int tag, std::size_t count, DType t) {
    return {tag, count * size_of(t), steady_seconds(), 0, 0, false, op};
  }

  void start_all_gather(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, const CommSpan& whole) {
    const std::size_t part = rank_slice_elements(count);
    start(r, begin, count, t);
    send({&region(r), begin, count, begin, count, t, nullptr, true, true, whole}, begin + part * rank(), part);
  }

  // Makes the comm stream wait for the work that is enqueued on the compute stream so far.
  void start(const SharedRegion& r, std::size_t begin, std::size_t count, DType t) {
    MR_CHECK((begin + count) * size_of(t) <= region(r).device.bytes());
    if (alone()) return;
    filled_->record(Stream::compute);
    filled_->wait(Stream::comm);
  }

  // Copies the elements [begin, begin + count) to the host and passes the piece to the worker.
  void send(Piece piece, std::size_t begin, std::size_t count) {
    if (alone()) return;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) std::rethrow_exception(failure_);
      if (!spare_.empty()) {
        piece.here = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    if (!piece.here) piece.here = device_.make_event();
    const std::size_t size = size_of(piece.dtype), at = begin * size;
    device_.copy_to_host(Stream::comm, static_cast<char*>(piece.region->host.data) + at,
                         static_cast<char*>(piece.region->device.data()) + at, count * size);
    piece.here->record(Stream::comm);
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(piece));
    work_.notify_one();
  }

  void serve() {
    try {
      if (hooks_.begin_thread) hooks_.begin_thread();
      double started = 0;
      for (;;) {
        Piece* piece;
        {
          std::unique_lock lock(mutex_);
          work_.wait(lock, [&] { return ending_ || !queue_.empty(); });
          if (ending_) return;
          piece = &queue_.front();  // stays valid while other threads add pieces
        }
        piece->here->synchronize();
        if (piece->first) started = steady_seconds();
        sum(*piece);
        const std::size_t at = piece->back_begin * size_of(piece->dtype);
        device_.copy_to_device(Stream::copy, static_cast<char*>(piece->region->device.data()) + at,
                               static_cast<char*>(piece->region->host.data) + at,
                               piece->back_count * size_of(piece->dtype));
        piece->span.started = started;
        piece->span.ended = steady_seconds();

        const std::lock_guard lock(mutex_);
        landed_->record(Stream::copy);
        if (piece->last) spans_.push_back(piece->span);
        spare_.push_back(std::move(piece->here));
        queue_.pop_front();
        advanced_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      advanced_.notify_all();
    }
  }

  void sum(const Piece& p) {
    const SharedRegion& host = p.region->host;
    if (p.span.op == CollectiveOp::all_reduce)
      host_->all_reduce_async(host, p.begin, p.count, p.dtype, p.span.tag);
    else if (p.span.op == CollectiveOp::reduce_scatter)
      host_->reduce_scatter_async(host, p.begin, p.count, p.dtype, p.span.tag);
    else
      host_->all_gather_async(host, p.begin, p.count, p.dtype, p.span.tag);
    host_->finish();
    host_->take_spans(unused_);
  }

  std::unique_ptr<World> world_;
  Device& device_;
  CollectiveOptions options_;
  StagingHooks hooks_;
  std::unique_ptr<Collective> host_;
  std::deque<Region> regions_;             // a deque, because pieces hold pointers to its elements
  std::unique_ptr<Event> filled_, moved_;  // used by the calling thread only
  std::vector<CommSpan> unused_;           // used by the worker only
  std::thread worker_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable work_, advanced_;
  std::unique_ptr<Event> landed_;  // recorded after the last copy to the device
  std::deque<Piece> queue_;
  std::vector<std::unique_ptr<Event>> spare_;
  std::vector<CommSpan> spans_;
  std::exception_ptr failure_;
  bool ending_ = false;
};

}  // namespace

std::unique_ptr<Collective> make_staged_collective(World& world, Device& device, const CollectiveOptions& options,
                                                   StagingHooks hooks) {
  return std::make_unique<StagedCollective>(world, device, options, std::move(hooks));
}

}  // namespace millrace
