// Moves maps of labels as the input pass moves the images: the same subvolume, crop, flip and random resized crop of
// each sample (augmentation.hpp). Changes of values (colours, cutout) leave the labels as they are.
//
//   src[0]   labels, (N, spatial...) int32
//   src[1]   sample ids, (N) int64
//   dst      (N, extents...) int32. Outside of the sample: -1, which does not count. A random resized crop takes the
//            label of the nearest pixel.
#pragma once
#include "millrace/ops/input.hpp"

namespace millrace {

struct MoveLabelsSpec {
  Shape src;
  InputSpec input;  // the input pass of the images, whose spatial extents are those of src
  DType dtype = DType::i32;

  Shape dst() const {
    const Shape image = input.dst();
    Shape out = src;
    for (int axis = 1; axis < src.rank; ++axis) out[axis] = image[axis];
    return out;
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// Whether an input pass moves pixels at all.
inline bool moves_pixels(const InputSpec& s) {
  return !s.subvolume.empty() || (s.mode == Mode::train && (s.crop_pad > 0 || s.flip || s.random_resized_crop > 0));
}

}  // namespace millrace
