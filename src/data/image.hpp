// Images in memory: decoded, resized, cropped. Private to the data room.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct Image {
  std::int64_t height = 0, width = 0, channels = 3;
  std::vector<std::uint8_t> pixels;  // rows of pixels, channels last
};

constexpr std::int64_t most_pixels = std::int64_t(1) << 28;  // more is taken for a damaged header

// RGB, 8 bits: palettes and grey are expanded, 16 bits cut to 8, alpha dropped, CMYK converted; EXIF's orientation is
// not obeyed. Told apart by their contents. Error(data) with the path: damaged, cut off, neither, or libpng or libjpeg
// is not in this build.
Image decode_image(const std::string& content, const std::string& path);
Image decode_png(const std::string& content, const std::string& path);   // with/png.cpp or without/png.cpp
Image decode_jpeg(const std::string& content, const std::string& path);  // with/jpeg.cpp or without/jpeg.cpp

Image to_grey(const Image&);  // 0.299 R + 0.587 G + 0.114 B
// Bilinear, its triangle widened by the factor when shrinking: what falls between the new pixels is averaged, not
// skipped.
Image resized(const Image&, std::int64_t height, std::int64_t width);
Image centre_cropped(const Image&, std::int64_t height, std::int64_t width);

}  // namespace millrace
