// Opens, creates, flushes and closes files.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "io/check.hpp"
#include "io/file.hpp"
#include "millrace/base/error.hpp"

#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
#define MR_H5_LOCKING_PROPERTY 1
#else
#define MR_H5_LOCKING_PROPERTY 0
#endif

namespace millrace::io {
namespace {

constexpr hsize_t alignment_bytes = 4096;
constexpr std::size_t sieve_bytes = 4096;  // HDF5 would read the default of 64 KiB for every row in random order

Handle access_properties(const std::string& path, MPI_Comm comm) {
  Handle fapl(MR_H5(path, H5Pcreate(H5P_FILE_ACCESS)), H5Pclose);
  MR_H5(path, H5Pset_sieve_buf_size(fapl, sieve_bytes));
  // File locks fail on many parallel file systems. They are not needed: shards are written under another name and then
  // renamed. HDF5_USE_FILE_LOCKING takes precedence if the user has set it.
#if MR_H5_LOCKING_PROPERTY
  MR_H5(path, H5Pset_file_locking(fapl, false, true));
#else
  setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
#endif
  if (comm != MPI_COMM_NULL) MR_H5(path, H5Pset_fapl_mpio(fapl, comm, MPI_INFO_NULL));
  return fapl;
}

Handle writing_properties(const std::string& path, MPI_Comm comm) {
  Handle fapl = access_properties(path, comm);
  // Objects below the threshold (metadata, tiny data sets) are not aligned.
  MR_H5(path, H5Pset_alignment(fapl, alignment_bytes, alignment_bytes));
  // Attributes above 64 KiB need the object headers of HDF5 1.8, which all current readers know.
  MR_H5(path, H5Pset_libver_bounds(fapl, H5F_LIBVER_V18, H5F_LIBVER_LATEST));
  // All ranks write metadata together. Reading metadata stays independent, so that one rank alone may open a data set.
  if (comm != MPI_COMM_NULL) MR_H5(path, H5Pset_coll_metadata_write(fapl, true));
  return fapl;
}

// Without times in the root group, the same rows give the same bytes.
Handle creation_properties(const std::string& path) {
  Handle fcpl(MR_H5(path, H5Pcreate(H5P_FILE_CREATE)), H5Pclose);
  MR_H5(path, H5Pset_obj_track_times(fcpl, false));
  return fcpl;
}

// The errno of opening a file and reading its first byte, or 0. HDF5 itself does not report it. Transient errors are
// retried for one second in total.
int open_error(const std::string& path) {
  int error = 0;
  for (int wait_ms : {100, 300, 600, 0}) {
    char first = 0;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    error = fd < 0 || ::pread(fd, &first, 1, 0) < 0 ? errno : 0;
    if (fd >= 0) ::close(fd);
    if (error != EIO && error != ESTALE && error != EINTR && error != ETIMEDOUT) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
  }
  return error;
}

// Detects common problems, for clearer messages than those of HDF5. "" if the file can be opened.
std::string problem_with(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return fmt::format("cannot open {} ({})", path, std::strerror(errno));
  if (S_ISDIR(status.st_mode))
    return fmt::format("cannot open {} (it is a folder). name a file, or a pattern like *.h5", path);
  if (!S_ISREG(status.st_mode)) return fmt::format("cannot open {} (it is not a regular file)", path);
  if (const int error = open_error(path); error != 0)
    return fmt::format("cannot open {} ({})", path, std::strerror(error));
  if (status.st_size == 0) return fmt::format("{} is empty (0 bytes)", path);
  const htri_t is_hdf5 = H5Fis_hdf5(path.c_str());
  if (is_hdf5 <= 0) H5Eclear2(H5E_DEFAULT);
  if (is_hdf5 <= 0) return fmt::format("{} is not an HDF5 file (no signature at its beginning)", path);
  return "";
}

std::string problem_creating(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return fmt::format("cannot create {} ({})", path, std::strerror(errno));
  ::close(fd);
  return "";
}

}  // namespace

File::File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

hid_t File::Impl::id() const {
  if (!file) fail(Exit::data, "{}{}", path, failure.empty() ? " is closed" : " was abandoned after a failure");
  return file;
}

const std::string& File::path() const { return impl_->path; }

File File::open(const std::string& path) {
  const Hdf5Lock entry(path.c_str());
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (const std::string problem = problem_with(path); !problem.empty()) fail(Exit::data, "{}", problem);
  const Handle fapl = access_properties(path, MPI_COMM_NULL);
  impl->file = Handle(MR_H5(path, H5Fopen(path.c_str(), H5F_ACC_RDONLY, fapl)), H5Fclose);
  return File(std::move(impl));
}

File File::open_converting(const std::string& path) {
  File out = open(path);
  out.impl_->converting = true;
  return out;
}

File File::create(const std::string& path) {
  const Hdf5Lock entry(path.c_str());
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->writable = true;
  if (const std::string problem = problem_creating(path); !problem.empty()) fail(Exit::data, "{}", problem);
  const Handle fapl = writing_properties(path, MPI_COMM_NULL);
  impl->file = Handle(MR_H5(path, H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation_properties(path), fapl)), H5Fclose);
  return File(std::move(impl));
}

