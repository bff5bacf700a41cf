// Images in memory: decoded as far as they are wanted, filtered to size. Private to the data room.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// A part of an image, which may have been reduced by its decoder: rows of pixels, channels last.
struct Image {
  std::int64_t whole_height = 0, whole_width = 0;  // of the reduced image
  std::int64_t top = 0, left = 0;                  // of the part, in it
  std::int64_t height = 0, width = 0, channels = 3;
  std::vector<std::uint8_t> pixels;
};

constexpr std::int64_t max_image_pixels = std::int64_t(1) << 28;  // more is taken for a damaged header

// What is wanted of an image, in pixels of the image reduced to eighths / 8 of its size. No rows: its size alone.
struct DecodeRegion {
  int eighths = 8;  // 1, 2, 4 or 8
  std::int64_t top = 0, left = 0, height = 0, width = 0;
  bool to_end = true;  // what lies behind the last row is looked at too, so that a file that is cut off shows
};
using RegionChooser = std::function<DecodeRegion(std::int64_t height, std::int64_t width)>;  // of an image of this size
DecodeRegion full_region(std::int64_t height, std::int64_t width);
DecodeRegion size_only(std::int64_t height, std::int64_t width);

// RGB, 8 bits: palettes and grey are expanded, 16 bits cut to 8, alpha dropped, CMYK converted; EXIF's orientation is
// not obeyed. Told apart by their contents. `out`, whose memory is used again, gets the cut, and maybe pixels around
// it: the same values as of the whole image. Only JPEG may be reduced. Error(data) with the path: damaged, cut off,
// neither, or libpng or libjpeg is not in this build.
void decode_image(std::string_view content, const std::string& path, const RegionChooser& choose, Image& out);
void decode_png(std::string_view content, const std::string& path, const RegionChooser&,
                Image& out);  // with/, without/
void decode_jpeg(std::string_view content, const std::string& path, const RegionChooser&,
                 Image& out);  // with/, without/
bool is_jpeg(std::string_view content);

void to_grey(std::uint8_t* rgb, std::int64_t pixels);  // in place: 0.299 R + 0.587 G + 0.114 B, a byte a pixel

// Where the new pixels of an axis come from: number i is centred at (first + i + 0.5) * step old pixels.
struct ResampleAxis {
  std::int64_t count = 0;
  double step = 1, first = 0;
};
struct ResampleGrid {
  ResampleAxis down, across;
};
using GridChooser = std::function<ResampleGrid(std::int64_t height, std::int64_t width)>;  // of an image of this size

// Decodes and filters to size: `to` gets the view's rows of RGB. Bilinear, its triangle widened by the factor when
// shrinking: what falls between the new pixels is averaged, not skipped.
enum class DecodeExtent {
  plain,    // all pixels, for comparison
  checked,  // those that the view needs, the same; the rest of the file is read over, so that one cut off shows
  needed    // nothing behind the last row that the view needs is looked at, and JPEG is reduced by its decoder to the
            // half, quarter or eighth that is no smaller than the view, and filtered from there
};
void decode_and_resample(std::string_view content, const std::string& path, const GridChooser&, DecodeExtent,
                         Image& scratch, std::uint8_t* to);

}  // namespace millrace
