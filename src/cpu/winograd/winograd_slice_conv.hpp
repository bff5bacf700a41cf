// A 3x3 convolution of stride 1, or the gradient of its source, by Winograd's filtering F(4x4), for many channels and
// few tiles. WinogradConv reads transformed weights, four times as many as the weights, that a pass of their own writes
// to memory once a step. For few tiles, that takes longer than the products. Here a thread transforms the weights of a
// slice of the input channels and a group of the output channels, and multiplies some of the tiles with it while it is
// in its second-level cache. Then follows the next slice. So the transformed weights never pass through memory.
#pragma once
#include "cpu/winograd/tiles.hpp"
#include "cpu/winograd/weights.hpp"

namespace millrace::cpu {

class WinogradSliceConv : public ConvPart {
 public:
  // Whether this is faster than F(4x4) with transformed weights in memory.
  static bool is_faster(const ConvSpec&, Of);
  WinogradSliceConv(const ConvSpec&, Of);

  std::size_t workspace() const override { return workspace_; }
  std::string implementation() const override;
  double work_share() const override { return tiles_.work_share(); }
  void run(const OpArgs&) override;

 private:
  struct Tensors {
    const void *from, *weight, *zeros;
    const float* bias;
    void *to, *outside;
    float* source;
    std::byte* memory;  // of the threads
  };
  struct Unit {  // of the work: tiles and output channels, and the memory of the thread
    std::int64_t begin, end, channel, channels;
    float *weights, *product;
  };
  std::int64_t groups() const { return (out_ + group_ - 1) / group_; }
  void plan();
  void transform_source(const Tensors&, std::int64_t begin, std::int64_t end) const;
  void compute(const Tensors&, const Unit&) const;
  void multiply(const Tensors&, const Unit&, std::int64_t slice, std::int64_t depth) const;
  void transform_products(const Tensors&, const Unit&) const;

  const Of of_;
  const winograd::Transforms& transforms_;
  const matmul::TileKernels& kernels_;
  const winograd::Tiles tiles_;
  const std::int64_t in_, out_;
  std::int64_t group_, part_;                 // output channels and tiles of a unit, at most
  std::int64_t parts_;                        // of the tiles
  std::int64_t source_step_, slice_step_;     // of the transformed tiles: elements from a position, a slice to the next
  std::int64_t weights_step_, product_step_;  // elements from a position to the next
  std::int64_t product_width_;
  std::size_t product_at_, thread_bytes_, memory_at_, zeros_at_, workspace_;
};

}  // namespace millrace::cpu
