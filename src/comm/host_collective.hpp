// The CPU's collective: all-reduce, reduce-scatter and all-gather in shared memory and, between hosts, over MPI.
//
// All ranks start the same operations in the same order, so the number k identifies an operation. When a rank starts
// operation k, its data are final, and it sets its counter `begun` to k. When all ranks of the host have begun k, each
// rank reduces its own slice of the range over the memory of all ranks, writes the result to all of them, and sets its
// counter `done` to k. The range may be accessed again when all ranks have done k. No rank copies data, and the values
// of the host's ranks are always added in rank order, so the result has the same bits in every run.
//
// Between hosts, and with private memory, slices are sent in MPI messages (direct_all_reduce.hpp). Waiting in MPI has
// no timeout. Therefore MPI is called only after all ranks that exchange messages, and all other ranks of their hosts,
// have reached the operation, and never in the caller's thread but in the worker thread. (Scalars are reduced in the
// caller's thread.)
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/operation.hpp"
#include "comm/shared_memory.hpp"
#include "millrace/comm/collective.hpp"

namespace millrace {

class HostCollective : public Collective {
 public:
  // Collective: all ranks of the world construct it together.
  HostCollective(World& world, const CollectiveOptions& options);
  ~HostCollective() override;

  std::string describe() const override;
  SharedRegion allocate(std::size_t bytes) override;
  void all_reduce_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    this->begin(CollectiveOp::all_reduce, r, begin, count, t, tag);
  }
  void reduce_scatter_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    this->begin(CollectiveOp::reduce_scatter, r, begin, count, t, tag);
  }
  void all_gather_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    this->begin(CollectiveOp::all_gather, r, begin, count, t, tag);
  }
  void all_gather(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override;
  void wait(int tag) override;
  void finish() override;
  void all_reduce_scalars(std::span<double> values) override;
  void broadcast(const SharedRegion& r, std::size_t begin, std::size_t bytes, int root) override;
  void take_spans(std::vector<CommSpan>& out) override;

 private:
  using Counter = std::atomic<std::uint64_t> RankCounters::*;

  void map_shared_memory();
  void begin(CollectiveOp op, const SharedRegion& r, std::size_t begin, std::size_t count, DType dtype, int tag);
  bool all_reached(Counter counter, std::uint64_t value) const;
  // Throw an Error(comm). fail_late: a rank of this host was late, and is named. fail_far: any rank. With the watchdog
  // of the run they are not reached: it ends the run.
  [[noreturn]] void fail_waiting(const std::string& what, const std::string& who) const;
  [[noreturn]] void fail_late(const std::string& what, Counter counter, std::uint64_t value) const;
  [[noreturn]] void fail_far(const std::string& what) const;
  // Waits until all ranks have started `op`, the oldest operation. Returns false if the collective is being destroyed.
  bool await(const Operation& op);
  // Returns when all ranks have done their operations up to this number.
  void complete(std::uint64_t number);
  void await_worker(std::uint64_t number);
  // Executes the oldest operation, which all ranks have started. blocking: the caller of begin() waits for it.
  void run_front(bool blocking = false);
  void reduce_scalars(std::span<double> values);
  void reduce_scalars_on_host(std::span<double> values);
  void reduce_scalars_between_hosts(std::span<double> values);
  std::size_t post_scalars(std::span<const double> values);
  void await_posted_scalars() const;
  // The worker executes operations as soon as possible (threaded_), or only while the caller waits.
  void start_worker();
  void serve();
  void report_private_memory(std::size_t bytes);

  World& world_;
  CollectiveOptions options_;
  const bool alone_;  // there is only one rank
  Executor executor_;
  std::unique_ptr<SharedMemory> memory_;
  std::unique_ptr<SharedMemory> fallback_;  // private memory, for regions that do not fit into /dev/shm
  std::deque<MappedRegion> regions_;        // a deque, because operations hold pointers to its elements
  std::vector<RankCounters*> boards_;       // counters of near_ranks_
  RankCounters* mine_ = nullptr;
  std::vector<int> near_ranks_;  // ranks whose counters this rank can read
  bool threaded_ = false;
  bool reported_private_memory_ = false;
  bool stuck_ = false;  // the worker did not return from MPI
  std::thread worker_;
  std::mutex mutex_;  // guards the members down to finished_, if there is a worker
  std::condition_variable work_;
  std::condition_variable advanced_;
  OperationQueue queue_;
  std::vector<CommSpan> spans_;
  std::exception_ptr failure_;
  bool finishing_ = false;
  std::uint64_t finished_ = 0;
  std::atomic<bool> ending_ = false;
  std::uint64_t begun_ = 0;
  std::uint64_t executed_ = 0;
  std::uint64_t scalar_reductions_ = 0;
  std::map<int, std::uint64_t> newest_;  // by tag: the number of the last operation with this tag
};

}  // namespace millrace
