// Offsets between the clocks of the ranks, so that the events of all ranks can be drawn on one time axis.
#pragma once
#include <functional>

#include "millrace/comm/world.hpp"

namespace millrace {

struct ClockOffset {
  double seconds = 0;  // this rank's clock minus rank 0's clock at the same moment
  // Upper bound of the error of `seconds` at the time of measurement. Later it grows, because clocks of hosts drift
  // apart.
  double error = 0;
};

// Measures the offset from rank 0's clock; collective. It runs barriers for about 20 ms at most. No rank leaves a
// barrier before all have entered it, so each barrier gives an upper and a lower bound for every rank; the narrowest
// bounds are used. The offset is zero for ranks on rank 0's host, which share its clock. clock: returns seconds;
// std::chrono::steady_clock by default.
ClockOffset clock_offset(World&, const std::function<double()>& clock = {});

}  // namespace millrace
