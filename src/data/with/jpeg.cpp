// libjpeg's error handler must not return: it jumps, past nothing that has a destructor.
#include <cstdio>  // jpeglib.h needs it first
//
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>

#include "image.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

struct Handler {
  jpeg_error_mgr base;  // the first member: libjpeg hands out its address
  std::jmp_buf jump;
  char problem[JMSG_LENGTH_MAX];
};

void complain(j_common_ptr jpeg) {
  auto* handler = reinterpret_cast<Handler*>(jpeg->err);
  jpeg->err->format_message(jpeg, handler->problem);
  std::longjmp(handler->jump, 1);
}

// An end before its time and a bit that was flipped are only warnings to libjpeg, which fills with grey.
void on_message(j_common_ptr jpeg, int level) {
  const int code = jpeg->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE)) complain(jpeg);
}

bool decode(jpeg_decompress_struct& jpeg, Handler& handler, const std::string& content, Image& out) {
  if (setjmp(handler.jump)) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(content.data()), content.size());
  jpeg_read_header(&jpeg, TRUE);
  const bool four = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = four ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&jpeg);
  out.height = jpeg.output_height, out.width = jpeg.output_width;
  if (out.height * out.width > most_pixels) ERREXIT(&jpeg, JERR_IMAGE_TOO_BIG);
  const std::size_t bytes = std::size_t(out.width) * std::size_t(jpeg.output_components);
  out.pixels.resize(bytes * std::size_t(out.height));
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = out.pixels.data() + bytes * jpeg.output_scanline;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

// Adobe's programs store the inks inverted.
void inks_to_rgb(Image& image, bool inverted) {
  std::vector<std::uint8_t> rgb(std::size_t(3 * image.height * image.width));
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    const std::uint8_t* p = &image.pixels[i / 3 * 4];
    const unsigned ink = inverted ? p[i % 3] : 255u - p[i % 3], black = inverted ? p[3] : 255u - p[3];
    rgb[i] = std::uint8_t(ink * black / 255);
  }
  image.pixels.swap(rgb);
}

}  // namespace

Image decode_jpeg(const std::string& content, const std::string& path) {
  jpeg_decompress_struct jpeg{};
  Handler handler{};
  jpeg.err = jpeg_std_error(&handler.base);
  handler.base.error_exit = complain, handler.base.emit_message = on_message;
  Image out;
  const bool good = decode(jpeg, handler, content, out);
  const bool four = jpeg.out_color_space == JCS_CMYK, inverted = jpeg.saw_Adobe_marker;
  jpeg_destroy_decompress(&jpeg);
  if (!good) fail(Exit::data, path, " cannot be decoded (", handler.problem, "). remove it or fetch it again");
  if (four) inks_to_rgb(out, inverted);
  return out;
}

}  // namespace millrace
