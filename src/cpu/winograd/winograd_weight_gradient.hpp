// The gradient of the weights of a 3x3 convolution of stride 1 by Winograd's filtering (filtering.hpp). For each of the
// tile^2 positions, the transformed gradients of the tiles (output channels x tiles) are multiplied with the
// transformed source (tiles x input channels). The products are added up over blocks of tiles, and the sums are
// transformed back once. The order of the sums does not depend on what the threads do at the same time.
//
// With few channels, the tiles are divided into parts, each with sums of its own. A thread transforms a block of tiles
// and multiplies it while it is in the second-level cache of its core. With more channels, all threads work on one
// block: each multiplies some of the positions.
#pragma once
#include "cpu/winograd/tiles.hpp"

namespace millrace::cpu {

class WinogradWeightGradient : public ConvPart {
 public:
  // m: 2 or 4.
  WinogradWeightGradient(const ConvSpec&, std::int64_t m);

  std::size_t workspace() const override { return workspace_; }
  std::string implementation() const override;
  double work_share() const override { return tiles_.work_share(); }
  // Computes diff_weight[0] and diff_weight[1] from src[0] and diff_dst, and writes or adds them.
  void run(const OpArgs&) override;

 private:
  struct Block {
    std::int64_t first, count;
    float *source, *diff, *sums;
    bool adds;
  };
  void transform_tiles(const OpArgs&, const Block&, const float* zeros, std::int64_t begin, std::int64_t end) const;
  void multiply(const Block&, std::int64_t position, std::int64_t row_block) const;
  void plan_alone();
  void plan_together();
  void run_alone(const OpArgs&, const float* zeros, float* sums) const;
  void run_together(const OpArgs&, const float* zeros, float* sums) const;
  void write(const OpArgs&, const float* sums) const;
  template <class Pixel>
  void write_bias(const OpArgs&) const;
  std::int64_t row_blocks() const { return (out_ + kernels_.rows - 1) / kernels_.rows; }

  const winograd::Transforms& transforms_;
  const matmul::TileKernels& kernels_;
  const winograd::Tiles tiles_;
  const std::int64_t in_, out_, panels_;
  const std::int64_t sum_floats_;
  std::int64_t parts_ = 0;  // with sums of their own; 0: all threads work on one block
  std::int64_t block_tiles_;
  std::int64_t panel_step_, source_step_;  // elements from one panel of source channels, one position to the next
  std::int64_t diff_width_, diff_step_;
  std::size_t diff_at_, block_bytes_, sums_at_, zeros_at_, workspace_;
};

}  // namespace millrace::cpu
