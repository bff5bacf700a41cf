// Parallel loops over ranges. The ranges depend only on the size and the number of threads, so sums are bitwise
// reproducible.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/common/threads.hpp"
#include "millrace/base/align.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace::cpu {

// A loop is cut into this many ranges per thread, so that others can take over those that a thread has not begun.
inline constexpr int ranges_per_thread = 4;

// Calls body(begin, end) for contiguous ranges that cover [0, count). Ranges begin at multiples of `grain`. A loop of
// at most one grain runs on the calling thread. `body` must not throw. thread_number() tells ranges apart that run at
// the same time.
template <class Body>
void parallel_ranges(std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const int threads = thread_count();
  const std::int64_t parts =
      std::min<std::int64_t>(threads > 1 ? std::min(threads * ranges_per_thread, max_parts) : 1, grains);
  if (parts <= 1) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
  const auto run = [&](std::int64_t part) {
    body(grains * part / parts * grain, std::min(count, grains * (part + 1) / parts * grain));
  };
  run_parts(
      int(parts), threads, [](const void* r, int part) { (*static_cast<const decltype(run)*>(r))(part); }, &run);
}

}  // namespace millrace::cpu
