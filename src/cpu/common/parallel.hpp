// Parallel loops over ranges. The ranges depend only on the size and the number of threads, so sums are bitwise
// reproducible. Without OpenMP, as in the build for the thread sanitizer, loops run on the calling thread.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "millrace/base/align.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace::cpu {

#ifdef _OPENMP
inline int thread_count() { return omp_get_max_threads(); }
inline int thread_number() { return omp_get_thread_num(); }  // of the calling thread, in a parallel loop
inline void set_thread_count(int threads) { omp_set_num_threads(threads); }
#else
inline int thread_count() { return 1; }
inline int thread_number() { return 0; }
inline void set_thread_count(int) {}
#endif

// Calls body(begin, end) for at most thread_count() contiguous ranges that cover [0, count). Ranges begin at multiples
// of `grain`. A loop of at most one grain runs on the calling thread. `body` must not throw.
template <class Body>
void parallel_ranges(std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const std::int64_t parts = std::min<std::int64_t>(thread_count(), grains);
  if (parts <= 1) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads(int(parts))
#endif
  for (std::int64_t p = 0; p < parts; ++p)
    body(grains * p / parts * grain, std::min(count, grains * (p + 1) / parts * grain));
}

}  // namespace millrace::cpu
