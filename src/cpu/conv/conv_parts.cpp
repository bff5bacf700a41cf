#include "cpu/conv/conv_parts.hpp"

#include "cpu/conv/kn2row_conv.hpp"
#include "cpu/conv/kn2row_weight_gradient.hpp"
#include "cpu/conv/tile_conv.hpp"
#include "cpu/conv/tile_weight_gradient.hpp"
#include "cpu/winograd/rules.hpp"
#include "cpu/winograd/winograd_conv.hpp"
#include "cpu/winograd/winograd_weight_gradient.hpp"

namespace millrace::cpu {
namespace {

using Of = ConvPart::Of;

std::int64_t winograd_edge(ConvMethod method) { return method == ConvMethod::winograd_2 ? 2 : 4; }

ConvMethod method_by_rule(const ConvSpec& s, Of of, bool winograd) {
  if (winograd && winograd::is_faster(s, of)) return ConvMethod::winograd_4;
  if (TileConv::is_faster(s, of)) return ConvMethod::tiles;
  return Kn2rowConv::is_faster(s, of) ? ConvMethod::kn2row : ConvMethod::direct;
}
ConvMethod weights_by_rule(const ConvSpec& s, bool winograd) {
  if (winograd && winograd::is_faster_weight_gradient(s)) return ConvMethod::winograd_4;
  if (TileWeightGradient::is_faster(s)) return ConvMethod::tiles;
  return Kn2rowWeightGradient::is_faster(s) ? ConvMethod::kn2row : ConvMethod::direct;
}

}  // namespace

std::unique_ptr<ConvPart> make_conv_part(const ConvSpec& s, Of of, const ConvMethods& methods,
                                         MemoryRequirements& needs) {
  ConvMethod method = of == Of::forward ? methods.forward : methods.data;
  if (method == ConvMethod::rule) method = method_by_rule(s, of, methods.winograd);
  switch (method) {
    case ConvMethod::tiles:
      return std::make_unique<TileConv>(s, of, needs);
    case ConvMethod::kn2row:
      if (Kn2rowConv::supports(s)) return std::make_unique<Kn2rowConv>(s, of, needs);
      break;
    case ConvMethod::winograd_2:
    case ConvMethod::winograd_4:
      if (winograd::supports(s)) return std::make_unique<WinogradConv>(s, of, winograd_edge(method), needs);
      break;
    case ConvMethod::rule:
    case ConvMethod::direct:
      break;
  }
  return nullptr;
}

std::unique_ptr<ConvPart> make_weight_gradient_part(const ConvSpec& s, const ConvMethods& methods) {
  ConvMethod method = methods.weights;
  if (method == ConvMethod::rule) method = weights_by_rule(s, methods.winograd);
  switch (method) {
    case ConvMethod::tiles:
      return std::make_unique<TileWeightGradient>(s);
    case ConvMethod::kn2row:
      if (Kn2rowConv::supports(s)) return std::make_unique<Kn2rowWeightGradient>(s);
      break;
    case ConvMethod::winograd_2:
    case ConvMethod::winograd_4:
      if (winograd::supports(s)) return std::make_unique<WinogradWeightGradient>(s, winograd_edge(method));
      break;
    case ConvMethod::rule:
    case ConvMethod::direct:
      break;
  }
  return nullptr;
}

}  // namespace millrace::cpu
