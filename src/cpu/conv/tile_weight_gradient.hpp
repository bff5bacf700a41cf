// The weight gradient of a convolution of float32 as products of tiles (see tile_conv.hpp): the rows are pairs of a tap
// and an input channel, the columns are output channels, and the depth consists of output pixels. A block of rows of
// the source is copied with its padding, so that all taps read it in the same way.
#pragma once
#include "cpu/common/conv_axes.hpp"
#include "cpu/common/conv_part.hpp"

namespace millrace::cpu {

class TileWeightGradient : public ConvPart {
 public:
  // Whether this is faster than the convolution of oneDNN. Supports no groups.
  static bool is_faster(const ConvSpec&);
  explicit TileWeightGradient(const ConvSpec&);

  std::size_t workspace() const override;
  std::string implementation() const override { return "tile_conv:avx2"; }
  // Computes diff_weight[0] and diff_weight[1] from src[0] and diff_dst, and writes or adds them.
  void run(const OpArgs&) override;

 private:
  struct Memory {  // of one thread
    float *src, *diff, *sums, *bias;
    const float** table;
  };
  Memory memory_of(const OpArgs&, std::int64_t thread) const;
  void copy_src(float* to, const float* src, std::int64_t image, std::int64_t z, std::int64_t y,
                std::int64_t count) const;
  void add_block(const Memory&, const OpArgs&, std::int64_t block) const;
  void write(const OpArgs&) const;

  const ConvAxes axes_;
  std::int64_t threads_;
  std::int64_t filter_, outputs_;                           // rows of the products; columns, a multiple of 16
  std::int64_t block_rows_, blocks_of_plane_;               // output rows of a block; blocks of a plane of the output
  std::int64_t padded_rows_, padded_width_, pixel_floats_;  // of the copy; elements of one of its pixels
  std::size_t diff_at_, sums_at_, bias_at_, table_at_, thread_bytes_;
};

}  // namespace millrace::cpu
