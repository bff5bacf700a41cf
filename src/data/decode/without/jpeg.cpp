// Linked if the build has no libjpeg.
#include "millrace/base/error.hpp"
#include "millrace/data/decode/image.hpp"

namespace millrace {

void decode_jpeg(std::string_view, const std::string& path, const RegionChooser&, Image&) {
  fail(Exit::data, "{} is a JPEG image, which this build cannot read. install libjpeg-dev and build again", path);
}

}  // namespace millrace
