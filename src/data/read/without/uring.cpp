// Linked where liburing is not installed.
#include "millrace/base/error.hpp"
#include "millrace/data/read/async_reads.hpp"

namespace millrace {

std::string uring_unavailable_reason() { return "this build has no liburing (install liburing-dev and build again)"; }
std::unique_ptr<AsyncReads> make_uring_reads(std::span<const std::span<char>>) {
  fail(Exit::config, "cannot use io_uring: {}", uring_unavailable_reason());
}

}  // namespace millrace
