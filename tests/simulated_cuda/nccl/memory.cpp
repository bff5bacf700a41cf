// Allocation and registration of memory: "NCCL documentation" is NVIDIA's user guide of NCCL 2.28, chapters "User
// buffer registration" and "Communicator creation and management functions".
#include "simulated_cuda/nccl/memory.hpp"

#include <fmt/core.h>
#include <nccl.h>

#include "simulated_cuda/nccl/communicator.hpp"
#include "simulated_cuda/runtime.hpp"

using namespace millrace::simulated;

namespace {

// Guarded by ncclComm::registrations_mutex(). Never destroyed, because threads may outlive main().
std::map<char*, std::size_t>& allocations() {  // live ones of ncclMemAlloc, by first byte
  static auto* const all = new std::map<char*, std::size_t>;
  return *all;
}
std::set<ncclComm*>& communicators() {
  static auto* const all = new std::set<ncclComm*>;
  return *all;
}

void* new_handle() {
  static std::atomic<std::uintptr_t> made = 0;
  return reinterpret_cast<void*>(++made);
}

// The beginning of a call that registers memory. NCCL documentation: the buffer comes from ncclMemAlloc; the
// registration of other memory is not safe, and as a window it fails.
ncclResult_t begin_registration(const char* call, ncclComm& comm, char* begin, std::size_t bytes) {
  if (const auto status = comm.enter(call); status != ncclSuccess) return status;
  check_call(call, Safety::unsafe_in_capture);
  const std::lock_guard hold(ncclComm::registrations_mutex());
  const auto after = allocations().upper_bound(begin);
  const bool known =
      after != allocations().begin() && begin + bytes <= std::prev(after)->first + std::prev(after)->second;
  if (!known)
    violation(call, fmt::format("{} bytes at {} are not in one allocation of ncclMemAlloc", bytes,
                                static_cast<void*>(begin)));
  return ncclSuccess;
}

// NCCL documentation, ncclCommWindowDeregister: no operation accesses the buffer.
ncclResult_t deregister(const char* call, ncclComm& comm, void* handle, NcclOperation::Memory kind) {
  if (const auto status = comm.enter(call); status != ncclSuccess) return status;
  check_call(call, Safety::unsafe_in_capture);
  {
    const std::lock_guard hold(ncclComm::registrations_mutex());
    const auto found = comm.registrations.find(handle);
    if (found == comm.registrations.end() || found->second.kind != kind)
      violation(call, "the handle is not a registration of this communicator");
    if (found->second.uses > 0) violation(call, "an operation that has not ended uses the memory");
  }
  return comm.perform(call, [&comm, handle] {
    const std::lock_guard hold(ncclComm::registrations_mutex());
    comm.registrations.erase(handle);
    return ncclSuccess;
  });
}

}  // namespace

void millrace::simulated::know(ncclComm& comm) {
  const std::lock_guard hold(ncclComm::registrations_mutex());
  communicators().insert(&comm);
}

bool millrace::simulated::is_old_nccl() {
  static const NcclFault fault = planned_nccl_fault();
  return fault.kind == "nccl-old" && (fault.rank < 0 || fault.rank == rank_of_process());
}

std::mutex& ncclComm::registrations_mutex() {
  static std::mutex mutex;
  return mutex;
}

void* ncclComm::memory_of(const void* p, std::size_t bytes) {
  const std::lock_guard hold(registrations_mutex());
  const char* const begin = static_cast<const char*>(p);
  for (const auto& [handle, m] : registrations)
    if (begin >= m.begin && begin + bytes <= m.begin + m.bytes) return handle;
  return nullptr;
}

void ncclComm::begin_use(const std::vector<void*>& memory) {
  const std::lock_guard hold(registrations_mutex());
  for (void* const handle : memory) {
    const auto found = registrations.find(handle);
    if (found == registrations.end() && !aborted_)
      violation("collective", fmt::format("rank {}: the memory of a captured operation was deregistered", rank_));
    if (found != registrations.end()) ++found->second.uses;
  }
}

void ncclComm::end_use(const std::vector<void*>& memory) {
  const std::lock_guard hold(registrations_mutex());
  for (void* const handle : memory)
    if (const auto found = registrations.find(handle); found != registrations.end()) --found->second.uses;
}

