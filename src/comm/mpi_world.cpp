#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "millrace/base/log.hpp"
#include "millrace/comm/mpi_check.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/system/launcher.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

using watchdog::Wait;
using watchdog::WaitScope;

bool on_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "";
  while (!folders.empty()) {
    const std::string folder = folders.substr(0, folders.find(':'));
    folders.erase(0, folder.size() + 1);
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// Open MPI aborts if it finds no way to start remote daemons, even if the program runs without mpirun.
void allow_start_without_ssh() {
  const bool launched = std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMIX_RANK") || std::getenv("SLURM_JOB_ID");
  if (!launched && !on_path("ssh") && !on_path("rsh")) ::setenv("OMPI_MCA_plm", "isolated", 0);
}

// An MPI library without PMIx starts N processes that each see a world of one rank.
void refuse_lonely_tasks(int size) {
  const char* step = std::getenv("SLURM_STEP_ID");
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (!tasks) tasks = std::getenv("SLURM_NTASKS");
  const char* procid = std::getenv("SLURM_PROCID");
  if (size != 1 || !step || !tasks || !procid || std::getenv("OMPI_COMM_WORLD_SIZE")) return;
  if (std::atoi(tasks) > 1)
    fail(Exit::config, "Slurm started {} tasks, but MPI sees one rank (srun lacks PMIx). use: srun --mpi=pmix", tasks);
}

// The strings of all ranks, one behind the other. MPI's counts and offsets are ints. Error(internal), on all ranks
// alike, if they do not suffice.
struct Parts {
  std::vector<int> counts, offsets;
  std::string all;
  explicit Parts(const std::vector<std::int64_t>& lengths, bool needed = true) {
    std::int64_t total = 0;
    for (const std::int64_t length : lengths) {
      offsets.push_back(int(total));
      counts.push_back(int(length));
      total += length;
      MR_CHECK(total <= std::numeric_limits<int>::max(), "the ranks exchange texts of more than 2 GiB");
    }
    if (needed) all.resize(std::size_t(total));
  }
  std::vector<std::string> strings() const {
    std::vector<std::string> out;
    for (std::size_t r = 0; r < counts.size(); ++r)
      out.push_back(all.substr(std::size_t(offsets[r]), std::size_t(counts[r])));
    return out;
  }
};

class MpiWorld : public World {
 public:
  MpiWorld(MPI_Comm comm, bool owns_mpi) : comm_(comm), owns_mpi_(owns_mpi) {
    MR_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    MR_MPI(MPI_Comm_rank(comm_, &rank_));
    MR_MPI(MPI_Comm_size(comm_, &size_));
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    MR_MPI(MPI_Get_processor_name(name, &length));
    host_ = name;
    const WaitScope waits(Wait::communicator);
    MPI_Comm local;
    MR_MPI(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local));
    MR_MPI(MPI_Comm_rank(local, &local_rank_));
    MR_MPI(MPI_Comm_size(local, &local_size_));
    if (const int per_host = ranks_of_simulated_host(); per_host > 0) {
      const int begin = rank_ / per_host * per_host;
      local_rank_ = rank_ - begin;
      local_size_ = std::min(per_host, size_ - begin);
    }
    find_nodes(local, ranks_of_simulated_host());
    MPI_Comm_free(&local);
  }

  ~MpiWorld() override {
    const WaitScope waits(owns_mpi_ ? Wait::finalize : Wait::communicator);
    if (owns_mpi_)
      MPI_Finalize();
    else
      MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  int node() const override { return node_; }
  int node_count() const override { return node_count_; }
  const std::string& host() const override { return host_; }
  void barrier() override {
    const WaitScope waits(Wait::barrier);
    MR_MPI(MPI_Barrier(comm_));
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    constexpr std::size_t most = std::size_t(1) << 30;  // MPI counts are ints
    const WaitScope waits(Wait::broadcast);
    for (std::size_t at = 0; at < bytes; at += most, watchdog::beat())
      MR_MPI(MPI_Bcast(static_cast<char*>(data) + at, int(std::min(most, bytes - at)), MPI_BYTE, root, comm_));
  }
  void all_reduce(std::span<double> v, Reduce op) override { reduce(v.data(), v.size(), MPI_DOUBLE, op); }
  void all_reduce(std::span<std::int64_t> v, Reduce op) override { reduce(v.data(), v.size(), MPI_INT64_T, op); }
  std::vector<std::string> gather(const std::string& mine) override {
    const WaitScope waits(Wait::all_gather);
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(size_));
    const auto length = std::int64_t(mine.size());
    MR_MPI(MPI_Allgather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, comm_));
    Parts parts(lengths);
    MR_MPI(MPI_Allgatherv(mine.data(), int(length), MPI_CHAR, parts.all.data(), parts.counts.data(),
                          parts.offsets.data(), MPI_CHAR, comm_));
    return parts.strings();
  }
  std::vector<std::string> gather_to_root(const std::string& mine) override {
    const WaitScope waits(Wait::all_gather);
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(size_));
    const auto length = std::int64_t(mine.size());
    MR_MPI(MPI_Allgather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, comm_));
    Parts parts(lengths, rank_ == 0);
    MR_MPI(MPI_Gatherv(mine.data(), int(length), MPI_CHAR, parts.all.data(), parts.counts.data(), parts.offsets.data(),
                       MPI_CHAR, 0, comm_));
    return rank_ == 0 ? parts.strings() : std::vector<std::string>{};
  }
  [[noreturn]] void abort(int exit_code) override {
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }
  const void* mpi_comm() const override { return &comm_; }
  std::unique_ptr<World> duplicate() override {
    const WaitScope waits(Wait::communicator);
    MPI_Comm copy;
    MR_MPI(MPI_Comm_dup(comm_, &copy));
    return std::make_unique<MpiWorld>(copy, false);
  }

 private:
  // The number of a host is the number of hosts whose first rank (local rank 0) precedes its own first rank.
  void find_nodes(MPI_Comm local, int ranks_per_fake_host) {
    std::vector<int> all(static_cast<std::size_t>(size_));
    MR_MPI(MPI_Allgather(&local_rank_, 1, MPI_INT, all.data(), 1, MPI_INT, comm_));
    node_count_ = int(std::count(all.begin(), all.end(), 0));
    node_ = int(std::count(all.begin(), all.begin() + rank_, 0));
    if (ranks_per_fake_host > 0)
      node_ = rank_ / ranks_per_fake_host;
    else
      MR_MPI(MPI_Bcast(&node_, 1, MPI_INT, 0, local));
  }

  void reduce(void* data, std::size_t count, MPI_Datatype type, Reduce op) {
    if (size_ == 1 || count == 0) return;
    const WaitScope waits(Wait::all_reduce);
    const MPI_Op which = op == Reduce::sum ? MPI_SUM : op == Reduce::min ? MPI_MIN : MPI_MAX;
    MR_MPI(MPI_Allreduce(MPI_IN_PLACE, data, int(count), type, which, comm_));
  }

  MPI_Comm comm_;
  bool owns_mpi_;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, node_ = 0, node_count_ = 1;
  std::string host_;
};

}  // namespace

std::unique_ptr<World> mpi_world(int* argc, char*** argv) {
#ifdef OPEN_MPI
  constexpr bool open_mpi = true;
#else
  constexpr bool open_mpi = false;
#endif
  if (const std::string problem = launch_problem(std::getenv, open_mpi); !problem.empty())
    fail(Exit::config, "{}", problem);
  allow_start_without_ssh();
  int provided = 0;
  const WaitScope waits(Wait::mpi_init);
  if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    fail(Exit::comm, "MPI cannot be initialized (MPI_Init_thread failed)");
  auto world = std::make_unique<MpiWorld>(MPI_COMM_WORLD, true);
  log::set_rank(world->rank(), world->size(), world->host());
  if (provided < MPI_THREAD_MULTIPLE)
    fail(Exit::comm,
         "this MPI does not support MPI_THREAD_MULTIPLE. use an Open MPI or MPICH built with thread support");
  refuse_lonely_tasks(world->size());
  return world;
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, std::size_t(length));  // after a comma, Open MPI names its packager
  return all.substr(0, all.find_first_of(",\n"));
}

}  // namespace millrace
