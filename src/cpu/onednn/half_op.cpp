#include <fmt/core.h>

#include "cpu/common/half.hpp"
#include "cpu/common/parallel.hpp"

namespace millrace::cpu {
namespace {

class EmulatedHalf : public Op {
 public:
  EmulatedHalf(DType half, std::unique_ptr<Op> op, const HalfTensors& tensors)
      : half_(half), op_(std::move(op)), tensors_(tensors), needs_(op_->memory_requirements()) {
    const auto reserve = [](std::size_t& bytes, std::int64_t count) {
      const std::size_t at = align64(bytes);
      bytes = at + align64(std::size_t(count) * sizeof(float));
      return at;
    };
    const int sides = tensors_.infer ? 1 : 2;  // values, and in training gradients
    // Each region begins with the memory of the wrapped op; the converted tensors follow.
    for (int side = 0; side < sides; ++side) {
      for (int i = 0; i < OpArgs::max_src; ++i) src_at_[side][i] = reserve(needs_.workspace, tensors_.src[i]);
      dst_at_[side] = reserve(needs_.workspace, tensors_.dst);
    }
    for (int i = 0; i < OpArgs::max_weight; ++i) weight_at_[i] = reserve(needs_.packed_weights, tensors_.weight[i]);
  }

  MemoryRequirements memory_requirements() const override { return needs_; }
  std::string implementation() const override {
    return fmt::format("{} emulated around {}", name_of(half_), op_->implementation());
  }
  WorkShare work_share() const override { return op_->work_share(); }

  void repack(const OpArgs& args) override {
    for (int i = 0; i < OpArgs::max_weight; ++i)
      if (tensors_.weight[i])
        convert(at(args.packed_weights, weight_at_[i]), DType::f32, args.weight[i].data, half_, tensors_.weight[i]);
    OpArgs inner = args;
    use_weights(inner, args);
    op_->repack(inner);
  }

  void forward(const OpArgs& args) override {
    OpArgs inner = args;
    use_weights(inner, args);
    for (int i = 0; i < OpArgs::max_src; ++i) widen(inner.src[i], args, src_at_[0][i], tensors_.src[i]);
    place(inner.dst, args, dst_at_[0], tensors_.dst);
    op_->forward(inner);
    narrow(args.dst, inner.dst, tensors_.dst);
  }

  void backward(const OpArgs& args) override {
    OpArgs inner = args;
    use_weights(inner, args);
    for (int i = 0; i < OpArgs::max_src; ++i) {
      if (tensors_.keeps_src) widen(inner.src[i], args, src_at_[0][i], tensors_.src[i]);
      place(inner.diff_src[i], args, src_at_[1][i], tensors_.src[i]);
    }
    if (tensors_.keeps_dst) widen(inner.dst, args, dst_at_[0], tensors_.dst);
    widen(inner.diff_dst, args, dst_at_[1], tensors_.dst);
    op_->backward(inner);
    for (int i = 0; i < OpArgs::max_src; ++i) narrow(args.diff_src[i], inner.diff_src[i], tensors_.src[i]);
  }

 private:
  static void* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }
  // Replaces a tensor by its float32 copy in the workspace. Absent tensors stay absent.
  static void place(Tensor& t, const OpArgs& args, std::size_t offset, std::int64_t count) {
    if (t && count) {
      t.data = at(args.workspace, offset);
      t.dtype = DType::f32;
    }
  }
  void widen(Tensor& t, const OpArgs& args, std::size_t offset, std::int64_t count) const {
    const void* original = t.data;
    place(t, args, offset, count);
    if (original && count) convert(t.data, DType::f32, original, half_, count);
  }
  void narrow(const Tensor& to, const Tensor& from, std::int64_t count) const {
    if (to && count) convert(to.data, half_, from.data, DType::f32, count);
  }
  void use_weights(OpArgs& inner, const OpArgs& args) const {
    for (int i = 0; i < OpArgs::max_weight; ++i)
      if (tensors_.weight[i]) {
        inner.weight[i].data = at(args.packed_weights, weight_at_[i]);
        inner.weight[i].dtype = DType::f32;
      }
  }

  DType half_;
  std::unique_ptr<Op> op_;
  HalfTensors tensors_;
  MemoryRequirements needs_;
  // Offsets of the float32 copies. Index [0] is the value, index [1] the gradient.
  std::size_t src_at_[2][OpArgs::max_src]{}, dst_at_[2]{}, weight_at_[OpArgs::max_weight]{};
};

}  // namespace

std::unique_ptr<Op> emulate_half(DType half, std::unique_ptr<Op> float_op, const HalfTensors& tensors) {
  return std::make_unique<EmulatedHalf>(half, std::move(float_op), tensors);
}

}  // namespace millrace::cpu
