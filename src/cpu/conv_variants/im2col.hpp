// The source of a convolution as a matrix: a row for each output pixel, with the pixels that each tap of the kernel
// reads, and zeros for those outside of the image. The convolution is its product with the weights.
#pragma once
#include "cpu/common/conv_axes.hpp"

namespace millrace::cpu {

class Im2col {
 public:
  explicit Im2col(const ConvSpec&);

  std::int64_t rows() const { return rows_; }    // output pixels of all images
  std::int64_t depth() const { return depth_; }  // taps times channels
  // Whether the source itself is the matrix: one tap, without strides and padding.
  bool is_source() const { return is_source_; }
  // Writes rows [begin, end) to `to`, on the calling thread.
  void gather(const void* src, std::int64_t begin, std::int64_t end, void* to) const;

 private:
  void gather_row(const char* image, const std::array<std::int64_t, 3>& pixel, char* to) const;

  const ConvAxes axes_;
  const std::int64_t element_, rows_, depth_;
  const bool is_source_;
};

}  // namespace millrace::cpu