// In the communicator's thread. NCCL documentation, ncclCommWindowRegister: a collective call, with equal sizes.
ncclResult_t ncclComm::make_window(char* p, std::size_t bytes, ncclWindow_t* out, int flags) {
  const char* call = "ncclCommWindowRegister";
  ++windows_;
  if (fault("nccl-window", windows_)) return ncclUnhandledCudaError;
  const NcclWindowCall mine{bytes, flags};
  link_.post_window(mine, windows_);
  if (!wait([&] { return link_.all_post_window(windows_); }, false)) return ncclInternalError;
  for (int r = 0; r < size_; ++r)
    if (const NcclWindowCall& other = link_.window_call_of(r); !(other == mine))
      violation(call, fmt::format("rank {} registers {} bytes with flags {}, rank {} {} bytes with flags {}", rank_,
                                  bytes, flags, r, other.bytes, other.flags));
  link_.confirm_window(windows_);
  if (!wait([&] { return link_.all_confirm_window(windows_); }, false)) return ncclInternalError;
  void* const handle = new_handle();
  const std::lock_guard hold(registrations_mutex());
  registrations[handle] = {p, bytes, NcclOperation::window, flags, 0};
  *out = static_cast<ncclWindow_t>(handle);
  return ncclSuccess;
}

extern "C" {

ncclResult_t ncclMemAlloc(void** out, std::size_t bytes) {
  check_call("ncclMemAlloc", Safety::unsafe_in_capture);
  if (!out || bytes == 0) return ncclInvalidArgument;
  *out = allocate_device(bytes, true);
  if (!*out) return ncclUnhandledCudaError;
  const std::lock_guard hold(ncclComm::registrations_mutex());
  allocations()[static_cast<char*>(*out)] = bytes;
  return ncclSuccess;
}

// NCCL documentation: a buffer is deregistered before it is freed.
ncclResult_t ncclMemFree(void* p) {
  const char* call = "ncclMemFree";
  check_call(call, Safety::unsafe_in_capture);
  if (!p) return ncclSuccess;
  {
    const std::lock_guard hold(ncclComm::registrations_mutex());
    const auto found = allocations().find(static_cast<char*>(p));
    if (found == allocations().end()) violation(call, fmt::format("{} is no allocation of ncclMemAlloc", p));
    for (const ncclComm* comm : communicators())
      for (const auto& [handle, m] : comm->registrations)
        if (m.begin >= found->first && m.begin < found->first + found->second)
          violation(call, fmt::format("{} is registered with the communicator of rank {}", p, comm->rank()));
    allocations().erase(found);
  }
  free_device(call, p);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* p, std::size_t bytes, void** handle) {
  const char* call = "ncclCommRegister";
  if (!comm || !handle) return ncclInvalidArgument;
  char* const begin = static_cast<char*>(p);
  if (const auto status = begin_registration(call, *comm, begin, bytes); status != ncclSuccess) return status;
  return comm->perform(call, [=] {
    const std::lock_guard hold(ncclComm::registrations_mutex());
    *handle = new_handle();
    comm->registrations[*handle] = {begin, bytes};
    return ncclSuccess;
  });
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  if (!comm) return ncclInvalidArgument;
  return deregister("ncclCommDeregister", *comm, handle, NcclOperation::registered);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* p, std::size_t bytes, ncclWindow_t* out, int flags) {
  const char* call = "ncclCommWindowRegister";
  if (is_old_nccl()) violation(call, "NCCL 2.26 does not have this function");
  if (!comm || !out) return ncclInvalidArgument;
  *out = nullptr;
  if (!p || bytes == 0) return ncclInvalidArgument;
  char* const begin = static_cast<char*>(p);
  if (const auto status = begin_registration(call, *comm, begin, bytes); status != ncclSuccess) return status;
  // NCCL's dev_runtime.cc: without support for windows, the call succeeds and gives none.
  if (comm->fault("nccl-no-windows", 1)) return ncclSuccess;
  if (reinterpret_cast<std::uintptr_t>(p) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)  // nccl.h
    violation(call, fmt::format("{} is not aligned to {} bytes", p, NCCL_WIN_REQUIRED_ALIGNMENT));
  {
    // NCCL documentation, ncclCommWindowRegister: collectives do not accept memory in two symmetric windows.
    const std::lock_guard hold(ncclComm::registrations_mutex());
    for (const auto& [handle, m] : comm->registrations)
      if (m.kind == NcclOperation::window && begin < m.begin + m.bytes && m.begin < begin + bytes)
        violation(call, fmt::format("{} is in another window", p));
  }
  return comm->perform(call, [=] { return comm->make_window(begin, bytes, out, flags); });
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  if (!comm) return ncclInvalidArgument;
  if (!window) return ncclSuccess;
  return deregister("ncclCommWindowDeregister", *comm, window, NcclOperation::window);
}
}
