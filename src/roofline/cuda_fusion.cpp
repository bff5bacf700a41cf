#include "millrace/roofline/cuda_fusion.hpp"

#include <fmt/core.h>

#include "millrace/ops/conv.hpp"

namespace millrace::roofline {
namespace {

// Engines for 16-bit types read vectors of 4 or 8 channels. This is the width that the backend chooses by the size of
// the workspace; if it times its candidates, it may choose another one.
std::int64_t padded_width(const ConvSpec& s) {
  const std::int64_t channels = s.src[-1];
  if (s.dtype == DType::f32 || s.groups > 1 || s.window.rank == 1) return channels;
  if (s.window.rank == 3 && channels <= 4) return 4;
  return (channels + 7) / 8 * 8;
}

// The sums of the gradient are computed by an engine that takes large kernels if it moves along all axes.
bool kernel_fits(const ConvSpec& s) {
  const Window& w = s.window;
  std::int64_t taps = 1;
  bool moves = w.rank == 2;
  for (std::size_t axis = 0; axis < std::size_t(w.rank); ++axis) {
    taps *= w.kernel[axis];
    moves = moves && w.stride[axis] > 1;
  }
  constexpr std::int64_t most = 25;
  return taps <= most || (s.produces_diff_sums && !s.normalises_src && moves);
}

// What the engines of cuDNN 9.19 take for the description of an H200. The tests compare this with the library.
std::string why_not(const ConvSpec& s) {
  if (s.accumulates_diff_src) return "";
  if (is_depthwise(s)) return depthwise_sums_no_norm;
  if (s.produces_sums && s.bias) return "cuDNN cannot compute sums of a result with a bias";
  if (s.normalises_src && !s.produces_sums) return "cuDNN 9.19 has no engine for it without sums";
  const bool channels = s.src[-1] % 8 == 0 && s.out_channels % 8 == 0 && s.groups == 1;
  if (s.dtype != DType::f16 || !channels || s.window.rank > 2 || !kernel_fits(s))
    return fmt::format("cuDNN 9.19 has no engine for it in {}", name_of(s.dtype));
  return "";
}

std::string why_not(const LinearSpec& s) {
  const auto has_gradient = [](Activation a) { return a == Activation::relu || a == Activation::gelu_tanh; };
  const bool makes = s.produces_diff_pre != Activation::none;
  if ((s.consumes_diff_pre && !has_gradient(s.activation)) || (makes && !has_gradient(s.produces_diff_pre)))
    return "cuBLAS has the gradients of relu and gelu_tanh only";
  if (makes && s.produces_diff_pre == Activation::gelu_tanh && s.src.row_count() % 8 != 0)
    return fmt::format("{} features are not a multiple of 8", s.src.row_count());
  return "";
}

}  // namespace

std::int64_t CudaFusionRules::padded_channels(const ConvSpec& s) { return padded_width(s) - s.src[-1]; }

std::string CudaFusionRules::why_not_fused(const Spec& spec) {
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) return why_not(*conv);
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) return why_not(*linear);
  return "";
}

std::int64_t kernel_channels(const ConvSpec& s) {
  return s.produces_sums || s.padded_channels > 0 ? s.src[-1] : padded_width(s);
}

}  // namespace millrace::roofline
