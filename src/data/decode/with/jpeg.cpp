// Decodes JPEG with libjpeg. Its error handler must not return, so it uses longjmp; no object with a destructor lives
// between setjmp and the jump.
#include <cstdio>  // jpeglib.h needs it first
//
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>

#include "millrace/base/error.hpp"
#include "millrace/data/decode/image.hpp"

namespace millrace {
namespace {

struct Handler {
  jpeg_error_mgr base;  // must be the first member: libjpeg passes its address
  std::jmp_buf jump;
  char problem[JMSG_LENGTH_MAX];
};

void on_error(j_common_ptr jpeg) {
  auto* handler = reinterpret_cast<Handler*>(jpeg->err);
  jpeg->err->format_message(jpeg, handler->problem);
  std::longjmp(handler->jump, 1);
}

// libjpeg only warns of a premature end and of corrupt codes, and fills the rest with grey. Here they are errors.
void on_message(j_common_ptr jpeg, int level) {
  const int code = jpeg->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE)) on_error(jpeg);
}

struct Decoder {
  jpeg_decompress_struct jpeg{};
  Handler handler{};
  Decoder() {
    jpeg.err = jpeg_std_error(&handler.base);
    handler.base.error_exit = on_error;
    handler.base.emit_message = on_message;
  }
  ~Decoder() { jpeg_destroy_decompress(&jpeg); }
};

bool read_header(jpeg_decompress_struct& jpeg, Handler& handler, std::string_view content) {
  if (setjmp(handler.jump)) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(content.data()), content.size());
  jpeg_read_header(&jpeg, TRUE);
  if (std::int64_t(jpeg.image_height) * jpeg.image_width > max_image_pixels) ERREXIT(&jpeg, JERR_IMAGE_TOO_BIG);
  return true;
}

// libjpeg cuts columns at block borders, where the upsampling of colours lacks its neighbour. Two more pixels on each
// side give the region the same values as in the whole image.
bool read_pixels(jpeg_decompress_struct& jpeg, Handler& handler, const DecodeRegion& region, Image& out) {
  if (setjmp(handler.jump)) return false;
  const bool cmyk = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg.scale_num = unsigned(region.eighths);
  jpeg.scale_denom = 8;
  jpeg_start_decompress(&jpeg);
  out.whole_height = jpeg.output_height;
  out.whole_width = jpeg.output_width;
  JDIMENSION left = JDIMENSION(std::max<std::int64_t>(0, region.left - 2));
  JDIMENSION width = JDIMENSION(std::min(out.whole_width, region.left + region.width + 2)) - left;
  if (width < jpeg.output_width) jpeg_crop_scanline(&jpeg, &left, &width);
  out.top = region.top;
  out.left = left;
  out.height = region.height;
  out.width = width;
  const std::size_t bytes = std::size_t(out.width) * std::size_t(jpeg.output_components);
  out.pixels.resize(bytes * std::size_t(out.height));
  if (region.top > 0) jpeg_skip_scanlines(&jpeg, JDIMENSION(region.top));
  for (std::int64_t y = 0; y < out.height; ++y) {
    JSAMPROW row = out.pixels.data() + bytes * std::size_t(y);
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  if (region.to_end && jpeg.output_scanline < jpeg.output_height)
    jpeg_skip_scanlines(&jpeg, jpeg.output_height - jpeg.output_scanline);
  if (jpeg.output_scanline == jpeg.output_height) jpeg_finish_decompress(&jpeg);
  return true;
}

// Adobe's programs store inverted ink values.
void inks_to_rgb(Image& image, bool inverted) {
  const std::size_t pixels = std::size_t(image.height * image.width);
  for (std::size_t i = 0; i < pixels; ++i) {
    const std::uint8_t* p = &image.pixels[4 * i];
    const unsigned black = inverted ? p[3] : 255u - p[3];
    for (std::size_t c = 0; c < 3; ++c) {
      const unsigned ink = inverted ? p[c] : 255u - p[c];
      image.pixels[3 * i + c] = std::uint8_t(ink * black / 255);
    }
  }
  image.pixels.resize(3 * pixels);
}

}  // namespace

void decode_jpeg(std::string_view content, const std::string& path, const RegionChooser& choose, Image& out) {
  Decoder decoder;
  const auto check = [&](bool good) {
    if (!good)
      fail(Exit::data, "{} cannot be decoded ({}). remove it or fetch it again", path, decoder.handler.problem);
  };
  check(read_header(decoder.jpeg, decoder.handler, content));
  out.whole_height = decoder.jpeg.image_height;
  out.whole_width = decoder.jpeg.image_width;
  const DecodeRegion region = choose(out.whole_height, out.whole_width);
  if (region.height == 0) return;
  check(read_pixels(decoder.jpeg, decoder.handler, region, out));
  if (decoder.jpeg.out_color_space == JCS_CMYK) inks_to_rgb(out, decoder.jpeg.saw_Adobe_marker);
}

}  // namespace millrace
