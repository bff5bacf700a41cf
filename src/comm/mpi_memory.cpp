#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>

#include "comm/direct_all_reduce.hpp"
#include "comm/shared_memory.hpp"
#include "millrace/base/pages.hpp"
#include "millrace/comm/mpi_check.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

using watchdog::Wait;
using watchdog::WaitScope;

// A part of a window has the same distance to a page in all processes, because files are mapped by pages.
void* next_page(void* at) { return reinterpret_cast<void*>(padded_to_pages(reinterpret_cast<std::uintptr_t>(at))); }

struct Comm {
  MPI_Comm handle = MPI_COMM_NULL;
  ~Comm() {
    if (handle != MPI_COMM_NULL) MPI_Comm_free(&handle);
  }
};

static_assert(SharedMemory::min_ordered_slice == DirectAllReduce::min_slice);

class MpiMemory : public SharedMemory {
 public:
  MpiMemory(World& world, bool private_memory) : size_(world.size()), private_(private_memory) {
    const WaitScope waits(Wait::communicator);
    const MPI_Comm all = *static_cast<const MPI_Comm*>(world.mpi_comm());
    MR_MPI(MPI_Comm_dup(all, &all_.handle));
    std::int64_t fewest = world.local_size();
    world.all_reduce(std::span<std::int64_t>(&fewest, 1), World::Reduce::min);
    slice_owners = private_ ? 1 : int(fewest);
    one_host = world.node_count() == 1 && !private_;
    MR_MPI(MPI_Comm_split(all_.handle, world.node(), world.rank(), &local_.handle));
    local = private_ ? 0 : world.local_rank();
    MR_MPI(MPI_Comm_split(all_.handle, local < slice_owners ? local : MPI_UNDEFINED, world.rank(), &across_.handle));
    if (across_.handle != MPI_COMM_NULL) exchange_.emplace(across_.handle);
    if (local == 0) MR_MPI(MPI_Comm_dup(across_.handle, &first_ranks_.handle));
    find_places(world);
    for (const Comm* c : {&all_, &local_, &across_, &first_ranks_})
      if (c->handle != MPI_COMM_NULL) MR_MPI(MPI_Comm_set_errhandler(c->handle, MPI_ERRORS_RETURN));
  }

  ~MpiMemory() override {
    const WaitScope waits(Wait::shared_memory);
    for (MPI_Win& window : windows_) MPI_Win_free(&window);
  }

  bool shared() const override { return !private_; }

  MappedRegion allocate(std::size_t bytes) override {
    MappedRegion region;
    if (private_) {
      region = make_private_region(bytes);
      region.memory = this;
      kept_.push_back(region.owner);
      return region;
    }
    bytes = padded_to_pages(bytes);
    region.bytes = bytes;
    region.memory = this;
    const WaitScope waits(Wait::shared_memory);
    MPI_Win window;
    MPI_Info info;
    MR_MPI(MPI_Info_create(&info));
    MR_MPI(MPI_Info_set(info, "alloc_shared_noncontig", "true"));  // each rank's part has pages of its own
    // Open MPI's parts begin 8 bytes after the start of a cache line, so each store of 64 bytes would write two lines.
    void* unaligned = nullptr;
    MR_MPI(MPI_Win_allocate_shared(MPI_Aint(bytes + page_bytes), 1, info, local_.handle, &unaligned, &window));
    region.mine = next_page(unaligned);
    MR_MPI(MPI_Info_free(&info));
    windows_.push_back(window);
    int locals = 0;
    MR_MPI(MPI_Comm_size(local_.handle, &locals));
    for (int r = 0; r < locals; ++r) {
      MPI_Aint size = 0;
      int unit = 0;
      void* base = nullptr;
      MR_MPI(MPI_Win_shared_query(window, r, &size, &unit, &base));
      region.peers.push_back(next_page(base));
    }
    std::memset(region.mine, 0, bytes);
    MR_MPI(MPI_Barrier(local_.handle));
    return region;
  }

  void all_reduce_between_hosts(float* data, std::size_t count, DType wire) override {
    if (exchange_) exchange_->sum(data, count, wire);
  }
  void all_reduce_between_hosts(double* data, std::size_t count) override {
    if (across_.handle != MPI_COMM_NULL)
      MR_MPI(MPI_Allreduce(MPI_IN_PLACE, data, int(count), MPI_DOUBLE, MPI_SUM, across_.handle));
  }

