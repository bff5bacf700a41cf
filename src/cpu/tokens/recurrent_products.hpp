// The matrix products of recurrent layers.
#pragma once
#include <algorithm>
#include <array>

#include "cpu/onednn/onednn_op.hpp"
#include "millrace/ops/recurrent.hpp"

namespace millrace::cpu {

// A product whose weights are copied into the layout that it reads fastest: they stay the same for all steps.
struct StepProduct {
  onednn::Call call;
  PackedWeight weight;

  StepProduct() = default;
  // dst (rows, columns) float32 or dtype = src (rows, depth) * weight, which is stored with these strides.
  StepProduct(const RecurrentSpec& s, std::array<std::int64_t, 3> size, const onednn::dims& strides, DType dst_type,
              MemoryRequirements& needs) {
    const auto [rows, columns, depth] = size;
    const auto src = onednn::plain({rows, depth}, s.dtype), dst = onednn::plain({rows, columns}, dst_type);
    const auto stored = onednn::strided({depth, columns}, s.dtype, strides);
    auto wanted = stored;
    if (s.dtype != DType::f32 || !onednn::prefers_float_matmul())
      wanted = onednn::matmul(src, onednn::any({depth, columns}, s.dtype), onednn::desc(), dst).weights_desc();
    call = onednn::matmul_call(src, wanted, onednn::desc(), dst);
    weight = PackedWeight(stored, wanted, needs);
  }
  void run(const OpArgs& args, const void* src, void* dst) {
    call.bind(DNNL_ARG_SRC, const_cast<void*>(src));
    call.bind(DNNL_ARG_WEIGHTS, weight.data(args));
    call.bind(DNNL_ARG_DST, dst);
    cpu::run(call, args);
  }
  std::size_t scratch_bytes() const { return std::max(call.scratch_bytes(), weight.scratch_bytes()); }
};

// The gradient of a weight: float32 (width, features), written or added to.
class WeightGradient {
 public:
  WeightGradient() = default;
  WeightGradient(const RecurrentSpec& s, std::int64_t rows, std::int64_t features) {
    const auto diff = onednn::strided({s.width(), rows}, s.dtype, {1, s.width()});
    for (const bool add : {false, true})
      calls_[add] = onednn::matmul_call(diff, onednn::plain({rows, features}, s.dtype), onednn::desc(),
                                        onednn::plain({s.width(), features}, DType::f32), Activation::none, add);
  }
  void run(const OpArgs& args, int number, const void* diff, const void* src) {
    onednn::Call& call = calls_[args.mode[std::size_t(number)] == GradMode::add];
    call.bind(DNNL_ARG_SRC, const_cast<void*>(diff));
    call.bind(DNNL_ARG_WEIGHTS, const_cast<void*>(src));
    call.bind(DNNL_ARG_DST, args.diff_weight[std::size_t(number)].data);
    cpu::run(call, args);
  }
  std::size_t scratch_bytes() const { return std::max(calls_[0].scratch_bytes(), calls_[1].scratch_bytes()); }
  std::string name() const { return calls_[0].name(); }

 private:
  onednn::Call calls_[2];  // write, add
};

}  // namespace millrace::cpu
