// Linked where the library is absent.
#include "async_reads.hpp"
#include "millrace/base/error.hpp"

namespace millrace {

std::string uring_refused() { return "this build has no liburing (install liburing-dev and build again)"; }
std::unique_ptr<AsyncReads> make_uring_reads(std::span<const std::span<char>>) {
  fail(Exit::config, "no io_uring: ", uring_refused());
}

}  // namespace millrace