  void reduce_scatter_between_hosts(float* data, const std::vector<std::size_t>& cuts, DType wire) override {
    if (exchange_) exchange_->reduce_scatter(data, cuts, wire);
  }

  bool barrier_passed(Barrier kind) override {
    const MPI_Comm comm = (kind == Barrier::values ? first_ranks_ : across_).handle;
    if (comm == MPI_COMM_NULL) return true;
    MPI_Request& request = requests_[kind == Barrier::values];
    if (request == MPI_REQUEST_NULL) MR_MPI(MPI_Ibarrier(comm, &request));
    int done = 0;
    MR_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  }

  void all_gather_between_hosts(void* data, const std::vector<std::size_t>& cuts) override {
    if (across_.handle != MPI_COMM_NULL) all_gather(data, cuts, MPI_BYTE, across_.handle);
  }

  std::vector<double> gather_values(const std::vector<double>& own, std::size_t count) override {
    std::vector<double> gathered(count * std::size_t(size_)), out(gathered.size());
    std::vector<std::size_t> cuts(std::size_t(hosts) + 1, 0);
    for (std::size_t i = 0; i < by_host.size(); ++i) cuts[std::size_t(places[by_host[i]].host) + 1] = (i + 1) * count;
    std::copy(own.begin(), own.end(), gathered.begin() + std::ptrdiff_t(cuts[std::size_t(own_host)]));
    all_gather(gathered.data(), cuts, MPI_DOUBLE, first_ranks_.handle);
    auto from = gathered.begin();
    for (const std::size_t rank : by_host) {
      std::copy_n(from, count, out.begin() + std::ptrdiff_t(rank * count));
      from += std::ptrdiff_t(count);
    }
    return out;
  }

 private:
  // In place. The callers see to it that the counts fit into an int.
  static void all_gather(void* data, const std::vector<std::size_t>& cuts, MPI_Datatype type, MPI_Comm comm) {
    std::vector<int> counts, begins;
    for (std::size_t h = 0; h + 1 < cuts.size(); ++h) {
      begins.push_back(int(cuts[h]));
      counts.push_back(int(cuts[h + 1] - cuts[h]));
    }
    MR_MPI(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, counts.data(), begins.data(), type, comm));
  }

  // The hosts are numbered as the ranks of across_, which are in the order of their world ranks.
  void find_places(World& world) {
    if (one_host) return;
    const int mine[] = {private_ ? world.rank() : world.node(), local};
    std::vector<int> all(2 * std::size_t(size_));
    MR_MPI(MPI_Allgather(mine, 2, MPI_INT, all.data(), 2, MPI_INT, all_.handle));
    places.resize(std::size_t(size_));
    std::map<int, int> numbers;  // of the hosts, by node
    for (std::size_t r = 0; r < places.size(); ++r)
      if (all[2 * r + 1] == local) numbers.emplace(all[2 * r], int(numbers.size()));
    hosts = int(numbers.size());
    for (std::size_t r = 0; r < places.size(); ++r)
      places[r] = {local < slice_owners ? numbers.at(all[2 * r]) : 0, all[2 * r + 1]};
    own_host = places[std::size_t(world.rank())].host;
    by_host.resize(places.size());
    std::iota(by_host.begin(), by_host.end(), std::size_t(0));
    std::ranges::stable_sort(by_host, {}, [&](std::size_t r) { return places[r].host; });
  }

  int size_;
  bool private_;
  Comm all_, local_;
  Comm across_;                              // the ranks with the same local number; null if this rank owns no slice
  Comm first_ranks_;                         // of all hosts; null on other ranks
  std::optional<DirectAllReduce> exchange_;  // set if this rank owns a slice
  MPI_Request requests_[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::vector<MPI_Win> windows_;
  std::vector<std::shared_ptr<void>> kept_;  // private memory
};

}  // namespace

std::unique_ptr<SharedMemory> make_mpi_memory(World& world, bool private_memory) {
  return std::make_unique<MpiMemory>(world, private_memory);
}

}  // namespace millrace
