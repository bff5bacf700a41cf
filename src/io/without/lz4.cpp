// Linked if the build has no LZ4.
#include "io/codec.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {

void lz4_block(const char*, std::size_t, char*, std::size_t) {
  fail(Exit::data, "this build has no lz4. install liblz4-dev and build again");
}

const Codec lz4_codec{32004, "liblz4-dev", nullptr};

}  // namespace millrace::io
