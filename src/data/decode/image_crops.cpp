#include "millrace/data/decode/image_crops.hpp"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"

namespace millrace {

ResizeCrop resize_crop_for(std::int64_t resize, std::int64_t crop, const char* resize_key, const char* crop_key,
                           std::int64_t first_height, std::int64_t first_width) {
  if (resize < 0 || crop < 0 || (resize > 0 && crop > resize))
    fail(Exit::config, "a crop of {} pixels does not fit into images resized to {}", crop, resize);
  const std::int64_t side = crop > 0 ? crop : resize;
  return {resize, crop, side > 0 ? side : first_height, side > 0 ? side : first_width, resize_key, crop_key};
}

ResampleGrid center_crop_grid(const ResizeCrop& fit, std::int64_t height, std::int64_t width, const std::string& path) {
  const std::int64_t side = std::min(height, width);
  const bool resizes = fit.resize > 0 && side != fit.resize;
  const auto resized = [&](std::int64_t extent) {
    return resizes ? std::max(fit.resize, extent * fit.resize / side) : extent;
  };
  const std::int64_t to_height = resized(height), to_width = resized(width);
  if (fit.resize == 0 && fit.crop == 0 && (height != fit.height || width != fit.width))
    fail(Exit::data, "{} has {}x{} pixels, the first image {}x{}. set {}, the length of the shorter side of all images",
         path, height, width, fit.height, fit.width, fit.resize_key);
  if (to_height < fit.height || to_width < fit.width)
    fail(Exit::data, "{} has {}x{} pixels, less than {} {}. set {} too", path, height, width, fit.crop_key, fit.crop,
         fit.resize_key);
  return {{fit.height, double(height) / double(to_height), double((to_height - fit.height) / 2)},
          {fit.width, double(width) / double(to_width), double((to_width - fit.width) / 2)}};
}

ResampleGrid random_resized_crop_grid(const DecodeOptions& decode, std::uint64_t epoch, std::int64_t id,
                                      const ResizeCrop& fit, std::int64_t height, std::int64_t width) {
  const Random4 r = philox(rng_key(decode.seed, RngPurpose::random_resized_crop), epoch, std::uint64_t(id));
  const double fraction = decode.min_area + (1 - decode.min_area) * double(uniform01(r.v[0])),
               area = fraction * double(height) * double(width),
               ratio = 0.75 + 0.25 * double(uniform01(r.v[1] << 1));  // of the shorter side to the longer
  const bool wide = r.v[1] >> 31;
  const double longer = std::sqrt(area / ratio), shorter = std::sqrt(area * ratio);
  const auto axis = [](std::int64_t count, std::int64_t extent, double length, std::uint32_t bits) {
    length = std::min(length, double(extent));
    const double step = length / double(count);
    return ResampleAxis{count, step, double(uniform01(bits)) * (double(extent) - length) / step};
  };
  return {axis(fit.height, height, wide ? shorter : longer, r.v[2]),
          axis(fit.width, width, wide ? longer : shorter, r.v[3])};
}

}  // namespace millrace
