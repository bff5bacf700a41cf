#include "cpu/backend.hpp"

#include "cpu/common/half.hpp"
#include "cpu/common/ops.hpp"
#include "cpu/onednn/onednn.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr const char* accumulation_rejection = "the layers of the CPU only write their gradients";

struct WhyNotFused {
  std::string operator()(const ConvSpec& s) const { return s.accumulates_diff_src ? accumulation_rejection : ""; }
  std::string operator()(const LinearSpec& s) const {
    return s.accumulates_diff_src ? accumulation_rejection : cpu::linear_fusion_rejection;
  }
  template <class Rest>
  std::string operator()(const Rest&) const {
    return "";
  }
};

[[noreturn]] void refuse_accumulation(const char* what, const Shape& src) {
  fail(Exit::config, "{} {}: cannot add to the gradient of its source ({}). use fusion level 0", what, src.str(),
       accumulation_rejection);
}

struct Make {
  cpu::ConvSelector& convolutions;
  bool by_rule = false;  // choose no convolution by timing

  std::unique_ptr<Op> operator()(const ConvSpec& s) const {
    s.dst();  // checks the spec
    if (s.accumulates_diff_src) refuse_accumulation("conv", s.src);
    if (s.produces_sums || s.produces_diff_sums || s.normalises_src || s.normalises_diff_dst)
      return cpu::make_chunked_conv(s, Make{convolutions, true});
    if (s.padded_channels > 0) {
      ConvSpec plain = s;
      plain.src[-1] -= s.padded_channels;
      plain.padded_channels = 0;
      return cpu::make_conv_without_padding_channels(s, (*this)(plain));
    }
    return cpu::wants_strided_pointwise(s)
               ? cpu::make_strided_pointwise(s)
               : cpu::make_conv(s, by_rule ? convolutions.methods_by_rule() : convolutions.methods(s));
  }
  std::unique_ptr<Op> operator()(const LinearSpec& s) const {
    if (s.accumulates_diff_src) refuse_accumulation("linear", s.src);
    return cpu::make_linear(s);
  }
  std::unique_ptr<Op> operator()(const BatchNormSpec& s) const {
    if (s.residual_norm || s.pool)
      fail(Exit::config, "batch norm {}: the CPU merges neither the norm of a residual nor a pool. use fusion level 0",
           s.src.str());
    return cpu::make_batch_norm(s);
  }
  std::unique_ptr<Op> operator()(const PoolSpec& s) const { return cpu::make_pool(s); }
  std::unique_ptr<Op> operator()(const ActivationSpec& s) const { return cpu::make_activation(s); }
  std::unique_ptr<Op> operator()(const AddSpec& s) const { return cpu::make_add(s); }
  std::unique_ptr<Op> operator()(const DropoutSpec& s) const { return cpu::make_dropout(s); }
  std::unique_ptr<Op> operator()(const InputSpec& s) const {
    return s.padded_channels > 0 ? cpu::make_input_with_padding_channels(s, cpu::make_input(s)) : cpu::make_input(s);
  }
  std::unique_ptr<Op> operator()(const CrossEntropySpec& s) const { return cpu::make_cross_entropy(s); }
  std::unique_ptr<Op> operator()(const PointwiseLossSpec& s) const { return cpu::make_pointwise_loss(s); }
  std::unique_ptr<Op> operator()(const LinearCrossEntropySpec& s) const {
    return make_linear_cross_entropy(s, (*this)(s.chunk_linear()), (*this)(s.chunk_loss()));
  }
  std::unique_ptr<Op> operator()(const EmbeddingSpec& s) const { return cpu::make_embedding(s); }
  std::unique_ptr<Op> operator()(const LayerNormSpec& s) const { return cpu::make_layer_norm(s); }
  std::unique_ptr<Op> operator()(const TransposedConvSpec& s) const {
    return cpu::make_transposed_conv(s, (*this)(s.conv()));
  }
  std::unique_ptr<Op> operator()(const GroupNormSpec& s) const { return cpu::make_group_norm(s); }
  std::unique_ptr<Op> operator()(const ScaleBySpec& s) const { return cpu::make_scale_by(s); }
  std::unique_ptr<Op> operator()(const ReshapeSpec& s) const {
    return cpu::make_activation({s.src, Activation::none, s.dtype, s.mode});
  }
  std::unique_ptr<Op> operator()(const PositionEmbeddingSpec& s) const { return cpu::make_position_embedding(s); }
  std::unique_ptr<Op> operator()(const AttentionSpec& s) const { return cpu::make_attention(s); }
  std::unique_ptr<Op> operator()(const GatedSpec& s) const { return cpu::make_gated(s); }
  std::unique_ptr<Op> operator()(const ScaleSpec& s) const { return cpu::make_scale(s); }
  std::unique_ptr<Op> operator()(const RotarySpec& s) const { return cpu::make_rotary(s); }
  std::unique_ptr<Op> operator()(const ConcatSpec& s) const { return cpu::make_concat(s); }
  std::unique_ptr<Op> operator()(const SliceSpec& s) const { return cpu::make_slice(s); }
  std::unique_ptr<Op> operator()(const UpsampleSpec& s) const { return cpu::make_upsample(s); }
  std::unique_ptr<Op> operator()(const GatherSpec& s) const { return cpu::make_gather(s); }
  std::unique_ptr<Op> operator()(const AffineSpec& s) const { return cpu::make_affine(s); }
  std::unique_ptr<Op> operator()(const PowerSpec& s) const { return cpu::make_power(s); }
  std::unique_ptr<Op> operator()(const PreluSpec& s) const { return cpu::make_prelu(s); }
  std::unique_ptr<Op> operator()(const IndexedBiasSpec& s) const { return cpu::make_indexed_bias(s); }
  std::unique_ptr<Op> operator()(const SoftmaxSpec& s) const { return cpu::make_softmax(s); }
  std::unique_ptr<Op> operator()(const BatchedMatmulSpec& s) const { return cpu::make_batched_matmul(s); }
  std::unique_ptr<Op> operator()(const RecurrentSpec& s) const { return cpu::make_recurrent(s); }
  std::unique_ptr<Op> operator()(const MoveLabelsSpec& s) const { return cpu::make_move_labels(s); }
  std::unique_ptr<Op> operator()(const MixSpec& s) const { return cpu::make_mix(s); }
  std::unique_ptr<Op> operator()(const DocumentsSpec& s) const { return cpu::make_documents(s); }
};

