#include "cpu/onednn/onednn.hpp"

#include "millrace/base/value_table.hpp"

namespace millrace::cpu::onednn {
namespace {

#if DNNL_VERSION_MAJOR < 3  // needs an operation descriptor for the primitive descriptor
template <class Primitive, class... Hint, class... Op>
typename Primitive::primitive_desc describe(const dnnl::primitive_attr& attr, std::tuple<Op...> op,
                                            const Hint&... hint) {
  return {std::make_from_tuple<typename Primitive::desc>(op), attr, engine(), hint...};
}
#else
template <class Primitive, class... Hint, class... Op>
typename Primitive::primitive_desc describe(const dnnl::primitive_attr& attr, std::tuple<Op...> op,
                                            const Hint&... hint) {
  return std::apply([&](const auto&... o) { return typename Primitive::primitive_desc(engine(), o..., hint..., attr); },
                    op);
}
#endif

dnnl::primitive_attr user_scratch() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

dnnl::prop_kind kind_of(Mode mode) {
  return mode == Mode::train ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
}

// An activation in oneDNN's terms. What alpha and beta mean depends on the algorithm; most have none.
struct Eltwise {
  dnnl::algorithm algorithm;
  float alpha = 0, beta = 0;
};
Eltwise eltwise_of(Activation kind) {
  switch (kind) {
    case Activation::relu:
      return {dnnl::algorithm::eltwise_relu};
    case Activation::tanh:
      return {dnnl::algorithm::eltwise_tanh};
    case Activation::gelu:
      return {dnnl::algorithm::eltwise_gelu_erf};
    case Activation::gelu_tanh:
      return {dnnl::algorithm::eltwise_gelu_tanh};
    case Activation::silu:
      return {dnnl::algorithm::eltwise_swish, 1};
    case Activation::sigmoid:
      return {dnnl::algorithm::eltwise_logistic};
    case Activation::leaky_relu:
      return {dnnl::algorithm::eltwise_relu, 0.01f};
    case Activation::elu:
      return {dnnl::algorithm::eltwise_elu, 1};
    case Activation::relu6:
      return {dnnl::algorithm::eltwise_clip, 0, 6};
    case Activation::hardsigmoid:  // of x / 6 + 0.5
      return {dnnl::algorithm::eltwise_clip, 0, 1};
    case Activation::hardswish:
      return {dnnl::algorithm::eltwise_hardswish, 1.0f / 6, 0.5f};
    case Activation::none:
      break;
  }
  fail(Exit::internal, "internal error: oneDNN's linear layer has no activation {}. add it to eltwise_of()",
       name_of(kind));
}

}  // namespace

dnnl::engine& engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& stream() {
  thread_local dnnl::stream stream(engine());
  return stream;
}

bool has_bf16() {
  static const bool yes = [] {
    try {  // asks oneDNN, because the required instruction set differs between releases
      const desc square = plain({64, 64}, DType::bf16);
      const std::string name = matmul(square, square, desc(), square).impl_info_str();
      return name.find("ref") == std::string::npos;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return yes;
}

bool has_amx() {
  using enum dnnl::cpu_isa;
  const auto isa = dnnl::get_effective_cpu_isa();
#if DNNL_VERSION_MAJOR >= 3
  if (isa == avx512_core_amx_fp16) return true;
#endif
  return isa == avx512_core_amx;
}

std::string isa_name() {
  using enum dnnl::cpu_isa;
  constexpr TableRow<dnnl::cpu_isa, const char*> names[] = {{sse41, "SSE4.1"},
                                                            {avx, "AVX"},
                                                            {avx2, "AVX2"},
                                                            {avx512_core, "AVX-512"},
                                                            {avx512_core_vnni, "AVX-512 VNNI"},
                                                            {avx512_core_bf16, "AVX-512 BF16"},
                                                            {avx512_core_amx, "AMX (bf16)"}};
  return find_value(names, dnnl::get_effective_cpu_isa(), has_bf16() ? "vectors with bf16" : "vectors");
}

dnnl::memory::data_type type_of(DType dtype) {
  using enum dnnl::memory::data_type;
  constexpr TableRow<DType, dnnl::memory::data_type> types[] = {
      {DType::f32, f32}, {DType::bf16, bf16}, {DType::f16, f16}};
  if (const auto* type = find_value(types, dtype)) return *type;
  fail(Exit::config, "the CPU does not compute in {}. choose fp32, bf16 or fp16", name_of(dtype));
}

desc strided(const dims& d, DType dtype, const dims& strides) { return desc(d, type_of(dtype), strides); }

desc plain(const dims& d, DType dtype) {
  dims strides(d.size(), 1);
  for (std::size_t axis = d.size() - 1; axis > 0; --axis) strides[axis - 1] = strides[axis] * d[axis];
  return strided(d, dtype, strides);
}

desc any(const dims& d, DType dtype) { return desc(d, type_of(dtype), dnnl::memory::format_tag::any); }

ConvForward conv_forward(const ConvShape& s, Mode mode) {
  const auto direct = dnnl::algorithm::convolution_direct;
  if (empty(s.bias))
    return describe<dnnl::convolution_forward>(
        user_scratch(), std::tuple(kind_of(mode), direct, s.src, s.weight, s.dst, s.stride, s.dilation, s.pad, s.pad));
  return describe<dnnl::convolution_forward>(user_scratch(), std::tuple(kind_of(mode), direct, s.src, s.weight, s.bias,
                                                                        s.dst, s.stride, s.dilation, s.pad, s.pad));
}

ConvBackwardData conv_backward_data(const ConvShape& s, const ConvForward& hint) {
  return describe<dnnl::convolution_backward_data>(
      user_scratch(),
      std::tuple(dnnl::algorithm::convolution_direct, s.src, s.weight, s.dst, s.stride, s.dilation, s.pad, s.pad),
      hint);
}

ConvBackwardWeights conv_backward_weights(const ConvShape& s, const ConvForward& hint) {
  const auto direct = dnnl::algorithm::convolution_direct;
  if (empty(s.bias))
    return describe<dnnl::convolution_backward_weights>(
        user_scratch(), std::tuple(direct, s.src, s.weight, s.dst, s.stride, s.dilation, s.pad, s.pad), hint);
  return describe<dnnl::convolution_backward_weights>(
      user_scratch(), std::tuple(direct, s.src, s.weight, s.bias, s.dst, s.stride, s.dilation, s.pad, s.pad), hint);
}

dnnl::matmul::primitive_desc matmul(const desc& src, const desc& weight, const desc& bias, const desc& dst,
                                    Activation activation, bool add) {
  auto attr = user_scratch();
  dnnl::post_ops after;
  if (add) after.append_sum(1.0f);
  if (activation != Activation::none) {
    const auto append = [&](const Eltwise& eltwise) {
#if DNNL_VERSION_MAJOR < 3
      after.append_eltwise(1.0f, eltwise.algorithm, eltwise.alpha, eltwise.beta);
#else
      after.append_eltwise(eltwise.algorithm, eltwise.alpha, eltwise.beta);
#endif
    };
    // Older versions of oneDNN have no hardsigmoid.
    if (activation == Activation::hardsigmoid) append({dnnl::algorithm::eltwise_linear, 1.0f / 6, 0.5f});
    append(eltwise_of(activation));
  }
  attr.set_post_ops(after);
  if (empty(bias)) return describe<dnnl::matmul>(attr, std::tuple(src, weight, dst));
  return describe<dnnl::matmul>(attr, std::tuple(src, weight, bias, dst));
}

dnnl::reorder::primitive_desc reorder(const desc& from, const desc& to, bool add) {
  auto attr = user_scratch();
  if (add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
  return {engine(), from, engine(), to, attr};
}

}  // namespace millrace::cpu::onednn
