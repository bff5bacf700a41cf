// Linked if the build has no libpng.
#include "millrace/base/error.hpp"
#include "millrace/data/decode/image.hpp"

namespace millrace {

void decode_png(std::string_view, const std::string& path, const RegionChooser&, Image&) {
  fail(Exit::data, "{} is a PNG image, which this build cannot read. install libpng-dev and build again", path);
}

}  // namespace millrace
