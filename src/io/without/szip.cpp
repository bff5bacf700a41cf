// Linked if the build has no libaec.
#include "io/codec.hpp"

namespace millrace::io {

const Codec szip_codec{4, "libaec-dev", nullptr};

}  // namespace millrace::io
