#include "cuda/runtime/count_up.hpp"

namespace millrace::cuda {
namespace {

struct CountUp {
  std::uint64_t* counter;
  MR_BODY void operator()(std::int64_t) const { ++*counter; }
};

}  // namespace

void count_up(const Context& context, std::uint64_t* counter) { for_each(context, 1, CountUp{counter}); }

}  // namespace millrace::cuda
