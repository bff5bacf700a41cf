// Linked if the build has no Zstandard.
#include "io/codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {

void zstd_block(const char*, std::size_t, char*, std::size_t) {
  fail(Exit::data, "this build has no zstd. install libzstd-dev and build again");
}

const Codec zstd_codec{32015, "libzstd-dev", nullptr};

}  // namespace millrace::io
