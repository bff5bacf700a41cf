// If several ranks of a host fail at the same time, for example because all waited for the same rank, or if the
// watchdog ends the run while a rank fails, one of them reports it.
#pragma once
#include <cstdint>

namespace millrace {

// The parts of a process that report the end of a run: a failed thread, the watchdog of ranks, and that of collectives.
enum class Reporter : std::uint8_t { failure = 1, watchdog, collectives };

// Whether this part of this process is the first of its job on this host that calls it while the others live. Further
// calls return the same as long as it is. May be called in a signal handler. In a job that cannot be told from others,
// each process counts as a host.
bool claim_report_of_host(Reporter) noexcept;

}  // namespace millrace
