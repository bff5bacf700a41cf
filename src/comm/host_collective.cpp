// The CPU's collective. Operations are numbered in the order in which all ranks begin them. A rank posts "begun k" when
// its data of operation k are final; when all ranks of the host have begun k, each sums its slice of the range over all
// ranks' memory and writes the result to all, then posts "done k". The range may be touched again when all have done k.
// No rank copies anything, and the order of a sum is the order of ranks.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/comm/collective.hpp"
#include "millrace/comm/placement.hpp"
#include "shared_memory.hpp"
#include "space.hpp"
#include "sums.hpp"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

enum class Kind { sum, reduce_scatter, all_gather };

struct Operation {
  Kind kind = Kind::sum;
  int region = -1;
  std::size_t begin = 0, count = 0;  // elements
  DType dtype = DType::f32;
  CommSpan span;
};

// First in, first out, in memory that is kept: the step loop allocates nothing.
class Queue {
 public:
  Queue() { items_.reserve(1024); }
  bool empty() const { return first_ == items_.size(); }
  const Operation& front() const { return items_[first_]; }
  void push_back(const Operation& op) { items_.push_back(op); }
  void pop_front() {
    if (++first_ == items_.size()) items_.clear(), first_ = 0;
  }

 private:
  std::vector<Operation> items_;
  std::size_t first_ = 0;
};

// Waiting on another rank: a short spin, then the core is left to whoever needs it.
class Patience {
 public:
  explicit Patience(double timeout) : deadline_(now() + timeout) {}
  bool wait() {
    if (++tries_ < 200) return true;
    if (tries_ < 400)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(30));
    return tries_ % 64 != 0 || now() < deadline_;
  }

 private:
  int tries_ = 0;
  double deadline_;
};

class HostCollective : public Collective {
 public:
  HostCollective(World& world, const CollectiveOptions& options)
      : world_(world), options_(options), alone_(world.size() == 1) {
    if (alone_) return;
    locals_ = world.local_size(), local_ = world.local_rank();
    if (world.mpi_comm())
      memory_ = make_mpi_memory(world, options.private_memory);
    else
      memory_ = make_thread_memory(world);
    if (!memory_->shared()) locals_ = 1, local_ = 0;
    const MappedRegion board = memory_->allocate(sizeof(RankBoard));
    for (void* peer : board.peers) boards_.push_back(static_cast<RankBoard*>(peer));
    spans_.reserve(4096);
    using Progress = CollectiveOptions::Progress;
    threaded_ = options.progress == Progress::thread ||
                (options.progress == Progress::automatic && usable_cores() / std::max(1, world.local_size()) >= 2);
    if (threaded_) thread_ = std::thread([this] { serve(); });
  }

