// Linked where the library is absent.
#include "image.hpp"
#include "millrace/base/error.hpp"

namespace millrace {

Image decode_png(const std::string&, const std::string& path) {
  fail(Exit::data, path, " is a PNG image, which this build does not read. install libpng-dev and build again");
}

}  // namespace millrace
