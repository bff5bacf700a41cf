#include "kernels.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {

std::size_t row_sums_bytes(std::int64_t, std::int64_t, const Context&) { return 0; }
void row_sums(const Context&, float*, const void*, DType, std::int64_t, std::int64_t, GradMode, void*) {
  fail(Exit::config, "missing");
}

}  // namespace millrace::cuda
