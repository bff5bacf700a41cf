// libpng reports errors by longjmp: nothing with a destructor is made between setjmp and it.
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "image.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

struct Reading {
  const std::string& content;
  std::size_t at = 0;
  char problem[200] = "";
};

void give(png_structp png, png_bytep to, png_size_t bytes) {
  auto& from = *static_cast<Reading*>(png_get_io_ptr(png));
  if (from.content.size() - from.at < bytes) png_error(png, "it is cut off");
  std::memcpy(to, from.content.data() + from.at, bytes);
  from.at += bytes;
}

void complain(png_structp png, png_const_charp text) {
  auto& from = *static_cast<Reading*>(png_get_error_ptr(png));
  std::strncpy(from.problem, text, sizeof from.problem - 1);
  png_longjmp(png, 1);
}

void be_quiet(png_structp, png_const_charp) {}

// False: reading.problem says why. The rows point into out.pixels.
bool decode(png_structp png, png_infop info, Reading& reading, Image& out, std::vector<png_bytep>& rows) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_read_fn(png, &reading, give);
  png_read_info(png, info);
  png_set_expand(png), png_set_strip_16(png), png_set_strip_alpha(png), png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  out.height = png_get_image_height(png, info), out.width = png_get_image_width(png, info);
  if (out.height * out.width > most_pixels) png_error(png, "of more than 2^28 pixels");
  const std::size_t row_bytes = png_get_rowbytes(png, info);
  if (row_bytes != 3 * std::size_t(out.width)) png_error(png, "of a kind that is not read");
  out.pixels.resize(row_bytes * std::size_t(out.height));
  rows.resize(std::size_t(out.height));
  for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = out.pixels.data() + y * row_bytes;
  png_read_image(png, rows.data());
  png_read_end(png, nullptr);
  return true;
}

}  // namespace

Image decode_png(const std::string& content, const std::string& path) {
  Reading reading{content};
  Image out;
  std::vector<png_bytep> rows;
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, complain, be_quiet);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  if (!info) fail(Exit::internal, "libpng does not start");
  const bool good = decode(png, info, reading, out, rows);
  png_destroy_read_struct(&png, &info, nullptr);
  if (!good) fail(Exit::data, path, " cannot be decoded (", reading.problem, "). remove it or fetch it again");
  return out;
}

}  // namespace millrace
