#include "simulated_cuda/memory/memory.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "simulated_cuda/memory/arena.hpp"
#include "simulated_cuda/runtime.hpp"

namespace millrace::simulated {
namespace {

// cudaMalloc guarantees an alignment of 256 bytes, and cudaHostAlloc was seen to give no more than 512.
constexpr std::size_t device_offset = 256, pinned_offset = 512;

struct Range {
  Place place = Place::device;
  char* mapped = nullptr;  // null: registered memory of the program
  std::size_t mapped_bytes = 0, bytes = 0;
};

std::mutex memory_mutex;  // guards what follows
std::map<const char*, Range>& ranges() {
  static auto* const all = new std::map<const char*, Range>;  // by first byte
  return *all;
}
std::size_t device_bytes = 0;
int accesses = 0;  // of all threads; used without a protection key

// The processor's protection key of device memory. Each thread opens and closes the memory for itself, without a system
// call. -1: the processor or the kernel has no keys; then the pages of all allocations change their protection.
int protection_key() {
  static const int key = settings().protection.empty() ? ::pkey_alloc(0, PKEY_DISABLE_ACCESS) : -1;
  return key;
}
thread_local int accesses_of_thread = 0;

const std::pair<const char* const, Range>* find(const void* p) {
  auto after = ranges().upper_bound(static_cast<const char*>(p));
  if (after == ranges().begin()) return nullptr;
  const auto& found = *std::prev(after);
  return static_cast<const char*>(p) < found.first + found.second.bytes ? &found : nullptr;
}

int protection() { return accesses > 0 ? PROT_READ | PROT_WRITE : PROT_NONE; }

// Null: not of device memory, or not used.
Arena* arena_of(Place place) {
  const bool use = place == Place::device && protection_key() < 0 && settings().protection != "pages";
  return use ? Arena::get() : nullptr;
}

char* map_pages(std::size_t bytes) {
  char* const mapped = reserve(nullptr, bytes, 0);
  if (mapped) ::mprotect(mapped, bytes - page_bytes, PROT_READ | PROT_WRITE);
  return mapped;
}

void protect_all_device_memory() {
  if (const Arena* arena = arena_of(Place::device)) return arena->protect(protection());
  for (const auto& [begin, range] : ranges())
    if (range.place == Place::device) ::mprotect(range.mapped, range.mapped_bytes, protection());
}

// Device memory was touched by the host, or by work outside of what is allocated.
void on_fault(int, siginfo_t* info, void*) {
  if (info->si_code <= 0) return;  // raised by another handler: the access faults again
  const bool work = this_thread().runs_work;
  violation(work ? fmt::format("'{}' in a stream", this_thread().work) : "the host",
            fmt::format("touches {}, which is {}", info->si_addr,
                        work ? "no allocated memory" : "memory of the GPU or none"));
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigaction(SIGSEGV, &action, nullptr);
    ::sigaction(SIGBUS, &action, nullptr);
  });
}

void* map_range(Place place, std::size_t bytes, std::size_t offset) {
  Range range;
  range.place = place;
  range.bytes = bytes;
  range.mapped_bytes = (offset + bytes + page_bytes - 1) / page_bytes * page_bytes;
  Arena* const arena = arena_of(place);
  std::unique_lock hold(memory_mutex);
  const std::size_t with_guard = range.mapped_bytes + page_bytes;
  range.mapped = arena ? arena->allocate(with_guard) : map_pages(with_guard);
  if (!range.mapped) return nullptr;
  char* const begin = range.mapped + offset;
  if (!arena) hold.unlock();        // the work of other threads cannot close this memory during the fill
  std::memset(begin, 0xff, bytes);  // uninitialised memory is not zero
  if (!arena) hold.lock();
  if (place == Place::device) {
    device_bytes += bytes;
    if (const int key = protection_key(); key >= 0)
      ::pkey_mprotect(range.mapped, range.mapped_bytes, PROT_READ | PROT_WRITE, key);
    else
      ::mprotect(range.mapped, range.mapped_bytes, protection());
  }
  ranges()[begin] = range;
  return begin;
}

// Removes an allocation. False: there is none of this kind that begins at p.
bool unmap_range(Place place, void* p) {
  const std::lock_guard hold(memory_mutex);
  const auto found = ranges().find(static_cast<const char*>(p));
  if (found == ranges().end() || found->second.place != place || !found->second.mapped) return false;
  const std::size_t with_guard = found->second.mapped_bytes + page_bytes;
  if (Arena* arena = arena_of(place))
    arena->free(found->second.mapped, with_guard);
  else
    ::munmap(found->second.mapped, with_guard);
  if (place == Place::device) device_bytes -= found->second.bytes;
  ranges().erase(found);
  return true;
}

