// How long threads waited for a core that other programs used.
#pragma once
#include <filesystem>

namespace millrace::cpu {

// Seconds, of all threads of this process that live, since they started; -1: the kernel does not count it. A thread
// that sleeps does not wait. root: where /proc is mounted.
double waited_seconds(const std::filesystem::path& root = "/");

}  // namespace millrace::cpu
