// World: the ranks of a run. main() makes it once, over MPI (mpi_world); in tests, ranks may be threads of one process
// (run_thread_world). All calls are collective unless stated otherwise. Only one thread per rank may make them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/error.hpp"

namespace millrace {

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // the number of this rank within its host
  virtual int local_size() const = 0;
  virtual int node() const = 0;  // the number of this host; hosts are numbered in order of their lowest rank
  virtual int node_count() const = 0;
  virtual const std::string& host() const = 0;

  virtual void barrier() = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  enum class Reduce { sum, min, max };
  virtual void all_reduce(std::span<double> values, Reduce) = 0;
  virtual void all_reduce(std::span<std::int64_t> values, Reduce) = 0;
  // An all-gather of strings: returns the strings of all ranks, in rank order, on every rank.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  // The same, but only rank 0 gets the strings; the other ranks get none. For what rank 0 writes: at 4096 ranks,
  // strings of 50 kB are 200 MB.
  virtual std::vector<std::string> gather_to_root(const std::string& mine) {
    auto all = gather(mine);
    return rank() == 0 ? std::move(all) : std::vector<std::string>{};
  }

  // Makes all ranks fail together. Every rank passes its error message, or "" if it has none. If any message is not
  // empty, all ranks throw the Error of the lowest failing rank, with the prefix "[rank r @ host]" unless it is rank 0.
  void agree(Exit code, const std::string& message);
  std::string broadcast_string(const std::string&, int root = 0);

  // Ends all ranks at once after a failure. Not collective; does not return.
  [[noreturn]] virtual void abort(int exit_code) = 0;
  // The communicator for parallel HDF5, an MPI_Comm*; null for worlds without MPI.
  virtual const void* mpi_comm() const = 0;
  // A World over the same ranks whose calls do not interfere with those of this one, for another thread. Collective.
  virtual std::unique_ptr<World> duplicate() = 0;
};

// Initializes MPI (MPI_THREAD_MULTIPLE); the destructor finalizes it. Open MPI aborts a program that was started
// without mpirun if it finds neither ssh nor rsh nor a scheduler; in this case, OMPI_MCA_plm=isolated is set first.
// Error(config) if Slurm started several tasks without PMIx, which MPI needs.
std::unique_ptr<World> mpi_world(int* argc, char*** argv);
// Background threads that poll for messages hold it during each poll. A thread that finalizes MPI after a failure,
// while such threads still run, locks it and never unlocks it.
std::timed_mutex& mpi_call_mutex();
std::string mpi_library_version();  // "Open MPI v4.1.4". Not collective; needs no World
// A World with this process as its only rank, without MPI. For commands that need one rank, and for tests.
std::unique_ptr<World> solo_world();
// Calls body on `size` threads, each of which is a rank with its own World, without MPI. Rethrows the first exception.
void run_thread_world(int size, const std::function<void(World&)>& body);

}  // namespace millrace
