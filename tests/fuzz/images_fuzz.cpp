// PNG and JPEG images, decoded in full and as the loader does. The code of the libraries is not instrumented.
#include <vector>

#include "fuzz.hpp"
#include "millrace/data/decode/image.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  fuzz::refuses_or_works([&] {
    Image image;
    decode_image(content, "fuzz", size_only, image);
    if (image.whole_height * image.whole_width > (1 << 16)) return;  // for speed
    decode_image(content, "fuzz", full_region, image);
  });
  for (const DecodeExtent how : {DecodeExtent::checked, DecodeExtent::needed})
    fuzz::refuses_or_works([&] {
      Image scratch;
      std::vector<std::uint8_t> out(8 * 8 * 3);
      decode_and_resample(
          content, "fuzz",
          [](std::int64_t height, std::int64_t width) {
            if (height * width > (1 << 16)) fail(Exit::data, "too large to be quick");
            return ResampleGrid{{8, double(height) / 16, 4}, {8, double(width) / 16, 4}};
          },
          how, scratch, out.data());
    });
  return 0;
}
