// World: who takes part. Made once at the top (mpi_world) or, in tests, as threads of one process (run_thread_world).
// All calls are collective unless said otherwise and must come from one thread per rank.
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
  virtual int local_rank() const = 0;  // among the ranks that share this host's memory
  virtual int local_size() const = 0;
  virtual int node() const = 0;  // number of this host, in order of its lowest rank
  virtual int node_count() const = 0;
  virtual const std::string& host() const = 0;

  virtual void barrier() = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  enum class Reduce { sum, min, max };
  virtual void all_reduce(std::span<double> values, Reduce) = 0;
  virtual void all_reduce(std::span<std::int64_t> values, Reduce) = 0;
  virtual std::vector<std::string> gather(const std::string& mine) = 0;  // on every rank, in rank order

  // Collective agreement on failures: every rank passes its message ("" when fine); if any is not empty, all ranks
  // throw the same Error, that of the lowest failing rank (prefixed "[rank r @ host]" when not rank 0).
  void agree(Exit code, const std::string& message);
  std::string broadcast_string(const std::string&, int root = 0);

  // Ends all ranks at once, not collective: for failures in the middle of a run. Does not return.
  [[noreturn]] virtual void abort(int exit_code) = 0;
  // Opaque communicator for parallel HDF5 (an MPI_Comm*); null for thread worlds.
  virtual const void* mpi_comm() const = 0;
  // A World over the same ranks whose calls do not interfere with this one's: for the I/O thread. Collective.
  virtual std::unique_ptr<World> duplicate() = 0;
};

// Initialises MPI (MPI_THREAD_MULTIPLE) and finalises it in the destructor. Sets OMPI_MCA_plm=isolated first when
// neither ssh, rsh nor a scheduler is there (a singleton would abort). Error(config) when Slurm started several tasks
// but MPI sees one rank.
std::unique_ptr<World> mpi_world(int* argc, char*** argv);
// Held by threads that look for messages while no other call is under way, for as long as they look. Who ends MPI while
// such threads go on, after a failure, takes it and keeps it.
std::timed_mutex& mpi_call_mutex();
std::string mpi_library_version();  // "Open MPI v4.1.4". Not collective; needs no World
// A World of this process alone; MPI is not touched. For commands that need no ranks, and tests.
std::unique_ptr<World> solo_world();
// Runs body on `size` threads, each with its own World, ranks as threads of this process; rethrows the first exception.
// No MPI.
void run_thread_world(int size, const std::function<void(World&)>& body);

}  // namespace millrace
