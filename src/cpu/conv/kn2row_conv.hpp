// A convolution, or its gradient of src, as a sum of matrix products, one for each tap of the kernel: the pixels that
// the tap reads times its weights, added in float32 where they belong. As tap_gradient.hpp, for small images. Private
// to the cpu room.
#pragma once
#include <map>

#include "cpu/conv/kn2row_geometry.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

class Kn2rowConv {
 public:
  enum class Of { forward, data };
  static bool is_faster(const ConvSpec&, Of);                  // it is faster there
  Kn2rowConv(const ConvSpec&, Of, MemoryRequirements& needs);  // reserves its copies of the weights

  std::size_t workspace() const { return workspace_; }
  std::string implementation() const;
  void repack(const OpArgs&);
  // forward: src[0] to dst; data: diff_dst to diff_src[0].
  void run(const OpArgs&);

 private:
  const Kn2rowGeometry taps_;
  const DType dtype_;
  const Kn2rowGeometry::Side from_, to_;
  std::vector<PackedWeight> weights_;              // by taps
  std::map<std::int64_t, onednn::Call> products_;  // by rows
  std::size_t rows_at_ = 0, product_at_ = 0, sum_at_ = 0, workspace_ = 0;
};

}  // namespace millrace::cpu
