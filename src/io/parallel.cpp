// Error handling of files that several ranks write.
//
// HDF5's collective calls wait for every rank. If a write fails on one rank alone (full disk), the others hang, in the
// same call or in the next flush or close. Therefore blocks are allocated before a write, and the ranks exchange their
// state over a separate communicator of the file. If one rank failed, no rank calls HDF5 for this file again: the file
// is abandoned, its identifiers stay open until the program ends, and the file is truncated. One case remains: a device
// that fails after the blocks were allocated. The watchdog handles it.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/check.hpp"
#include "io/file.hpp"
#include "millrace/base/units.hpp"

namespace millrace::io {

MPI_Comm communicator_of(const World& world) {
  const void* comm = world.mpi_comm();
  return comm ? *static_cast<const MPI_Comm*>(comm) : MPI_COMM_NULL;
}

// Returns false if the file must be abandoned.
bool File::Impl::exchange(std::int64_t rounds, bool wrong, bool leaving) {
  const std::int64_t mine[5] = {rounds, wrong, !failure.empty(), leaving, !leaving};
  if (MPI_Allreduce(mine, maxima_, 5, MPI_INT64_T, MPI_MAX, comm) != MPI_SUCCESS)
    fail(Exit::comm, "the ranks that share {} lost contact (MPI_Allreduce failed)", path);
  return !maxima_[2] && !(maxima_[3] && maxima_[4]);
}

bool File::Impl::all_ranks_ok(bool leaving) { return exchange(0, false, leaving); }

File::Impl::Agreement File::Impl::agree(std::int64_t rounds, bool wrong) {
  if (!exchange(rounds, wrong, false)) {
    if (failure.empty()) failure = path + ": another rank could not write its part" + free_space_note();
    abandon();
    fail(Exit::data, "{}. the file is abandoned", failure);
  }
  return {maxima_[0], maxima_[1]};
}

void File::Impl::abandon() noexcept {
  for (auto& [name, dataset] : open) {
    dataset.id.release();
    dataset.space.release();
    dataset.type.release();
  }
  open.clear();
  file.release();
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Barrier(comm);  // every rank has read the free space for its message
  if (rank == 0 && ::truncate(path.c_str(), 0) != 0)
    return;  // the file stays open, so removing it would not free its bytes
}

std::string File::Impl::free_space_note() const {
  struct statvfs status {};
  if (!writable || ::statvfs(path.c_str(), &status) != 0) return "";
  const std::uint64_t left = std::uint64_t(status.f_bavail) * status.f_frsize;
  return left >= (64u << 20) ? "" : fmt::format(" (the file system has {} free)", format_bytes(left));
}

void File::Impl::reserve(std::uint64_t offset, std::uint64_t bytes) {
  if (!can_reserve || bytes == 0 || !failure.empty()) return;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  while (!error && ::fallocate(fd, 0, off_t(offset), off_t(bytes)) != 0 && (error = errno) == EINTR) error = 0;
  if (fd >= 0) ::close(fd);
  can_reserve = error == 0;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    failure =
        fmt::format("{} cannot grow by {} ({}){}", path, format_bytes(bytes), std::strerror(error), free_space_note());
}

void File::Impl::finish_writing() {
  id();  // throws if the file is closed or abandoned, which it is on all ranks or on none
  if (!parallel()) {
    MR_H5(path, H5Fflush(id(), H5F_SCOPE_GLOBAL));
    return;
  }
  hsize_t bytes = 0;
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0 && H5Fget_filesize(id(), &bytes) >= 0) reserve(0, bytes);
  agree(0, false);
  failure = message_of([&] { MR_H5(path, H5Fflush(id(), H5F_SCOPE_GLOBAL)); });
  if (!failure.empty()) failure += free_space_note();
  agree(0, false);
}

File::Impl::~Impl() {
  const Hdf5Lock entry(path.c_str(), parallel());
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (file && parallel() && writable && !finalized) try {
      if (!all_ranks_ok(true)) abandon();
    } catch (...) {
      abandon();
    }
  open.clear();
  file.reset();
  H5Eclear2(H5E_DEFAULT);
  if (parallel() && !finalized) MPI_Comm_free(&comm);
}

}  // namespace millrace::io
