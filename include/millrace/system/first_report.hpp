// If several ranks of a host fail at the same time, for example because all waited for the same rank, one of them
// reports it.
#pragma once

namespace millrace {

// Whether this process is the first of its job on this host that calls it while the others live. May be called in a
// signal handler. True if that cannot be found out.
bool claim_report_of_host() noexcept;

}  // namespace millrace
