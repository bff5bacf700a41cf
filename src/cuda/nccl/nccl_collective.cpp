// An operation is enqueued as follows. An event in the compute stream marks that its input is complete. The comm stream
// waits for that event, runs NCCL's kernel, and records another event after it. finish() makes the compute stream wait
// for the comm stream.
#include "cuda/nccl/nccl_collective.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "cuda/errors/check.hpp"
#include "cuda/nccl/collective_tracker.hpp"
#include "cuda/nccl/nccl_comm.hpp"
#include "cuda/nccl/watchdog_thread.hpp"
#include "millrace/base/log.hpp"

namespace millrace::cuda {
namespace {

using Kind = Watchdog::Kind;

class NcclCollective : public Collective {
 public:
  NcclCollective(World& world, CudaDevice& device, const CollectiveOptions& options, const CudaOptions& cuda,
                 bool even_alone)
      : world_(world), device_(device), timeout_(options.timeout_seconds), alone_(world.size() == 1 && !even_alone) {
    MR_CUDA(cudaSetDevice(device.ordinal()));
    CollectiveOptions host = options;
    host.progress = CollectiveOptions::Progress::inline_;
    small_ = make_host_collective(world, host);
    if (alone_) return;
    comm_ = std::make_unique<NcclComm>(world, cuda, timeout_);
    tracker_ = std::make_unique<CollectiveTracker>(timeout_);
    MR_CUDA(cudaEventCreateWithFlags(&filled_, cudaEventDisableTiming));
    MR_CUDA(cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming));
    watchdog_ = std::make_unique<WatchdogThread>(world, device, *tracker_, comm_);
    device.flight_recorder().set_concurrent_work([this] { return tracker_->running_operation(); });
    device.set_captured_collectives(
        {[this] { return started_; }, [this](const std::string& problem) { return agree(problem); }});
  }

  ~NcclCollective() override {
    device_.flight_recorder().set_concurrent_work(nullptr);
    device_.set_captured_collectives({});
    if (watchdog_ && watchdog_->end()) try {
        device_.synchronize();
      } catch (const Error& error) {  // another rank failed at the very end
        log::error(error.what());
        comm_->abort();
      }
    for (NcclRegion& r : regions_) {
      if (comm_)
        comm_->release(r);
      else
        device_.release(MemoryKind::device, r.data, r.bytes);
    }
    for (const auto& [tag, event] : passed_) cudaEventDestroy(event);
    if (filled_) cudaEventDestroy(filled_);
    if (joined_) cudaEventDestroy(joined_);
  }

  std::string describe() const override {
    if (alone_) return "one rank";
    const NcclRegion first = regions_.empty() ? NcclRegion{} : regions_.front();
    return fmt::format("NCCL {}, {} GPUs, {}", NcclComm::version(), world_.size(),
                       first.window         ? "symmetric windows"
                       : first.registration ? "registered memory"
                                            : "plain device memory");
  }

  SharedRegion allocate(std::size_t bytes) override {
    NcclRegion region;
    if (alone_) {
      region.bytes = (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096;
      region.data = device_.allocate(MemoryKind::device, region.bytes);
    } else {
      region = comm_->allocate(world_, std::max<std::size_t>(bytes, 1));
    }
    regions_.push_back(region);
    return {region.data, region.bytes, int(regions_.size()) - 1};
  }

  void all_reduce_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    char* data = at(r, begin, count, size_of(t));
    start(Kind::sum, tag, count * size_of(t), "ncclAllReduce", [&](ncclComm_t comm, StreamHandle stream) {
      return ncclAllReduce(data, data, count, type_of(t), ncclSum, comm, stream);
    });
  }
  void reduce_scatter_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    char* data = at(r, begin, count, size_of(t));
    const std::size_t part = rank_slice_elements(count);
    start(Kind::reduce_scatter, tag, count * size_of(t), "ncclReduceScatter",
          [&](ncclComm_t comm, StreamHandle stream) {
            return ncclReduceScatter(data, mine(data, part * size_of(t)), part, type_of(t), ncclSum, comm, stream);
          });
  }
  void all_gather_async(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    start_all_gather(r, begin, count, t, tag, false);
  }
  void all_gather(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag) override {
    start_all_gather(r, begin, count, t, tag, true);
    wait(tag);
  }
  void broadcast(const SharedRegion& r, std::size_t begin, std::size_t bytes, int root) override {
    char* data = at(r, begin, bytes, 1);
    start(Kind::broadcast, root, bytes, "ncclBroadcast", [&](ncclComm_t comm, StreamHandle stream) {
      return ncclBroadcast(data, data, bytes, ncclInt8, root, comm, stream);
    });
    finish();
  }

  void wait(int tag) override {
    if (alone_) return;
    watchdog_->throw_failure();
    const auto passed = passed_.find(tag);
    MR_CHECK(passed != passed_.end(), "no operation was begun with tag {}", tag);
    MR_CUDA(cudaStreamWaitEvent(device_.stream(Stream::compute), passed->second, 0));
  }

