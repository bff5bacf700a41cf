// The weight gradient of a convolution as a sum of matrix products, one for each tap of the kernel: of the outputs that
// the tap has an input for, diff_dst^T * src. What lies in the padding is not multiplied at all, a third of the work at
// 4x4 pixels, and where images are small the products run at several times the rate of oneDNN's convolutions
// (docs/performance.md). Private to the cpu room.
#pragma once
#include <map>

#include "millrace/ops/conv.hpp"
#include "onednn_op.hpp"

namespace millrace::cpu {

class TapGradient {
 public:
  static bool wanted(const ConvSpec&);  // it is faster there
  explicit TapGradient(const ConvSpec&);

  std::size_t workspace() const { return workspace_; }
  std::string implementation() const;  // "9 x gemm:jit"
  // diff_weight[0] from src[0] and diff_dst, written or added.
  void run(const OpArgs&);

 private:
  // Along an axis: outputs [first, first + count) read inputs from `input` on, `stride` apart.
  struct Reach {
    std::int64_t first = 0, count = 0, input = 0;
  };
  struct Tap {
    std::array<Reach, 3> reach;  // axes in front, where there are less than three, are of one pixel
    std::int64_t per_image = 0;  // pixels
  };
  struct Product {
    onednn::Call write, add;
  };

  void gather(char* to, const char* from, const Tap&, std::int64_t image, std::int64_t images, bool inputs) const;

  Shape src_, dst_;  // (N, depth, height, width, channels)
  std::array<std::int64_t, 3> stride_{1, 1, 1};
  std::size_t element_ = 0;
  std::vector<Tap> taps_;
  std::int64_t chunk_ = 0;                    // images at a time, at most
  std::map<std::int64_t, Product> products_;  // by rows
  std::size_t src_at_ = 0, diff_at_ = 0, workspace_ = 0;
};

}  // namespace millrace::cpu
