#include "cuda/runtime/increment_counter.hpp"

namespace millrace::cuda {
namespace {

struct IncrementCounter {
  std::uint64_t* counter;
  MR_DEVICE_INLINE void operator()(std::int64_t) const { ++*counter; }
};

}  // namespace

void increment_counter(const LaunchContext& context, std::uint64_t* counter) {
  for_each(context, 1, IncrementCounter{counter});
}

}  // namespace millrace::cuda
