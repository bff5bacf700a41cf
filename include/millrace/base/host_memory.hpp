// Main memory as this process may use it: the host's, or less where a control group (a job's or a container's) says so.
#pragma once
#include <cstddef>
#include <filesystem>

namespace millrace {

struct HostMemory {
  std::size_t total = 0;
  std::size_t available = 0;  // free, or taken by what the kernel gives up when asked, as cached files
};

// root: where /proc and /sys are found; tests have their own.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace millrace
