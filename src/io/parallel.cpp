// How the ranks that write one file stay together when one of them fails.
//
// HDF5's flush and close are collective and wait inside for every rank; after a failed write of one rank (a full disk)
// they hang. So the ranks first tell each other how they are, over a communicator of the file's own, and where one
// failed none enters HDF5 again: the file is abandoned, its identifiers are left to the end of the program, its bytes
// are given back.
#include <sys/statvfs.h>
#include <unistd.h>

#include "check.hpp"
#include "file.hpp"
#include "millrace/base/units.hpp"

namespace millrace::io {

MPI_Comm communicator_of(const World& world) {
  const void* comm = world.mpi_comm();
  return comm ? *static_cast<const MPI_Comm*>(comm) : MPI_COMM_NULL;
}

// False when the file must be abandoned.
bool File::Impl::exchange(std::int64_t rounds, bool wrong, bool leaving) {
  const std::int64_t mine[5] = {rounds, wrong, broken, leaving, !leaving};
  if (MPI_Allreduce(mine, most_, 5, MPI_INT64_T, MPI_MAX, comm) != MPI_SUCCESS)
    fail(Exit::comm, "the ranks that share ", path, " lost each other (MPI_Allreduce failed)");
  return !most_[2] && !(most_[3] && most_[4]);
}

bool File::Impl::sound(bool leaving) { return exchange(0, false, leaving); }

File::Impl::Agreement File::Impl::agree(std::int64_t rounds, bool wrong) {
  if (!exchange(rounds, wrong, false)) {
    const std::string reason = reason_on_disk();
    abandon();
    fail(Exit::data, path, ": ", broken ? "this" : "another", " rank could not write its part", reason,
         ". the file is given up");
  }
  return {most_[0], most_[1]};
}

void File::Impl::abandon() noexcept {
  for (auto& [name, dataset] : open) dataset.id.release(), dataset.space.release(), dataset.type.release();
  open.clear();
  file.release();
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Barrier(comm);                                          // every rank has looked at the disk
  if (rank == 0 && ::truncate(path.c_str(), 0) != 0) return;  // it stays open: removing it would not free its bytes
}

std::string File::Impl::reason_on_disk() const {
  struct statvfs status {};
  if (!writable || ::statvfs(path.c_str(), &status) != 0) return "";
  const std::uint64_t left = std::uint64_t(status.f_bavail) * status.f_frsize;
  return left >= (64u << 20) ? "" : cat(" (the file system has ", format_bytes(left), " free)");
}

void File::Impl::finish_writing() {
  if (parallel()) agree(0, false);
  std::string problem = message_of([&] { MR_H5(path, H5Fflush(id(), H5F_SCOPE_GLOBAL)); });
  if (!parallel()) {
    if (!problem.empty()) fail(Exit::data, problem);
    return;
  }
  broken = !problem.empty();
  if (sound(false)) return;
  if (!broken) problem = path + ": another rank could not flush its part";
  problem += reason_on_disk();
  abandon();
  fail(Exit::data, problem);
}

File::Impl::~Impl() {
  const Entry entry;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (file && parallel() && writable && !finalized) try {
      if (!sound(true)) abandon();
    } catch (...) {
      abandon();
    }
  open.clear();
  file.reset();
  H5Eclear2(H5E_DEFAULT);
  if (parallel() && !finalized) MPI_Comm_free(&comm);
}

}  // namespace millrace::io