  void finish() override {
    if (alone_) return;
    const bool capturing = device_.capturing();
    if (capturing && !captured_) return;  // the comm stream is not part of this capture
    captured_ = false;
    const StreamHandle compute = device_.stream(Stream::compute), comm = device_.stream(Stream::comm);
    CollectiveTracker::Operation step;
    if (capturing)
      tracker_->end_captured(comm);
    else
      step = tracker_->begin(Kind::step, 0, 0, comm);
    MR_CUDA(cudaEventRecord(joined_, comm));
    MR_CUDA(cudaStreamWaitEvent(compute, joined_, 0));
    if (!capturing) tracker_->end(step, compute);
  }

  void all_reduce_scalars(std::span<double> values) override {
    if (watchdog_) watchdog_->throw_failure();
    small_->all_reduce_scalars(values);
  }

  void take_spans(std::vector<CommSpan>& out) override {
    out.clear();
    if (!alone_ && !device_.capturing()) tracker_->take_spans(out);
  }

 private:
  char* at(const SharedRegion& r, std::size_t begin, std::size_t count, std::size_t size) const {
    MR_CHECK(r.id >= 0 && r.id < int(regions_.size()));
    const NcclRegion& region = regions_[std::size_t(r.id)];
    MR_CHECK((begin + count) * size <= region.bytes);
    return static_cast<char*>(region.data) + begin * size;
  }
  std::size_t rank_slice_elements(std::size_t count) const {
    MR_CHECK(count % std::size_t(world_.size()) == 0);
    return count / std::size_t(world_.size());
  }
  char* mine(char* data, std::size_t part_bytes) const { return data + part_bytes * std::size_t(world_.rank()); }

  CapturedCollectives::Outcome agree(const std::string& problem) {
    captured_ = false;  // also after a capture that ended before its finish()
    std::vector<double> failed(std::size_t(world_.size()));
    failed[std::size_t(world_.rank())] = !problem.empty();
    all_reduce_scalars(failed);
    const int first = int(std::find(failed.begin(), failed.end(), 1.0) - failed.begin());
    if (first == world_.size()) return {};
    return {world_.broadcast_string(problem, first), first};
  }

  void start_all_gather(const SharedRegion& r, std::size_t begin, std::size_t count, DType t, int tag, bool blocks) {
    char* data = at(r, begin, count, size_of(t));
    const std::size_t part = rank_slice_elements(count);
    const auto call = [&](ncclComm_t comm, StreamHandle stream) {
      return ncclAllGather(mine(data, part * size_of(t)), data, part, type_of(t), comm, stream);
    };
    start(Kind::all_gather, tag, count * size_of(t), "ncclAllGather", call, blocks);
  }

  // Makes the comm stream wait for the work that is enqueued on the compute stream so far.
  void follow_compute(StreamHandle comm) {
    MR_CUDA(cudaEventRecord(filled_, device_.stream(Stream::compute)));
    MR_CUDA(cudaStreamWaitEvent(comm, filled_, 0));
  }

  // blocks: the compute stream will wait for it at once.
  template <class Call>
  void start(Kind kind, int tag, std::size_t bytes, const char* name, const Call& call, bool blocks = false) {
    if (alone_) return;
    watchdog_->throw_failure();
    ++started_;
    const bool capturing = device_.capturing();
    const StreamHandle comm = device_.stream(Stream::comm);
    follow_compute(comm);
    if (capturing && !captured_) tracker_->begin_captured(comm);
    const StreamHandle blocked = blocks ? device_.stream(Stream::compute) : nullptr;
    const auto op = capturing ? tracker_->begin_captured_operation(kind, tag, bytes, comm, blocked)
                              : tracker_->begin(kind, tag, bytes, comm, blocked);
    if (blocks) follow_compute(comm);  // behind the event there, so that it is recorded if the operation has ended
    comm_->enqueue(name, [&](ncclComm_t c) { return call(c, comm); });
    captured_ = capturing;
    cudaEvent_t& passed = passed_[tag];
    if (!passed) MR_CUDA(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming));
    MR_CUDA(cudaEventRecord(passed, comm));
    capturing ? tracker_->end_captured_operation(op, comm) : tracker_->end(op, comm);
  }

  World& world_;
  CudaDevice& device_;
  const double timeout_;
  const bool alone_;
  std::unique_ptr<Collective> small_;  // for all_reduce_scalars()
  std::shared_ptr<NcclComm> comm_;
  std::unique_ptr<CollectiveTracker> tracker_;
  std::deque<NcclRegion> regions_;
  cudaEvent_t filled_ = nullptr;       // in the compute stream: the input of an operation is complete
  cudaEvent_t joined_ = nullptr;       // in the comm stream: all operations before finish() are complete
  std::map<int, cudaEvent_t> passed_;  // in the comm stream: the last operation with this tag is complete
  std::uint64_t started_ = 0;          // operations so far
  bool captured_ = false;              // the capture in progress has operations, and no finish() since
  std::unique_ptr<WatchdogThread> watchdog_;
};

}  // namespace

std::unique_ptr<Collective> make_nccl_collective(World& world, CudaDevice& device, const CollectiveOptions& options,
                                                 const CudaOptions& cuda, bool even_alone) {
  return std::make_unique<NcclCollective>(world, device, options, cuda, even_alone);
}

}  // namespace millrace::cuda
