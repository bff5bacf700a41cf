// How a camera was held: the orientation in a JPEG's EXIF. Private to the data room.
#pragma once
#include <cstdint>
#include <string_view>

#include "millrace/data/decode/image.hpp"

namespace millrace {

// 1 to 8 as EXIF numbers them; 1, upright as it is stored, where nothing says otherwise.
int orientation_of(std::string_view content);

// From the upright image to the stored one.
struct ExifOrientation {
  explicit ExifOrientation(int orientation) : number(orientation) {}
  const int number;
  bool swapped() const { return number >= 5; }  // rows are stored as columns
  bool rows_reversed() const { return number == 3 || number == 4 || number == 6 || number == 7; }
  bool columns_reversed() const { return number == 2 || number == 3 || number == 7 || number == 8; }
  // A view of the upright image as one of the stored image, which is of this size.
  ResampleGrid stored(const ResampleGrid& upright, std::int64_t height, std::int64_t width) const;
  // Pixels of such a stored view as those of the upright one.
  void turn(const std::uint8_t* rgb, const ResampleGrid& stored, std::uint8_t* upright) const;
};

}  // namespace millrace
