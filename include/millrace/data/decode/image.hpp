// Decodes JPEG and PNG images, as far as needed, and resamples them. Private to the data room.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// A region of an image, which its decoder may have reduced in size. Rows of pixels, channels last.
struct Image {
  std::int64_t whole_height = 0, whole_width = 0;  // size of the whole (reduced) image
  std::int64_t top = 0, left = 0;                  // position of the region in it
  std::int64_t height = 0, width = 0, channels = 3;
  std::vector<std::uint8_t> pixels;
};

constexpr std::int64_t max_image_pixels = std::int64_t(1) << 28;  // a header with more pixels is considered damaged

// The region of an image to decode, in pixels of the image reduced to eighths / 8 of its size. height 0: only the size
// of the image is needed.
struct DecodeRegion {
  int eighths = 8;  // 1, 2, 4 or 8
  std::int64_t top = 0, left = 0, height = 0, width = 0;
  bool to_end = true;  // also read the rest of the file, to detect one that is cut off
};
// Chooses the region once the size of the image is known.
using RegionChooser = std::function<DecodeRegion(std::int64_t height, std::int64_t width)>;
DecodeRegion full_region(std::int64_t height, std::int64_t width);
DecodeRegion size_only(std::int64_t height, std::int64_t width);

// Decodes an image to 8-bit RGB. Palettes and grey are expanded, 16 bits are reduced to 8, alpha is dropped, CMYK is
// converted; the EXIF orientation is ignored. The contents tell JPEG from PNG. `out`, whose memory is reused, gets the
// region and possibly pixels around it, with the same values as in the whole image. Only JPEG may be reduced in size.
// Error(data) with the path if the image is damaged, cut off, neither JPEG nor PNG, or if this build lacks the library.
void decode_image(std::string_view content, const std::string& path, const RegionChooser& choose, Image& out);
void decode_png(std::string_view content, const std::string& path, const RegionChooser&, Image& out);
void decode_jpeg(std::string_view content, const std::string& path, const RegionChooser&, Image& out);
bool is_jpeg(std::string_view content);

void to_grey(std::uint8_t* rgb, std::int64_t pixels);  // in place, to one byte per pixel: 0.299 R + 0.587 G + 0.114 B

// Positions of new pixels along one axis: the centre of pixel i is at (first + i + 0.5) * step old pixels.
struct ResampleAxis {
  std::int64_t count = 0;
  double step = 1, first = 0;
};
struct ResampleGrid {
  ResampleAxis down, across;
};
// Chooses the grid once the size of the image is known.
using GridChooser = std::function<ResampleGrid(std::int64_t height, std::int64_t width)>;

// How much of an image decode_and_resample decodes.
enum class DecodeExtent {
  plain,    // all pixels; for comparison
  checked,  // the pixels that the grid needs, with the same result; the rest of the file is read to detect a cut-off
            // file
  needed  // nothing behind the last needed row; the JPEG decoder also reduces the image to the half, quarter or eighth
          // that is not smaller than the grid, and resampling starts from there
};
// Decodes an image and resamples it; `to` gets the rows of RGB pixels of the grid. The filter is bilinear; its triangle
// is widened by the scale factor when shrinking, so that the pixels between the new ones are averaged, not skipped.
void decode_and_resample(std::string_view content, const std::string& path, const GridChooser&, DecodeExtent,
                         Image& scratch, std::uint8_t* to);

}  // namespace millrace
