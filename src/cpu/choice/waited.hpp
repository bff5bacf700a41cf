// How long threads waited for a core that other work used: other programs, or other threads of this one.
#pragma once
#include <filesystem>
#include <vector>

namespace millrace::cpu {

// Seconds, of these threads of this process, since they started; -1: the kernel does not count it. A thread that sleeps
// does not wait. root: where /proc is mounted.
double waited_seconds(const std::vector<int>& threads, const std::filesystem::path& root = "/");

}  // namespace millrace::cpu
