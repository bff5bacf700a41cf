#include <cstdint>

#include "cuda/runtime/copy_small.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

struct CopyWords {
  std::uint32_t* to;
  const std::uint32_t* from;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const { to[i] = from[i]; }
};

}  // namespace

void copy_small(const LaunchContext& context, void* to, const void* from, std::size_t bytes) {
  MR_CHECK(bytes % sizeof(std::uint32_t) == 0);
  for_each(context, std::int64_t(bytes / sizeof(std::uint32_t)),
           CopyWords{static_cast<std::uint32_t*>(to), static_cast<const std::uint32_t*>(from)});
}

}  // namespace millrace::cuda