class CpuBackend : public Backend {
 public:
  CpuBackend(Device& device, const cpu::ConvSelectorOptions& options) : device_(device), convolutions_(options) {}
  Device& device() override { return device_; }
  std::unique_ptr<Op> make(const Spec& spec) override { return std::visit(Make{convolutions_}, spec); }
  std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) override { return cpu::make_optimizer(spec); }
  void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) override {
    cpu::convert(dst, dst_type, src, src_type, count);
  }
  void set_kernel_timing(bool on) override { convolutions_.set_timing(on); }
  bool merges_norm(const BatchNormSpec& s) const override {
    return s.activation == Activation::relu6 && !s.residual_norm && !s.pool;
  }
  bool has_partial_attention() const override { return true; }
  std::string why_not_fused(const Spec& spec) override { return std::visit(WhyNotFused{}, spec); }
  int max_fusion_level() const override { return 3; }
  int default_fusion_level() const override { return 3; }
  bool applies_norm_gradient() const override { return true; }
  bool pays(const Spec& spec) const override {
    const auto* conv = std::get_if<ConvSpec>(&spec);
    const auto* linear = std::get_if<LinearSpec>(&spec);
    return conv ? conv->accumulates_diff_src || cpu::chunking_pays(*conv) : !linear || linear->accumulates_diff_src;
  }
  bool filters_convolutions(DType dtype) const override { return convolutions_.filters(dtype); }
  std::string precision_note(DType dtype) const override {
    if (dtype == DType::bf16 && !cpu::onednn::has_bf16())
      return "bf16 is computed in float32 and not faster than float32 (this processor has neither AMX nor AVX-512)";
    if (dtype == DType::f16) return "fp16 is emulated in float32 on the CPU and slower than float32";
    return "";
  }

 private:
  Device& device_;
  cpu::ConvSelector convolutions_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(Device& device, const cpu::ConvSelectorOptions& options) {
  return std::make_unique<CpuBackend>(device, options);
}

}  // namespace millrace
