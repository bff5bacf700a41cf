#include "comm/host_collective.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "comm/backoff.hpp"
#include "comm/shm_capacity.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/pages.hpp"
#include "millrace/base/units.hpp"
#include "millrace/comm/placement.hpp"
#include "millrace/system/cores.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

using Barrier = SharedMemory::Barrier;

constexpr const char* scalars_name = "the all-reduce of a step's scalars";

}  // namespace

HostCollective::HostCollective(World& world, const CollectiveOptions& options)
    : world_(world),
      options_(options),
      alone_(world.size() == 1),
      executor_(world.rank(), world.size(), options.chunk_bytes) {
  if (alone_) return;
  if (watchdog::running()) options_.timeout_seconds = 1e9;  // it sees more than the counters tell
  map_shared_memory();
  spans_.reserve(4096);
  threaded_ = uses_progress_thread(world, options.progress);
  if (threaded_ || !memory_->one_host) start_worker();
}

void HostCollective::map_shared_memory() {
  if (!world_.mpi_comm()) {
    memory_ = make_thread_memory(world_);
  } else {
    const bool fits = options_.private_memory || fits_in_shared_memory(world_, sizeof(RankCounters));
    if (!fits) report_private_memory(sizeof(RankCounters));
    memory_ = make_mpi_memory(world_, options_.private_memory || !fits);
  }
  const MappedRegion board = memory_->allocate(sizeof(RankCounters));
  for (void* peer : board.peers) boards_.push_back(static_cast<RankCounters*>(peer));
  mine_ = boards_[std::size_t(memory_->local)];
  const auto nodes = world_.gather(std::to_string(world_.node()));
  for (int r = 0; r < world_.size(); ++r)
    if (memory_->shared() ? nodes[std::size_t(r)] == std::to_string(world_.node()) : r == world_.rank())
      near_ranks_.push_back(r);
}

HostCollective::~HostCollective() {
  // The worker hangs in MPI, so neither the thread nor its memory can be freed.
  if (stuck_) world_.abort(int(Exit::comm));
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  if (worker_.joinable()) worker_.join();
}

std::string HostCollective::describe() const {
  if (alone_) return "one rank";
  const std::string how = memory_->shared() && !fallback_
                              ? fmt::format("shared window, {} ranks per host", near_ranks_.size())
                              : std::string("private memory and MPI messages");
  return how + (threaded_ ? ", progress thread" : ", progress inside the step");
}

SharedRegion HostCollective::allocate(std::size_t bytes) {
  bytes = std::max(bytes, page_bytes);
  const int id = int(regions_.size());
  if (alone_) {
    regions_.push_back(make_private_region(bytes));
    return {regions_.back().mine, bytes, id};
  }
  SharedMemory* memory = memory_.get();
  if (memory->shared() && world_.mpi_comm() && !fits_in_shared_memory(world_, bytes)) {
    report_private_memory(bytes);
    if (!fallback_) fallback_ = make_mpi_memory(world_, true);
    memory = fallback_.get();
    start_worker();
  }
  regions_.push_back(memory->allocate(bytes));
  return {regions_.back().mine, bytes, id};
}

void HostCollective::all_gather(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) {
  if (alone_) return;
  all_gather_async(r, begin, count, t, tag);
  wait(tag);
  const std::lock_guard lock(mutex_);
  const auto span = std::find_if(spans_.rbegin(), spans_.rend(), [tag](const CommSpan& s) { return s.tag == tag; });
  span->started = span->queued;
  span->ended = steady_seconds();
  span->blocking = true;
}

void HostCollective::wait(int tag) {
  if (alone_) return;
  const auto newest = newest_.find(tag);
  MR_CHECK(newest != newest_.end(), "no operation was started with tag {}", tag);
  complete(newest->second);
}

void HostCollective::finish() {
  if (!alone_) complete(begun_);
}

void HostCollective::all_reduce_scalars(std::span<double> values) {
  if (alone_) return;
  for (std::size_t at = 0; at < values.size(); at += RankCounters::values_count)
    reduce_scalars(values.subspan(at, std::min(RankCounters::values_count, values.size() - at)));
}

void HostCollective::broadcast(const SharedRegion& r, std::size_t begin, std::size_t bytes, int root) {
  world_.broadcast(static_cast<char*>(r.data) + begin, bytes, root);
}

void HostCollective::take_spans(std::vector<CommSpan>& out) {
  out.clear();
  const std::lock_guard lock(mutex_);
  std::swap(out, spans_);
  if (spans_.capacity() == 0) spans_.reserve(4096);
}

