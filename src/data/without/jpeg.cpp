// Linked where the library is absent.
#include "image.hpp"
#include "millrace/base/error.hpp"

namespace millrace {

Image decode_jpeg(const std::string&, const std::string& path) {
  fail(Exit::data, path, " is a JPEG image, which this build does not read. install libjpeg-dev and build again");
}

}  // namespace millrace
