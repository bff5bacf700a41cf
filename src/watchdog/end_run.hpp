// How the watchdog ends the run. Private to the watchdog.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <vector>

#include "watchdog/judge.hpp"

namespace millrace::watchdog {

constexpr std::chrono::milliseconds longest_end{2000};

// Prints the line, writes the flight record, and ends all ranks with exit code 5. abort may be empty. Takes about
// longest_end at most, even if the file system or MPI hang. to_kill: processes of stopped ranks of this host.
[[noreturn]] void end_run(const Verdict&, const std::vector<Position>& all, const std::vector<int>& to_kill,
                          const std::filesystem::path& folder, const std::function<void()>& abort);
// Ends this rank alone, because another one reports.
[[noreturn]] void end_silently(const std::vector<int>& to_kill);

}  // namespace millrace::watchdog
