// Linked if the build has no Blosc.
#include "io/codec.hpp"

namespace millrace::io {

const Codec blosc_codec{32001, "libblosc-dev", nullptr};

}  // namespace millrace::io
