// The smallest bounds that the advisor acts on or states. The first three are fractions of the time of a step. Internal
// to advisor/rules.
#pragma once

namespace millrace {

inline constexpr double min_tried_share = 0.03;      // a smaller bound is not tried in trials
inline constexpr double min_stated_share = 0.08;     // a smaller bound is not stated without a trial
inline constexpr double min_late_share = 0.25;       // a bound this large is stated even if little of it is recoverable
inline constexpr double min_stated_startup = 0.25;   // of the run
inline constexpr double min_stated_decoding = 0.05;  // of the loader's time
inline constexpr double min_stated_evaluation = 0.2;  // evaluations that take less are worth their time

// A run with fewer steps, or with fewer seconds after start-up, is not judged: start-up effects and noise prevail.
inline constexpr double min_judged_steps = 10;
inline constexpr double min_judged_seconds = 0.9;

}  // namespace millrace
