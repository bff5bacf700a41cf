// The EXIF orientation of a JPEG: how the camera was held. Private to the data room.
#pragma once
#include <cstdint>
#include <string_view>

#include "millrace/data/decode/image.hpp"

namespace millrace {

// The EXIF number from 1 to 8; 1 (stored upright) if the file has none.
int orientation_of(std::string_view content);

// Converts between the upright image and the image as it is stored.
struct ExifOrientation {
  explicit ExifOrientation(int orientation) : number(orientation) {}
  const int number;
  bool swapped() const { return number >= 5; }  // rows are stored as columns
  bool rows_reversed() const { return number == 3 || number == 4 || number == 6 || number == 7; }
  bool columns_reversed() const { return number == 2 || number == 3 || number == 7 || number == 8; }
  // Converts a grid on the upright image to one on the stored image of height x width.
  ResampleGrid stored(const ResampleGrid& upright, std::int64_t height, std::int64_t width) const;
  // Turns RGB pixels that were resampled with the grid `stored` upright.
  void turn(const std::uint8_t* rgb, const ResampleGrid& stored, std::uint8_t* upright) const;
};

}  // namespace millrace