void HostCollective::begin(CollectiveOp op, const SharedRegion& r, std::size_t begin, std::size_t count, DType dtype,
                           int tag) {
  if (alone_) return;
  MR_CHECK(r.id >= 0 && r.id < int(regions_.size()));
  const MappedRegion& region = regions_[std::size_t(r.id)];
  MR_CHECK((begin + count) * size_of(dtype) <= region.bytes);
  MR_CHECK(op == CollectiveOp::all_reduce || count % std::size_t(world_.size()) == 0);
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    queue_.push_back({&region, begin, count, dtype, {tag, count * size_of(dtype), steady_seconds(), 0, 0, false, op}});
  }
  mine_->begun.store(++begun_, std::memory_order_release);
  newest_[tag] = begun_;
  if (threaded_) work_.notify_one();
  if (worker_.joinable()) return;
  while (!queue_.empty() && all_reached(&RankCounters::begun, executed_ + 1)) run_front(true);
}

void HostCollective::reduce_scalars(std::span<double> values) {
  const watchdog::WaitScope waits(watchdog::Wait::all_reduce);
  if (memory_->one_host)
    reduce_scalars_on_host(values);
  else
    reduce_scalars_between_hosts(values);
}

// The first rank of each host sends the values of its host. Sums of each host would be fewer bytes, but then the order
// of the additions, and so the last bits of a loss, would depend on how the ranks are spread over hosts.
void HostCollective::reduce_scalars_between_hosts(std::span<double> values) {
  const std::size_t at = post_scalars(values);
  Backoff backoff(options_.timeout_seconds);
  if (memory_->local > 0) {
    while (boards_[0]->summed.load(std::memory_order_acquire) < scalar_reductions_)
      if (!backoff.wait()) fail_far(scalars_name);
    std::copy_n(boards_[0]->sums.begin(), values.size(), values.begin());
    return;
  }
  await_posted_scalars();
  std::vector<double> own;
  for (const RankCounters* board : boards_)
    own.insert(own.end(), board->values.begin() + std::ptrdiff_t(at),
               board->values.begin() + std::ptrdiff_t(at + values.size()));
  while (!memory_->barrier_passed(Barrier::values))
    if (!backoff.wait()) fail_far(scalars_name);
  const auto all = memory_->gather_values(own, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = all[i];
    for (std::size_t r = 1; r < std::size_t(world_.size()); ++r) values[i] += all[r * values.size() + i];
  }
  std::copy(values.begin(), values.end(), mine_->sums.begin());
  mine_->summed.store(scalar_reductions_, std::memory_order_release);
}

// Returns where the values are on the boards of all ranks of the host. Two generations of values suffice: a rank can be
// at most one reduction ahead of the slowest one.
std::size_t HostCollective::post_scalars(std::span<const double> values) {
  const std::size_t at = (scalar_reductions_ % 2) * RankCounters::values_count;
  ++scalar_reductions_;
  std::copy(values.begin(), values.end(), mine_->values.begin() + std::ptrdiff_t(at));
  mine_->posted.store(scalar_reductions_, std::memory_order_release);
  return at;
}

void HostCollective::await_posted_scalars() const {
  Backoff backoff(options_.timeout_seconds);
  while (!all_reached(&RankCounters::posted, scalar_reductions_))
    if (!backoff.wait()) fail_late(scalars_name, &RankCounters::posted, scalar_reductions_);
}

void HostCollective::reduce_scalars_on_host(std::span<double> values) {
  const std::size_t at = post_scalars(values);
  await_posted_scalars();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = boards_[0]->values[at + i];
    for (std::size_t r = 1; r < boards_.size(); ++r) values[i] += boards_[r]->values[at + i];
  }
}

void HostCollective::report_private_memory(std::size_t bytes) {
  if (std::exchange(reported_private_memory_, true)) return;
  log::info(
      fmt::format("/dev/shm is too small for {} per rank: MPI reduces the gradients in private memory, which is slower "
                  "(docker: --shm-size=2g)",
                  format_bytes(bytes)));
}

bool uses_progress_thread(const World& world, CollectiveOptions::Progress progress) {
  using enum CollectiveOptions::Progress;
  return progress == thread || (progress == automatic && usable_cores() / std::max(1, world.local_size()) >= 2);
}

std::unique_ptr<Collective> make_host_collective(World& world, const CollectiveOptions& options) {
  return std::make_unique<HostCollective>(world, options);
}

}  // namespace millrace
