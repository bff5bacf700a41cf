// Which part of an image becomes a sample. Pure functions. Private to the data room.
#pragma once
#include <cstdint>
#include <string>

#include "millrace/data/decode/image.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace {

// Resizes the shorter side to `resize` pixels, then cuts height x width from the centre. resize 0: no resizing. resize
// and crop 0: every image must have height x width already.
struct ResizeCrop {
  std::int64_t resize = 0, crop = 0, height = 0, width = 0;
  const char *resize_key, *crop_key;  // names of the settings, for messages
};
// first_height, first_width: size of the first image, which applies if both resize and crop are 0. Error(config) if the
// crop is larger than the resized image.
ResizeCrop resize_crop_for(std::int64_t resize, std::int64_t crop, const char* resize_key, const char* crop_key,
                           std::int64_t first_height, std::int64_t first_width);
ResampleGrid center_crop_grid(const ResizeCrop&, std::int64_t height, std::int64_t width,
                              const std::string& path);  // Error(data)

// A random part of the image: at least the fraction decode.min_area of its area, with an aspect ratio between 3:4 and
// 4:3 unless the image is too narrow. Depends on decode.seed, the epoch and the sample's id alone.
ResampleGrid random_resized_crop_grid(const DecodeOptions&, std::uint64_t epoch, std::int64_t id, const ResizeCrop&,
                                      std::int64_t height, std::int64_t width);

}  // namespace millrace
