// The CPU's collective. Operations are numbered in the order in which all ranks begin them. A rank posts "begun k" when
// its data of operation k are final; when all ranks of the host have begun k, each sums its slice of the range over all
// ranks' memory and writes the result to all, then posts "done k". The range may be touched again when all have done k.
// No rank copies anything, and the order of a sum is the order of ranks. Between hosts, and with private memory, slices
// go in messages of MPI (exchange.hpp): only after all ranks have met (MPI itself waits for ever), in the worker and
// never in the caller.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "comm/backoff.hpp"
#include "comm/operation.hpp"
#include "comm/shared_memory.hpp"
#include "comm/shm_capacity.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/comm/collective.hpp"
#include "millrace/comm/placement.hpp"
#include "millrace/comm/progress_board.hpp"
#include "millrace/system/cores.hpp"

namespace millrace {
namespace {

using Counter = std::atomic<std::uint64_t> RankCounters::*;
using Barrier = SharedMemory::Barrier;

// "1, 2, 5", at most eight of them.
std::string list(const std::vector<int>& ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) out += cat(i ? ", " : "", ranks[i]);
  return out + (ranks.size() > 8 ? ", ..." : "");
}

std::string name_of(const Operation& op) {
  return cat(op.span.op == CollectiveOp::all_gather       ? "gather "
             : op.span.op == CollectiveOp::reduce_scatter ? "scattered sum "
                                                          : "sum ",
             op.span.tag);
}

class HostCollective : public Collective {
 public:
  HostCollective(World& world, const CollectiveOptions& options)
      : world_(world),
        options_(options),
        alone_(world.size() == 1),
        executor_(world.rank(), world.size(), options.chunk_bytes) {
    if (alone_) return;
    if (!world.mpi_comm()) {
      memory_ = make_thread_memory(world);
    } else {
      const bool room = options.private_memory || fits_in_shared_memory(world, sizeof(RankCounters));
      if (!room) say_private(sizeof(RankCounters));
      memory_ = make_mpi_memory(world, options.private_memory || !room);
    }
    const MappedRegion board = memory_->allocate(sizeof(RankCounters));
    for (void* peer : board.peers) boards_.push_back(static_cast<RankCounters*>(peer));
    mine_ = boards_[std::size_t(memory_->local)];
    const auto nodes = world.gather(std::to_string(world.node()));
    for (int r = 0; r < world.size(); ++r)
      if (memory_->shared() ? nodes[std::size_t(r)] == std::to_string(world.node()) : r == world.rank())
        near_ranks_.push_back(r);
    if (!memory_->one_host) all_ranks_ = make_progress_board(world);
    spans_.reserve(4096);
    threaded_ = uses_progress_thread(world, options.progress);
    if (threaded_ || !memory_->one_host) start_worker();
  }

  ~HostCollective() override {
    if (stuck_) world_.abort(int(Exit::comm));  // MPI holds the worker: neither it nor its memory can be freed
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_.notify_all();
    if (worker_.joinable()) worker_.join();
    for (void* p : owned_) std::free(p);
  }

  std::string describe() const override {
    if (alone_) return "one rank";
    const std::string how = memory_->shared() && !fallback_
                                ? cat("shared window, ", near_ranks_.size(), " ranks a host")
                                : std::string("private memory and MPI sums");
    return how + (threaded_ ? ", progress thread" : ", progress inside the step");
  }

  SharedRegion allocate(std::size_t bytes) override {
    bytes = std::max<std::size_t>(bytes, 4096);
    const int id = int(regions_.size());
    if (alone_) {
      void* data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
      if (!data) fail(Exit::config, "no memory for ", format_bytes(bytes), " of gradients. use a smaller model");
      std::memset(data, 0, bytes);
      owned_.push_back(data);
      regions_.push_back({data, {data}, bytes, nullptr});
      return {data, bytes, id};
    }
    SharedMemory* memory = memory_.get();
    if (memory->shared() && world_.mpi_comm() && !fits_in_shared_memory(world_, bytes)) {
      say_private(bytes);
      if (!fallback_) fallback_ = make_mpi_memory(world_, true);
      memory = fallback_.get();
      start_worker();
    }
    regions_.push_back(memory->allocate(bytes));
    return {regions_.back().mine, bytes, id};
  }

