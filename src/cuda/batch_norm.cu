#include "kernels.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {

std::unique_ptr<Op> make_batch_norm(const BatchNormSpec&, const Context&) { fail(Exit::config, "missing"); }

}  // namespace millrace::cuda
