#include "data/decode/orientation.hpp"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// Reads an unsigned number of `bytes` bytes at `at`; 0 behind the end of the text.
std::uint32_t number_at(std::string_view t, std::size_t at, int bytes, bool little) {
  if (at > t.size() || t.size() - at < std::size_t(bytes)) return 0;
  std::uint32_t value = 0;
  for (int b = 0; b < bytes; ++b) value = value << 8 | std::uint8_t(t[at + std::size_t(little ? bytes - 1 - b : b)]);
  return value;
}

int tiff_orientation(std::string_view t) {
  constexpr std::uint32_t orientation_tag = 0x112, short_type = 3;
  const bool little = t.starts_with("II");
  const std::size_t directory = number_at(t, 4, 4, little), count = number_at(t, directory, 2, little);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = directory + 2 + 12 * i;
    if (number_at(t, at, 2, little) != orientation_tag || number_at(t, at + 2, 2, little) != short_type) continue;
    const std::uint32_t value = number_at(t, at + 8, 2, little);
    return value >= 1 && value <= 8 ? int(value) : 1;
  }
  return 1;
}

ResampleAxis reversed(const ResampleAxis& a, std::int64_t extent) {
  return {a.count, a.step, double(extent) / a.step - a.first - double(a.count)};
}

}  // namespace

int orientation_of(std::string_view content) {
  constexpr std::uint8_t exif = 0xe1, scan = 0xda;
  if (!is_jpeg(content)) return 1;
  for (std::size_t at = 2; at + 4 <= content.size() && content[at] == '\xff';) {
    const auto marker = std::uint8_t(content[at + 1]);
    const std::size_t bytes = number_at(content, at + 2, 2, false);
    if (marker == scan || bytes < 2) break;
    const std::string_view segment = content.substr(at + 4, bytes - 2);
    if (marker == exif && segment.starts_with(std::string_view("Exif\0\0", 6)))
      return tiff_orientation(segment.substr(6));
    at += 2 + bytes;
  }
  return 1;
}

ResampleGrid ExifOrientation::stored(const ResampleGrid& upright, std::int64_t height, std::int64_t width) const {
  ResampleGrid out = upright;
  if (swapped()) std::swap(out.down, out.across);
  if (rows_reversed()) out.down = reversed(out.down, height);
  if (columns_reversed()) out.across = reversed(out.across, width);
  return out;
}

void ExifOrientation::turn(const std::uint8_t* rgb, const ResampleGrid& stored, std::uint8_t* upright) const {
  const std::int64_t rows = stored.down.count, columns = stored.across.count;
  const std::int64_t height = swapped() ? columns : rows, width = swapped() ? rows : columns;
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x, upright += 3) {
      std::int64_t row = swapped() ? x : y, column = swapped() ? y : x;
      if (rows_reversed()) row = rows - 1 - row;
      if (columns_reversed()) column = columns - 1 - column;
      std::copy_n(rgb + 3 * (row * columns + column), 3, upright);
    }
}

}  // namespace millrace
