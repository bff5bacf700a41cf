// Linked where the library is absent.
#include "io/codec.hpp"

namespace millrace::io {

const Codec szip_codec{4, "libaec-dev", nullptr};

}  // namespace millrace::io
