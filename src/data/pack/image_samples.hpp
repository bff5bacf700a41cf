// ImageSamples: how pack converts an image to a sample. Private to the data room.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/decode/orientation.hpp"
#include "millrace/data/decode/image_crops.hpp"
#include "millrace/data/pack/importer.hpp"

namespace millrace {

class ImageSamples {
 public:
  // The first image sets the size unless --resize or --crop does. Error(config) or Error(data).
  ImageSamples(const ImportOptions&, std::string_view first, const std::string& path);
  Shape sample() const { return Shape{resize_crop_.height, resize_crop_.width, grey_ ? 1 : 3}; }

  class Maker {  // not thread-safe: each thread needs its own
   public:
    explicit Maker(const ImageSamples&);
    void make(std::string_view content, const std::string& path, std::uint8_t* to);  // writes sample().count() bytes

   private:
    const ImageSamples& of_;
    std::vector<std::uint8_t> rgb_, unrotated_;
    Image scratch_;
  };

 private:
  ExifOrientation upright_of(std::string_view content) const {
    return ExifOrientation(upright_ ? orientation_of(content) : 1);
  }

  bool grey_, upright_;
  ResizeCrop resize_crop_{};
};

}  // namespace millrace
