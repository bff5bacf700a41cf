#include "data/pack/image_samples.hpp"

#include <algorithm>
#include <utility>

#include "millrace/base/error.hpp"

namespace millrace {

ImageSamples::ImageSamples(const ImportOptions& o, std::string_view first, const std::string& path)
    : grey_(o.grey), upright_(o.apply_exif_orientation) {
  if (o.layout == Layout::channels_first || o.layout == Layout::no_channels)
    fail(Exit::config, "images are packed with their channels last. remove --layout");
  resize_crop_for(o.resize, o.crop, "", "", 0, 0);  // only checks the options
  Image size;
  decode_image(first, path, size_only, size);
  if (upright_of(first).swapped()) std::swap(size.whole_height, size.whole_width);
  resize_crop_ = resize_crop_for(o.resize, o.crop, "--resize N", "--crop", size.whole_height, size.whole_width);
}

ImageSamples::Maker::Maker(const ImageSamples& of)
    : of_(of), rgb_(std::size_t(3 * of.resize_crop_.height * of.resize_crop_.width)), unrotated_(rgb_.size()) {}

void ImageSamples::Maker::make(std::string_view content, const std::string& path, std::uint8_t* to) {
  const ResizeCrop& fit = of_.resize_crop_;
  const ExifOrientation upright = of_.upright_of(content);
  ResampleGrid stored;
  const auto view = [&](std::int64_t h, std::int64_t w) {
    return stored = upright.stored(
               upright.swapped() ? center_crop_grid(fit, w, h, path) : center_crop_grid(fit, h, w, path), h, w);
  };
  const bool turns = upright.number != 1;
  decode_and_resample(content, path, view, DecodeExtent::checked, scratch_, turns ? unrotated_.data() : rgb_.data());
  if (turns) upright.turn(unrotated_.data(), stored, rgb_.data());
  if (of_.grey_) to_grey(rgb_.data(), fit.height * fit.width);
  std::copy_n(rgb_.data(), of_.sample().count(), to);
}

}  // namespace millrace
