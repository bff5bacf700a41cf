#include "kernels.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {

std::unique_ptr<Op> make_cross_entropy(const CrossEntropySpec&, const Context&) { fail(Exit::config, "missing"); }

}  // namespace millrace::cuda
