// A 3x3 convolution of stride 1, or the gradient of its source, by Winograd's filtering (filtering.hpp). For each of
// the tile^2 positions, the transformed tiles of a block (tiles x input channels) are multiplied with the transformed
// weights (input channels x output channels).
//
// Where the transformed tiles of a block fit into the second-level cache of a core, each thread has blocks of its own,
// and the products of a group of panels of output channels are transformed back before the next group begins. With more
// channels, all threads work on one block: each multiplies some of the positions, so that the transformed weights are
// read once.
#pragma once
#include "cpu/winograd/tiles.hpp"

namespace millrace::cpu {

class WinogradConv : public ConvPart {
 public:
  enum class Split { by_size, alone };  // by_size: see above
  // m: 2 or 4. Adds the memory for the transformed weights, about tile^2 / 9 times the weights, to
  // needs.packed_weights.
  WinogradConv(const ConvSpec&, Of, std::int64_t m, MemoryRequirements& needs, Split = Split::by_size);

  std::size_t workspace() const override { return workspace_; }
  std::string implementation() const override;
  double work_share() const override { return tiles_.work_share(); }
  void repack(const OpArgs&) override;
  void run(const OpArgs&) override;

 private:
  struct Block {  // in the memory of a thread, or in that of all
    std::int64_t first, count;
    float *source, *product;
  };
  struct Tensors {
    const void *from, *zeros;
    const float *bias, *weights;
    void *to, *outside;
  };
  void plan_blocks(Split);
  void run_alone(const OpArgs&, const Tensors&) const;
  void run_together(const OpArgs&, const Tensors&) const;
  void transform_source(const Block&, const Tensors&, std::int64_t begin, std::int64_t end) const;
  // The product of a panel at a position. column: of the panel in the memory for products.
  void multiply(const Block&, const Tensors&, std::int64_t position, std::int64_t panel, std::int64_t column) const;
  void transform_products(const Block&, const Tensors&, std::int64_t begin, std::int64_t end, std::int64_t channel,
                          std::int64_t channels) const;
  std::int64_t panels() const { return (out_ + kernels_.columns - 1) / kernels_.columns; }

  const Of of_;
  const winograd::Transforms& transforms_;
  const matmul::TileKernels& kernels_;
  const winograd::Tiles tiles_;
  const std::int64_t in_, out_;
  const std::int64_t weights_step_;            // elements from one position of a panel to the next
  bool together_;                              // all threads work on one block
  std::int64_t group_;                         // panels whose products are transformed back together
  std::int64_t block_tiles_;                   // at most
  std::int64_t source_width_, source_step_;    // of the transformed tiles: elements from a tile, a position to the next
  std::int64_t product_width_, product_step_;  // the same of the products
  std::size_t weights_at_, product_at_, block_bytes_, zeros_at_, workspace_;
};

}  // namespace millrace::cpu