  ~HostCollective() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_.notify_all();
    if (thread_.joinable()) thread_.join();
    for (void* p : owned_) std::free(p);
  }

  std::string describe() const override {
    if (alone_) return "one rank";
    const std::string how = memory_->shared() ? cat("shared window, ", locals_, " ranks a host")
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
      regions_.push_back({data, {data}, bytes});
      return {data, bytes, id};
    }
    if (memory_->shared() && world_.mpi_comm() && !shared_memory_has_room(world_, bytes)) use_private_memory(bytes);
    regions_.push_back(memory_->allocate(bytes));
    return {regions_.back().mine, bytes, id};
  }

  void begin_sum(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    this->begin(Kind::sum, r, begin, count, t, tag);
  }
  void begin_reduce_scatter(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    this->begin(Kind::reduce_scatter, r, begin, count, t, tag);
  }
  void begin_all_gather(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    this->begin(Kind::all_gather, r, begin, count, t, tag);
  }

  void finish() override {
    if (alone_) return;
    if (threaded_) {
      std::unique_lock lock(mutex_);
      idle_.wait(lock, [&] { return queue_.empty() || failure_; });
      if (failure_) std::rethrow_exception(failure_);
    } else {
      while (!queue_.empty()) {
        await(queue_.front(), &RankBoard::begun, executed_ + 1);
        run_front();
      }
    }
    Patience patience(options_.timeout_seconds);
    while (!all_reached(&RankBoard::done, begun_))
      if (!patience.wait()) fail_late("the end of a step's sums", &RankBoard::done, begun_);
  }

  void small_sum(std::span<double> values) override {
    if (alone_) return;
    MR_CHECK(values.size() <= RankBoard::values_count);
    if (!memory_->one_host) {
      const auto all = memory_->gather_values(values.data(), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = all[i];
        for (std::size_t r = 1; r < std::size_t(world_.size()); ++r) values[i] += all[r * values.size() + i];
      }
      return;
    }
    // Two generations: a rank may be one sum ahead of a slow reader, never two.
    const std::size_t at = (small_sums_ % 2) * RankBoard::values_count;
    ++small_sums_;
    std::copy(values.begin(), values.end(), boards_[std::size_t(local_)]->values.begin() + std::ptrdiff_t(at));
    boards_[std::size_t(local_)]->posted.store(small_sums_, std::memory_order_release);
    Patience patience(options_.timeout_seconds);
    while (!all_reached(&RankBoard::posted, small_sums_))
      if (!patience.wait()) fail_late("a step's small sum", &RankBoard::posted, small_sums_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = boards_[0]->values[at + i];
      for (std::size_t r = 1; r < boards_.size(); ++r) values[i] += boards_[r]->values[at + i];
    }
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
  using Counter = std::atomic<std::uint64_t> RankBoard::*;

  bool all_reached(Counter counter, std::uint64_t value) const {
    return std::all_of(boards_.begin(), boards_.end(),
                       [&](const RankBoard* b) { return (b->*counter).load(std::memory_order_acquire) >= value; });
  }

  [[noreturn]] void fail_late(const std::string& what, Counter counter, std::uint64_t value) const {
    std::string late;
    for (std::size_t r = 0; r < boards_.size(); ++r)
      if ((boards_[r]->*counter).load() < value) late += cat(late.empty() ? "" : ", ", world_.rank() - local_ + int(r));
    fail(Exit::comm, "waited ", options_.timeout_seconds, " s for ", what, " (late: rank ", late, " on ", world_.host(),
         "). see what held it up, or raise comm.timeout");
  }

  void await(const Operation& op, Counter counter, std::uint64_t value) const {
    Patience patience(options_.timeout_seconds);
    while (!all_reached(counter, value))
      if (!patience.wait()) fail_late(cat("sum ", op.span.tag), counter, value);
  }

  void begin(Kind kind, const SharedRegion& r, std::size_t begin, std::size_t count, DType dtype, int tag) {
    if (alone_) return;
    MR_CHECK(r.id >= 0 && r.id < int(regions_.size()) &&
             (begin + count) * size_of(dtype) <= regions_[std::size_t(r.id)].bytes);
    MR_CHECK(kind == Kind::sum || count % std::size_t(world_.size()) == 0);
    {
      const std::lock_guard lock(mutex_);
      if (failure_) std::rethrow_exception(failure_);
      queue_.push_back({kind, r.id, begin, count, dtype, {tag, count * size_of(dtype), now(), 0, 0}});
    }
    boards_[std::size_t(local_)]->begun.store(++begun_, std::memory_order_release);
    if (threaded_) {
      work_.notify_one();
      return;
    }
    while (!queue_.empty() && all_reached(&RankBoard::begun, executed_ + 1)) run_front();
  }

  // Executes the oldest operation, whose peers have all begun it.
  void run_front() {
    Operation op;
    {
      const std::lock_guard lock(mutex_);
      op = queue_.front();
    }
    op.span.started = now();
    execute(op);
    if (options_.delay_seconds_per_mb > 0)
      std::this_thread::sleep_for(
          std::chrono::duration<double>(options_.delay_seconds_per_mb * double(op.span.bytes) * 1e-6));
    op.span.ended = now();
    boards_[std::size_t(local_)]->done.store(++executed_, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    spans_.push_back(op.span);
    queue_.pop_front();
    if (queue_.empty()) idle_.notify_all();
  }

  void execute(const Operation& op) {
    const MappedRegion& region = regions_[std::size_t(op.region)];
    const std::size_t element = size_of(op.dtype), ranks = std::size_t(world_.size()), part = op.count / ranks;
    const std::size_t own = op.begin + part * std::size_t(world_.rank());
    if (op.kind == Kind::all_gather) {
      if (!memory_->one_host)
        return memory_->gather_everywhere(static_cast<char*>(region.mine) + op.begin * element, part * element);
      for (void* peer : region.peers)
        if (peer != region.mine)
          std::memcpy(static_cast<char*>(peer) + own * element, static_cast<char*>(region.mine) + own * element,
                      part * element);
      return;
    }
    if (op.kind == Kind::reduce_scatter && memory_->one_host) {
      void* mine[] = {region.mine};
      return sum_peers(region.peers, mine, own, own + part, op.dtype);
    }
    // Large sums in chunks that stay in the caches between the ranks.
    const std::size_t chunk = std::max<std::size_t>(4096, options_.chunk_bytes / element);
    for (std::size_t at = op.begin; at < op.begin + op.count; at += chunk)
      sum_chunk(region, at, std::min(at + chunk, op.begin + op.count), op.dtype);
  }

  // This rank's slice of [begin, end), cut at cache lines.
  void sum_chunk(const MappedRegion& region, std::size_t begin, std::size_t end, DType dtype) {
    if (local_ >= memory_->slicers) return;
    const std::size_t slicers = std::size_t(memory_->slicers), line = 64;
    const auto cut = [&](std::size_t i) {
      return i == slicers ? end : begin + (end - begin) * i / slicers / line * line;
    };
    const std::size_t first = cut(std::size_t(local_)), last = cut(std::size_t(local_) + 1);
    if (first >= last) return;
    if (memory_->one_host) return sum_peers(region.peers, region.peers, first, last, dtype);
    if (dtype == DType::f64) {
      void* mine[] = {region.mine};
      sum_peers(region.peers, mine, first, last, dtype);
      memory_->sum_between_hosts(static_cast<double*>(region.mine) + first, last - first);
      for (void* peer : region.peers)
        if (peer != region.mine)
          std::memcpy(static_cast<double*>(peer) + first, static_cast<double*>(region.mine) + first,
                      (last - first) * sizeof(double));
      return;
    }
    scratch_.resize(std::max(scratch_.size(), last - first));
    sum_peers_to_float(region.peers, first, last, dtype, scratch_.data());
    memory_->sum_between_hosts(scratch_.data(), last - first);
    write_from_float(scratch_.data(), region.peers, first, last, dtype);
  }

  void serve() {
    try {
      for (;;) {
        {
          std::unique_lock lock(mutex_);
          work_.wait(lock, [&] { return ending_ || !queue_.empty(); });
          if (ending_) return;
        }
        Operation op;
        {
          const std::lock_guard lock(mutex_);
          op = queue_.front();
        }
        Patience patience(options_.timeout_seconds);
        while (!all_reached(&RankBoard::begun, executed_ + 1)) {
          if (ending_) return;
          if (!patience.wait()) fail_late(cat("sum ", op.span.tag), &RankBoard::begun, executed_ + 1);
        }
        run_front();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      idle_.notify_all();
    }
  }

  // Regions already handed out stay where they are; only before the first of them can the memory be changed.
  void use_private_memory(std::size_t bytes) {
    if (!regions_.empty())
      fail(Exit::config, "/dev/shm has no room for ", format_bytes(bytes),
           " more of shared gradients. enlarge it (docker: --shm-size=2g)");
    log::info(cat("/dev/shm is too small for ", format_bytes(bytes),
                  " a rank: gradients are summed in private memory by MPI, which is slower (docker: --shm-size=2g)"));
    if (threaded_) {
      {
        const std::lock_guard lock(mutex_);
        ending_ = true;
      }
      work_.notify_all();
      thread_.join();
      ending_ = false;
    }
    memory_ = make_mpi_memory(world_, true);
    locals_ = 1, local_ = 0;
    const MappedRegion board = memory_->allocate(sizeof(RankBoard));
    boards_ = {static_cast<RankBoard*>(board.mine)};
    if (threaded_) thread_ = std::thread([this] { serve(); });
  }

  World& world_;
  CollectiveOptions options_;
  const bool alone_;
  int locals_ = 1, local_ = 0;
  std::unique_ptr<SharedMemory> memory_;
  std::vector<MappedRegion> regions_;
  std::vector<RankBoard*> boards_;
  std::vector<void*> owned_;
  std::vector<float> scratch_;
  bool threaded_ = false;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable work_, idle_;
  Queue queue_;
  std::vector<CommSpan> spans_;
  std::exception_ptr failure_;
  std::atomic<bool> ending_ = false;
  std::uint64_t begun_ = 0, executed_ = 0, small_sums_ = 0;
};

}  // namespace

std::unique_ptr<Collective> make_host_collective(World& world, const CollectiveOptions& options) {
  return std::make_unique<HostCollective>(world, options);
}

}  // namespace millrace