  void all_reduce_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    this->begin(CollectiveOp::all_reduce, r, begin, count, t, tag);
  }
  void reduce_scatter_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    this->begin(CollectiveOp::reduce_scatter, r, begin, count, t, tag);
  }
  void all_gather_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    this->begin(CollectiveOp::all_gather, r, begin, count, t, tag);
  }

  void wait(int tag) override {
    if (alone_) return;
    const auto newest = newest_.find(tag);
    MR_CHECK(newest != newest_.end(), "nothing was begun with tag ", tag);
    complete(newest->second);
  }
  void finish() override {
    if (!alone_) complete(begun_);
  }

  void all_reduce_scalars(std::span<double> values) override {
    if (alone_) return;
    for (std::size_t at = 0; at < values.size(); at += RankCounters::values_count)
      sum_values(values.subspan(at, std::min(RankCounters::values_count, values.size() - at)));
  }

  void broadcast(const SharedRegion& r, std::size_t begin, std::size_t bytes, int root) override {
    world_.broadcast(static_cast<char*>(r.data) + begin, bytes, root);
  }

  void take_spans(std::vector<CommSpan>& out) override {
    out.clear();
    const std::lock_guard lock(mutex_);
    std::swap(out, spans_);
    if (spans_.capacity() == 0) spans_.reserve(4096);
  }

 private:
  void post() {
    if (all_ranks_) all_ranks_->post(++posted_);
  }

  bool all_reached(Counter counter, std::uint64_t value) const {
    return std::all_of(boards_.begin(), boards_.end(),
                       [&](const RankCounters* b) { return (b->*counter).load(std::memory_order_acquire) >= value; });
  }

  [[noreturn]] void fail_waiting(const std::string& what, const std::string& who) const {
    fail(Exit::comm, "waited ", options_.timeout_seconds, " s for ", what, " (", who,
         "). see what held it up, or raise comm.timeout");
  }
  [[noreturn]] void fail_late(const std::string& what, Counter counter, std::uint64_t value) const {
    if (all_ranks_) {  // a rank of this host may itself wait for one of another
      const auto standing = all_ranks_->query_ranks(posted_, 0.5);
      if (!standing.behind.empty() || !standing.silent.empty()) fail_waiting(what, all_ranks_->words(standing));
    }
    std::vector<int> late;
    for (std::size_t r = 0; r < boards_.size(); ++r)
      if ((boards_[r]->*counter).load() < value) late.push_back(near_ranks_[r]);
    fail_waiting(what, cat("late: rank ", list(late), " on ", world_.host()));
  }
  [[noreturn]] void fail_far(const std::string& what) const {
    fail_waiting(what, all_ranks_ ? all_ranks_->words(all_ranks_->query_ranks(posted_, 0.5)) : "within MPI");
  }

  // Until all ranks have begun op, the oldest one. False: the collective goes away.
  bool await(const Operation& op) {
    Backoff backoff(options_.timeout_seconds);
    while (!all_reached(&RankCounters::begun, executed_ + 1)) {
      if (ending_) return false;
      if (!backoff.wait()) fail_late(name_of(op), &RankCounters::begun, executed_ + 1);
    }
    SharedMemory& memory = *op.region->memory;
    if (memory.one_host) return true;
    backoff.spin_again();
    while (!memory.barrier_passed(Barrier::operation)) {
      if (ending_) return false;
      if (!backoff.wait()) fail_far(name_of(op));
    }
    return true;
  }

  void begin(CollectiveOp op, const SharedRegion& r, std::size_t begin, std::size_t count, DType dtype, int tag) {
    if (alone_) return;
    MR_CHECK(r.id >= 0 && r.id < int(regions_.size()));
    const MappedRegion& region = regions_[std::size_t(r.id)];
    MR_CHECK((begin + count) * size_of(dtype) <= region.bytes);
    MR_CHECK(op == CollectiveOp::all_reduce || count % std::size_t(world_.size()) == 0);
    {
      const std::lock_guard lock(mutex_);
      if (failure_) std::rethrow_exception(failure_);
      queue_.push_back({&region, begin, count, dtype, {tag, count * size_of(dtype), seconds_now(), 0, 0, false, op}});
    }
    mine_->begun.store(++begun_, std::memory_order_release);
    post();
    newest_[tag] = begun_;
    if (threaded_) work_.notify_one();
    if (worker_.joinable()) return;
    while (!queue_.empty() && all_reached(&RankCounters::begun, executed_ + 1)) run_front(true);
  }

  // Returns when all ranks have done their operations up to this number.
  void complete(std::uint64_t number) {
    if (worker_.joinable())
      await_worker(number);
    else
      while (executed_ < number) {
        await(queue_.front());
        run_front();
      }
    Backoff backoff(options_.timeout_seconds);
    while (!all_reached(&RankCounters::done, number))
      if (!backoff.wait()) fail_late("the end of a step's sums", &RankCounters::done, number);
  }

  // Executes the oldest operation, which all ranks have begun.
  void run_front(bool inside = false) {
    Operation op;
    {
      const std::lock_guard lock(mutex_);
      op = queue_.front();
    }
    op.span.started = seconds_now();
    executor_.run(op);
    if (options_.delay_seconds_per_mb > 0)
      std::this_thread::sleep_for(
          std::chrono::duration<double>(options_.delay_seconds_per_mb * double(op.span.bytes) * 1e-6));
    op.span.ended = seconds_now();
    op.span.inside = inside;
    mine_->done.store(++executed_, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    spans_.push_back(op.span);
    queue_.pop_front();
    ++finished_;
    advanced_.notify_all();
  }

  void sum_values(std::span<double> values) {
    if (!memory_->one_host) {
      post();
      Backoff backoff(options_.timeout_seconds);
      while (!memory_->barrier_passed(Barrier::values))
        if (!backoff.wait()) fail_far("a step's small sum");
      const auto all = memory_->gather_values(values.data(), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = all[i];
        for (std::size_t r = 1; r < std::size_t(world_.size()); ++r) values[i] += all[r * values.size() + i];
      }
      return;
    }
    // Two generations: a rank may be one sum ahead of a slow reader, never two.
    const std::size_t at = (small_sums_ % 2) * RankCounters::values_count;
    ++small_sums_;
    std::copy(values.begin(), values.end(), mine_->values.begin() + std::ptrdiff_t(at));
    mine_->posted.store(small_sums_, std::memory_order_release);
    Backoff backoff(options_.timeout_seconds);
    while (!all_reached(&RankCounters::posted, small_sums_))
      if (!backoff.wait()) fail_late("a step's small sum", &RankCounters::posted, small_sums_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = boards_[0]->values[at + i];
      for (std::size_t r = 1; r < boards_.size(); ++r) values[i] += boards_[r]->values[at + i];
    }
  }

  // The worker executes operations as they come (threaded_), else only while the caller waits.
  void start_worker() {
    if (!worker_.joinable()) worker_ = std::thread([this] { serve(); });
  }

  void serve() {
    try {
      for (;;) {
        Operation op;
        {
          std::unique_lock lock(mutex_);
          work_.wait(lock, [&] { return ending_ || (!queue_.empty() && (threaded_ || finishing_)); });
          if (ending_) return;
          op = queue_.front();
        }
        if (!await(op)) return;
        run_front();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      advanced_.notify_all();
    }
  }

  void await_worker(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    finishing_ = true;
    work_.notify_one();
    // The worker gives up by itself, a second earlier and knowing more, unless MPI holds it.
    const std::chrono::duration<double> most(options_.timeout_seconds + 1);
    std::uint64_t before;
    do before = finished_;
    while (!advanced_.wait_for(lock, most, [&] { return finished_ >= number || failure_; }) && finished_ != before);
    finishing_ = false;
    if (failure_) std::rethrow_exception(failure_);
    if (finished_ >= number) return;
    stuck_ = true;
    const std::string what = name_of(queue_.front());
    lock.unlock();
    fail_far(what + ", inside MPI");
  }

  void say_private(std::size_t bytes) {
    if (!std::exchange(said_private_, true))
      log::info(cat("/dev/shm is too small for ", format_bytes(bytes),
                    " a rank: gradients are summed in private memory by MPI, which is slower (docker: --shm-size=2g)"));
  }

  World& world_;
  CollectiveOptions options_;
  const bool alone_;
  Executor executor_;
  std::unique_ptr<SharedMemory> memory_, fallback_;  // fallback_: private, for regions that /dev/shm has no room for
  std::deque<MappedRegion> regions_;                 // operations point to them
  std::vector<RankCounters*> boards_;                // of near_ranks_
  RankCounters* mine_ = nullptr;
  std::vector<int> near_ranks_;               // whose progress is seen here
  std::unique_ptr<ProgressBoard> all_ranks_;  // where there are others: who has begun how much
  std::atomic<std::uint64_t> posted_ = 0;     // there
  std::vector<void*> owned_;
  bool threaded_ = false, said_private_ = false, stuck_ = false;
  std::thread worker_;
  std::mutex mutex_;  // guards what follows, as far as the worker exists
  std::condition_variable work_, advanced_;
  OperationQueue queue_;
  std::vector<CommSpan> spans_;
  std::exception_ptr failure_;
  bool finishing_ = false;
  std::uint64_t finished_ = 0;
  std::atomic<bool> ending_ = false;
  std::uint64_t begun_ = 0, executed_ = 0, small_sums_ = 0;
  std::map<int, std::uint64_t> newest_;  // by tag, the number of its last operation; the caller's
};

}  // namespace

bool uses_progress_thread(const World& world, CollectiveOptions::Progress progress) {
  using enum CollectiveOptions::Progress;
  return progress == thread || (progress == automatic && usable_cores() / std::max(1, world.local_size()) >= 2);
}

std::unique_ptr<Collective> make_host_collective(World& world, const CollectiveOptions& options) {
  return std::make_unique<HostCollective>(world, options);
}

}  // namespace millrace