void change_accesses(int by) {
  if (const int key = protection_key(); key >= 0) {
    accesses_of_thread += by;
    ::pkey_set(key, accesses_of_thread > 0 ? 0 : PKEY_DISABLE_ACCESS);
    return;
  }
  const std::lock_guard hold(memory_mutex);
  const bool before = accesses > 0;
  accesses += by;
  if (before != (accesses > 0)) protect_all_device_memory();
}

}  // namespace

DeviceAccess::DeviceAccess() { change_accesses(1); }
DeviceAccess::~DeviceAccess() { change_accesses(-1); }
Waiting::Waiting() { change_accesses(-1); }
Waiting::~Waiting() { change_accesses(1); }

Place place_of(const void* p) {
  const std::lock_guard hold(memory_mutex);
  const auto* found = find(p);
  return found ? found->second.place : Place::pageable;
}

bool lies_in_allocation(const void* p, std::size_t bytes) {
  const std::lock_guard hold(memory_mutex);
  const auto* found = find(p);
  return found && static_cast<const char*>(p) + bytes <= found->first + found->second.bytes;
}

void check_device_range(const char* call, cudaStream_t stream, const void* p, std::size_t bytes) {
  if (place_of(p) != Place::device || !lies_in_allocation(p, bytes))
    violation(call, stream, fmt::format("{} bytes at {} are not in one allocation of device memory", bytes, p));
}

void check_accessible_range(const char* call, cudaStream_t stream, const void* p, std::size_t bytes) {
  if (!lies_in_allocation(p, bytes))
    violation(call, stream, fmt::format("{} bytes at {} are not in one allocation that the GPU can access", bytes, p));
}

void* allocate_device(std::size_t bytes, bool at_page) {
  install_handler();
  {
    const std::lock_guard hold(memory_mutex);
    if (device_bytes + bytes > settings().memory_bytes) return nullptr;
  }
  return map_range(Place::device, bytes, at_page ? 0 : device_offset);
}

void free_device(const char* call, void* p) {
  if (!p) return;
  wait_for_all_streams();
  if (!unmap_range(Place::device, p)) violation(call, fmt::format("{} is no allocation of device memory", p));
}

}  // namespace millrace::simulated

using namespace millrace::simulated;

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  check_call("cudaMalloc", Safety::unsafe_in_capture);
  *out = nullptr;
  if (fault_now("malloc")) return done(cudaErrorMemoryAllocation);
  *out = allocate_device(bytes);
  return done(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* p) {
  check_call("cudaFree", Safety::unsafe_in_capture);
  free_device("cudaFree", p);
  return done(cudaSuccess);
}
// "cudaMemoryTypeUnregistered for unregistered host memory"; no error, since CUDA 11.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  check_call("cudaPointerGetAttributes", Safety::always);
  const Place place = place_of(p);
  *out = {};
  out->type = place == Place::device   ? cudaMemoryTypeDevice
              : place == Place::pinned ? cudaMemoryTypeHost
                                       : cudaMemoryTypeUnregistered;
  return done(cudaSuccess);
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  check_call("cudaHostAlloc", Safety::unsafe_in_capture);
  *out = nullptr;
  if (fault_now("host-alloc")) return done(cudaErrorMemoryAllocation);
  *out = map_range(Place::pinned, bytes, pinned_offset);
  return done(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* p) {
  check_call("cudaFreeHost", Safety::unsafe_in_capture);
  if (!p) return done(cudaSuccess);
  wait_for_all_streams();
  if (!unmap_range(Place::pinned, p)) violation("cudaFreeHost", fmt::format("{} is no page-locked allocation", p));
  return done(cudaSuccess);
}
cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
  check_call("cudaHostRegister", Safety::unsafe_in_capture);
  const std::lock_guard hold(memory_mutex);
  if (find(p)) return done(cudaErrorHostMemoryAlreadyRegistered);
  Range range;
  range.place = Place::pinned;
  range.bytes = bytes;
  ranges()[static_cast<char*>(p)] = range;
  return done(cudaSuccess);
}
cudaError_t cudaHostUnregister(void* p) {
  check_call("cudaHostUnregister", Safety::unsafe_in_capture);
  const std::lock_guard hold(memory_mutex);
  const auto found = ranges().find(static_cast<const char*>(p));
  if (found == ranges().end() || found->second.mapped) return done(cudaErrorHostMemoryNotRegistered);
  ranges().erase(found);
  return done(cudaSuccess);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  check_call("cudaMemGetInfo", Safety::always);
  const std::lock_guard hold(memory_mutex);
  *total = settings().memory_bytes;
  *free = *total - device_bytes;
  return done(cudaSuccess);
}
}
