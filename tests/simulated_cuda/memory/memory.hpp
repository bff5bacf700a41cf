// Internal to the simulated CUDA runtime: device memory and page-locked host memory.
#pragma once
#include <cstddef>

namespace millrace::simulated {

// While one of these lives, the thread that made it can read and write device memory; otherwise a touch ends the
// process. On processors without protection keys all threads can while at least one lives, so the host may touch device
// memory unnoticed while work runs.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
};

enum class Place { device, pinned, pageable };
Place place_of(const void*);
// Whether [p, p + bytes) lies in one live allocation of device or page-locked memory.
bool lies_in_allocation(const void* p, std::size_t bytes);

}  // namespace millrace::simulated
