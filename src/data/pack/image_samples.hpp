// How pack makes a sample of an image. Private to the data room.
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
  // The first image tells the size where neither --resize nor --crop does. Error(config, data).
  ImageSamples(const ImportOptions&, std::string_view first, const std::string& path);
  Shape sample() const { return Shape{resize_crop_.height, resize_crop_.width, grey_ ? 1 : 3}; }

  class Maker {  // one a thread
   public:
    explicit Maker(const ImageSamples&);
    void make(std::string_view content, const std::string& path, std::uint8_t* to);  // sample().count() bytes

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
