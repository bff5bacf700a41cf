// The main memory that this process may use: that of the host, or less if a control group (of a job or a container)
// limits it.
#pragma once
#include <cstddef>
#include <filesystem>

namespace millrace {

// Sizes in bytes.
struct HostMemory {
  std::size_t total = 0;
  std::size_t available = 0;  // free memory, and memory that the kernel can reclaim, such as cached files
};

// root: the folder that contains /proc and /sys, for tests.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace millrace
