// Which part of an image becomes a sample. Pure functions. Private to the data room.
#pragma once
#include <cstdint>
#include <string>

#include "millrace/data/decode/image.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace {

// The short side becomes `resize` pixels, then height x width are cut from the middle; resize 0: nothing is resized,
// and with crop 0 too an image must be of height x width. The keys' names are for complaints.
struct ResizeCrop {
  std::int64_t resize = 0, crop = 0, height = 0, width = 0;
  const char *resize_key, *crop_key;
};
// Height and width of all samples, where an image tells them.
ResizeCrop resize_crop_for(std::int64_t resize, std::int64_t crop, const char* resize_key, const char* crop_key,
                           std::int64_t first_height, std::int64_t first_width);
ResampleGrid center_crop_grid(const ResizeCrop&, std::int64_t height, std::int64_t width,
                              const std::string& path);  // Error(data)

// A random part of at least the share decode.min_area of the image's area, its sides' ratio between 3:4 and 4:3, where
// the image is not too narrow for that. Drawn from decode.seed, the epoch and the sample's number alone.
ResampleGrid random_resized_crop_grid(const DecodeOptions&, std::uint64_t epoch, std::int64_t id, const ResizeCrop&,
                                      std::int64_t height, std::int64_t width);

}  // namespace millrace
