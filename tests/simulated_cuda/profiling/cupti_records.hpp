// Internal to the simulated CUPTI: its records as bytes.
#pragma once
#include <cupti.h>

#include <cstdint>
#include <map>
#include <vector>

#include "simulated_cuda/simulator.hpp"

namespace millrace::simulated {

using Bytes = std::vector<std::uint8_t>;
// The stack of numbers that a thread pushed, for each kind.
using ExternalIds = std::map<CUpti_ExternalCorrelationKind, std::vector<std::uint64_t>>;

struct WorkRecord {
  Activity activity;
  std::uint32_t correlation = 0, device = 0, stream = 0;
  std::uint64_t node = 0;              // of a graph
  std::uint64_t began = 0, ended = 0;  // nanoseconds; 0: not yet
};
CUpti_ActivityKind kind_of(const Activity&);
Bytes bytes_of(const WorkRecord&);

// Of a call of the runtime or the driver (kind), which the records of `external` precede.
Bytes bytes_of_call(CUpti_ActivityKind kind, std::uint32_t correlation, std::uint64_t time,
                    const ExternalIds& external);

std::size_t size_of_record(const CUpti_Activity&);

}  // namespace millrace::simulated
