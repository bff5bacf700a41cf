// Convolutions of float32 as products of tiles of 6 pixels and 16 channels (cpu/matmul/tile_product.hpp), for
// processors with AVX2 and without AVX-512. The sums of a tile stay in registers over all taps. A table of pointers
// says where the pixels of each tap begin, as in Dukhan 2019 ("The Indirect Convolution Algorithm"); outside of the
// image, they point to zeros.
#pragma once
#include <vector>

#include "cpu/common/conv_axes.hpp"
#include "cpu/common/conv_part.hpp"

namespace millrace::cpu {

class TileConv : public ConvPart {
 public:
  // Whether this is faster than the convolution of oneDNN. Supports no groups, and strides only forward.
  static bool is_faster(const ConvSpec&, Of);
  // Adds the memory for its copy of the weights to needs.packed_weights.
  TileConv(const ConvSpec&, Of, MemoryRequirements& needs);

  std::size_t workspace() const override { return workspace_; }
  std::string implementation() const override { return "tile_conv:avx2"; }
  void repack(const OpArgs&) override;
  void run(const OpArgs&) override;

 private:
  using Point = std::array<std::int64_t, 3>;
  void fill_table(const float** table, const float* from, const float* zeros, std::int64_t pixel,
                  std::int64_t count) const;
  void fill_pixel(const float** table, const float* image, const float* zeros, const Point& at) const;

  const ConvAxes axes_;
  const Of of_;
  const Shape from_, to_;
  std::vector<Point> shifts_;                     // of each tap, from the first pixel that an output reads: pixels
  std::vector<std::int64_t> offsets_;             // the same in elements
  std::array<std::int64_t, 3> least_{}, most_{};  // of the shifts
  std::size_t weights_at_, table_bytes_, zeros_at_, workspace_;
};

}  // namespace millrace::cpu
