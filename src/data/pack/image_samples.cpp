#include "data/pack/image_samples.hpp"

#include <algorithm>
#include <utility>

#include "millrace/base/error.hpp"

namespace millrace {

ImageSamples::ImageSamples(const ImportOptions& o, std::string_view first, const std::string& path)
    : grey_(o.grey), upright_(o.upright) {
  if (o.layout == Layout::channels_first || o.layout == Layout::no_channels)
    fail(Exit::config, "images are packed with their channels last. leave --layout away");
  fit_of(o.resize, o.crop, "", "", 0, 0);  // complains
  Image size;
  decode_image(first, path, size_alone, size);
  if (upright_of(first).swapped()) std::swap(size.whole_height, size.whole_width);
  fit_ = fit_of(o.resize, o.crop, "--resize N", "--crop", size.whole_height, size.whole_width);
}

ImageSamples::Maker::Maker(const ImageSamples& of)
    : of_(of), rgb_(std::size_t(3 * of.fit_.height * of.fit_.width)), lying_(rgb_.size()) {}

void ImageSamples::Maker::make(std::string_view content, const std::string& path, std::uint8_t* to) {
  const Fit& fit = of_.fit_;
  const Upright upright = of_.upright_of(content);
  View stored;
  const auto view = [&](std::int64_t h, std::int64_t w) {
    return stored =
               upright.stored(upright.swapped() ? centre_view(fit, w, h, path) : centre_view(fit, h, w, path), h, w);
  };
  const bool turns = upright.number != 1;
  decode_view(content, path, view, Decoding::checked, scratch_, turns ? lying_.data() : rgb_.data());
  if (turns) upright.turn(lying_.data(), stored, rgb_.data());
  if (of_.grey_) to_grey(rgb_.data(), fit.height * fit.width);
  std::copy_n(rgb_.data(), of_.sample().count(), to);
}

}  // namespace millrace
