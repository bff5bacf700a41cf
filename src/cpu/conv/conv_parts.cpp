#include "cpu/conv/conv_parts.hpp"

#include "cpu/conv/depthwise_conv.hpp"
#include "cpu/conv/depthwise_weight_gradient.hpp"
#include "cpu/conv/kn2row_conv.hpp"
#include "cpu/conv/kn2row_weight_gradient.hpp"
#include "cpu/conv/tile_conv.hpp"
#include "cpu/conv/tile_weight_gradient.hpp"
#include "cpu/conv/turned_conv.hpp"
#include "cpu/conv_variants/blocked_conv.hpp"
#include "cpu/conv_variants/gemm_conv.hpp"
#include "cpu/winograd/rules.hpp"
#include "cpu/winograd/winograd_conv.hpp"
#include "cpu/winograd/winograd_slice_conv.hpp"
#include "cpu/winograd/winograd_weight_gradient.hpp"

namespace millrace::cpu {
namespace {

using Of = ConvPart::Of;

std::int64_t winograd_edge(ConvMethod method) { return method == ConvMethod::winograd_2 ? 2 : 4; }
WinogradConv::Split split_of(ConvMethod method) {
  return method == ConvMethod::winograd_4_alone ? WinogradConv::Split::alone : WinogradConv::Split::by_size;
}

ConvMethod weights_by_rule(const ConvSpec& s, bool winograd) {
  if (DepthwiseGeometry::is_faster(s, ConvPass::weights)) return ConvMethod::depthwise;
  if (winograd && winograd::is_faster_weight_gradient(s)) return ConvMethod::winograd_4;
  if (const auto gemm = gemm_by_rule(s, ConvPass::weights)) return *gemm;
  if (TileWeightGradient::is_faster(s)) return ConvMethod::tiles;
  return Kn2rowWeightGradient::is_faster(s) ? ConvMethod::kn2row : ConvMethod::direct;
}

}  // namespace

ConvMethod method_by_rule(const ConvSpec& s, ConvPass pass, bool winograd) {
  if (pass == ConvPass::weights) return weights_by_rule(s, winograd);
  const Of of = pass == ConvPass::forward ? Of::forward : Of::data;
  if (DepthwiseGeometry::is_faster(s, pass)) return ConvMethod::depthwise;
  if (winograd && winograd::is_faster(s, of))
    return WinogradSliceConv::is_faster(s, of) ? ConvMethod::winograd_4_slices : ConvMethod::winograd_4;
  if (const auto gemm = gemm_by_rule(s, pass)) return *gemm;
  if (TileConv::is_faster(s, of)) return ConvMethod::tiles;
  if (Kn2rowConv::is_faster(s, of)) return ConvMethod::kn2row;
  return pass == ConvPass::data && TurnedConv::is_faster(s) ? ConvMethod::turned : ConvMethod::direct;
}

std::unique_ptr<ConvPart> make_conv_part(const ConvSpec& s, Of of, const ConvMethods& methods,
                                         MemoryRequirements& needs) {
  const ConvPass pass = of == Of::forward ? ConvPass::forward : ConvPass::data;
  ConvMethod method = of == Of::forward ? methods.forward : methods.data;
  if (method == ConvMethod::rule) method = method_by_rule(s, pass, methods.winograd);
  switch (method) {
    case ConvMethod::tiles:
      return std::make_unique<TileConv>(s, of, needs);
    case ConvMethod::kn2row:
      if (Kn2rowConv::supports(s)) return std::make_unique<Kn2rowConv>(s, of, needs);
      break;
    case ConvMethod::depthwise:
      if (DepthwiseGeometry::supports(s)) return std::make_unique<DepthwiseConv>(s, of, needs);
      break;
    case ConvMethod::turned:
      return of == Of::data ? TurnedConv::make(s, needs) : nullptr;
    case ConvMethod::gemm_alone:
    case ConvMethod::gemm_together:
      if (GemmConv::supports(s, of))
        return std::make_unique<GemmConv>(s, of, method == ConvMethod::gemm_together, needs);
      break;
    case ConvMethod::winograd_2:
    case ConvMethod::winograd_4:
    case ConvMethod::winograd_4_alone:
      if (winograd::supports(s))
        return std::make_unique<WinogradConv>(s, of, winograd_edge(method), needs, split_of(method));
      break;
    case ConvMethod::winograd_4_slices:
      if (winograd::supports(s)) return std::make_unique<WinogradSliceConv>(s, of);
      break;
    case ConvMethod::blocked:
      return BlockedConv::make(s, pass, needs);
    case ConvMethod::rule:
    case ConvMethod::direct:
      break;
  }
  return nullptr;
}

std::unique_ptr<ConvPart> make_weight_gradient_part(const ConvSpec& s, const ConvMethods& methods) {
  ConvMethod method = methods.weights;
  if (method == ConvMethod::rule) method = weights_by_rule(s, methods.winograd);
  MemoryRequirements no_weights;
  switch (method) {
    case ConvMethod::tiles:
      return std::make_unique<TileWeightGradient>(s);
    case ConvMethod::kn2row:
      if (Kn2rowConv::supports(s)) return std::make_unique<Kn2rowWeightGradient>(s);
      break;
    case ConvMethod::depthwise:
      if (DepthwiseGeometry::supports(s)) return std::make_unique<DepthwiseWeightGradient>(s);
      break;
    case ConvMethod::gemm_alone:
    case ConvMethod::gemm_together:
      if (GemmWeightGradient::supports(s))
        return std::make_unique<GemmWeightGradient>(s, method == ConvMethod::gemm_together);
      break;
    case ConvMethod::winograd_2:
    case ConvMethod::winograd_4:
    case ConvMethod::winograd_4_alone:
    case ConvMethod::winograd_4_slices:
      if (winograd::supports(s)) return std::make_unique<WinogradWeightGradient>(s, winograd_edge(method));
      break;
    case ConvMethod::blocked:
      return BlockedConv::make(s, ConvPass::weights, no_weights);
    case ConvMethod::turned:
    case ConvMethod::rule:
    case ConvMethod::direct:
      break;
  }
  return nullptr;
}

}  // namespace millrace::cpu
