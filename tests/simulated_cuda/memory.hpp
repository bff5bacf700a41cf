// Internal to the simulated CUDA runtime: device memory and page-locked host memory.
#pragma once
#include <cstddef>

namespace millrace::simulated {

// While at least one of these lives, device memory can be read and written; otherwise a touch ends the process. It is
// for the thread that runs a piece of work. The host may touch device memory unnoticed while work runs.
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
