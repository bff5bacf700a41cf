// How the clocks of ranks compare, so that what they noted can stand on one axis.
#pragma once
#include <functional>

#include "millrace/comm/world.hpp"

namespace millrace {

struct ClockOffset {
  double seconds = 0;  // what this rank's clock shows, less what rank 0's shows at the same moment
  double error = 0;    // it is off by no more than this, as of then: clocks of hosts drift apart
};

// Some barriers, for some 20 milliseconds at most. Nobody leaves a barrier before all have entered it: from each follow
// an upper and a lower bound, as from a ping and its pong, and for all ranks at once; the narrowest count. Ranks of
// rank 0's host share its clock. Collective. clock: seconds; std::chrono::steady_clock by default.
ClockOffset clock_offset(World&, const std::function<double()>& clock = {});

}  // namespace millrace