File File::append(const std::string& path) {
  const Hdf5Lock entry(path.c_str());
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->writable = true;
  if (const std::string problem = problem_with(path); !problem.empty()) fail(Exit::data, "{}", problem);
  const Handle fapl = writing_properties(path, MPI_COMM_NULL);
  MR_H5(path, H5Pset_alignment(fapl, 1, 1));  // compressed chunks have arbitrary sizes
  impl->file = Handle(MR_H5(path, H5Fopen(path.c_str(), H5F_ACC_RDWR, fapl)), H5Fclose);
  return File(std::move(impl));
}

// A failure on any rank fails on all, so that no rank waits for the others in a later collective call.
File File::open_parallel(const std::string& path, World& world) {
  const MPI_Comm comm = communicator_of(world);
  if (comm == MPI_COMM_NULL) return open(path);  // a World without MPI: reading needs no other rank
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  std::string problem;
  {
    const Hdf5Lock entry(path.c_str());
    if (world.rank() == 0) problem = problem_with(path);
  }
  world.agree(Exit::data, problem);
  {
    const Hdf5Lock entry(path.c_str(), true);
    problem = message_of([&] {
      const Handle fapl = access_properties(path, comm);
      impl->file = Handle(MR_H5(path, H5Fopen(path.c_str(), H5F_ACC_RDONLY, fapl)), H5Fclose);
    });
  }
  world.agree(Exit::data, problem);
  const watchdog::WaitScope waits(watchdog::Wait::communicator);
  MPI_Comm_dup(comm, &impl->comm);
  return File(std::move(impl));
}

File File::create_parallel(const std::string& path, World& world) {
  const MPI_Comm comm = communicator_of(world);
  if (comm == MPI_COMM_NULL && world.size() == 1) return create(path);
  if (comm == MPI_COMM_NULL)
    fail(Exit::config, "{} cannot be written by {} ranks (they have no MPI)", path, world.size());
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->writable = true;
  std::string problem;
  if (world.rank() == 0) problem = problem_creating(path);
  world.agree(Exit::data, problem);
  {
    const Hdf5Lock entry(path.c_str(), true);
    problem = message_of([&] {
      const Handle fapl = writing_properties(path, comm);
      impl->file =
          Handle(MR_H5(path, H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation_properties(path), fapl)), H5Fclose);
    });
  }
  world.agree(Exit::data, problem);
  const watchdog::WaitScope waits(watchdog::Wait::communicator);
  MPI_Comm_dup(comm, &impl->comm);
  return File(std::move(impl));
}

void File::flush() {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  impl_->finish_writing();
}

void File::close() {
  const Hdf5Lock entry(impl_->path.c_str(), impl_->parallel());
  if (!impl_->file) return;
  std::string problem;
  const auto first = [&](std::string message) {
    if (problem.empty()) problem = std::move(message);
  };
  if (impl_->writable) first(message_of([&] { impl_->finish_writing(); }));
  for (auto& open : impl_->open)
    first(message_of([&] { MR_H5(impl_->where(open.first), H5Dclose(open.second.id.release())); }));
  impl_->open.clear();
  if (impl_->file) first(message_of([&] { MR_H5(impl_->path, H5Fclose(impl_->file.release())); }));
  if (!problem.empty()) fail(Exit::data, "{}", problem);
}

std::string library_version() {
  const Hdf5Lock entry;
  unsigned major = 0, minor = 0, release = 0;
  hbool_t thread_safe = false;
  H5get_libversion(&major, &minor, &release);
  H5is_library_threadsafe(&thread_safe);
  return fmt::format("HDF5 {}.{}.{}, parallel, {}thread-safe", major, minor, release, thread_safe ? "" : "not ");
}

}  // namespace millrace::io
