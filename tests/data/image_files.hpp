// Writes image files for tests with libpng and libjpeg.
#pragma once
#ifdef MILLRACE_WITH_PNG
#include <png.h>
#endif
#ifdef MILLRACE_WITH_JPEG
#include <cstdio>
//
#include <jpeglib.h>
#endif

#include <functional>
#include <string>
#include <vector>

namespace millrace::test {

using Pixel = std::function<int(int y, int x, int c)>;

#ifdef MILLRACE_WITH_PNG
inline void write_png(const std::string& path, int height, int width, int type, const Pixel& pixel, int depth = 8) {
  const int channels = type == PNG_COLOR_TYPE_RGB          ? 3
                       : type == PNG_COLOR_TYPE_RGBA       ? 4
                       : type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                           : 1;
  FILE* file = std::fopen(path.c_str(), "wb");
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_init_io(png, file);
  png_set_IHDR(png, info, png_uint_32(width), png_uint_32(height), depth, type, PNG_INTERLACE_NONE, 0, 0);
  if (type == PNG_COLOR_TYPE_PALETTE) {
    png_color palette[2] = {{10, 20, 30}, {200, 100, 50}};
    png_set_PLTE(png, info, palette, 2);
  }
  png_write_info(png, info);
  for (int y = 0; y < height; ++y) {
    std::vector<std::uint8_t> line;
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) {
        line.push_back(std::uint8_t(pixel(y, x, c)));
        if (depth == 16) line.push_back(0);
      }
    png_write_row(png, line.data());
  }
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  std::fclose(file);
}
#endif

#ifdef MILLRACE_WITH_JPEG
struct JpegKind {
  bool progressive = false;
  int quality = 100, across = 2, down = 2;  // chroma subsampling: pixels that share a colour
};
inline void write_jpeg(const std::string& path, int height, int width, int channels, const Pixel& pixel,
                       JpegKind kind = {}) {
  FILE* file = std::fopen(path.c_str(), "wb");
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr error;
  jpeg.err = jpeg_std_error(&error);
  jpeg_create_compress(&jpeg);
  jpeg_stdio_dest(&jpeg, file);
  jpeg.image_width = JDIMENSION(width);
  jpeg.image_height = JDIMENSION(height);
  jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, kind.quality, TRUE);
  if (channels == 3) {
    jpeg.comp_info[0].h_samp_factor = kind.across;
    jpeg.comp_info[0].v_samp_factor = kind.down;
  }
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    std::vector<std::uint8_t> line;
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) line.push_back(std::uint8_t(pixel(int(jpeg.next_scanline), x, c)));
    JSAMPROW at = line.data();
    jpeg_write_scanlines(&jpeg, &at, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::fclose(file);
}
#endif

}  // namespace millrace::test
