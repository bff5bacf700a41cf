#include "cpu/choice/conv_candidates.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "cpu/common/parallel.hpp"
#include "cpu/conv/conv_parts.hpp"
#include "cpu/conv/depthwise_geometry.hpp"
#include "cpu/conv/kn2row_conv.hpp"
#include "cpu/conv/tile_conv.hpp"
#include "cpu/conv/tile_weight_gradient.hpp"
#include "cpu/conv/turned_conv.hpp"
#include "cpu/conv_variants/gemm_conv.hpp"
#include "cpu/onednn/onednn.hpp"
#include "cpu/winograd/rules.hpp"
#include "cpu/winograd/winograd_slice_conv.hpp"

namespace millrace::cpu {
namespace {

constexpr std::int64_t most_kn2row_pixels = 256;  // of an image

constexpr std::pair<ConvMethod, const char*> method_names[] = {{ConvMethod::rule, "rule"},
                                                               {ConvMethod::direct, "direct"},
                                                               {ConvMethod::blocked, "blocked"},
                                                               {ConvMethod::tiles, "tiles"},
                                                               {ConvMethod::kn2row, "kn2row"},
                                                               {ConvMethod::turned, "turned"},
                                                               {ConvMethod::depthwise, "depthwise"},
                                                               {ConvMethod::gemm_alone, "gemm"},
                                                               {ConvMethod::gemm_together, "gemm together"},
                                                               {ConvMethod::winograd_2, "F(2x2)"},
                                                               {ConvMethod::winograd_4, "F(4x4)"},
                                                               {ConvMethod::winograd_4_alone, "F(4x4) alone"},
                                                               {ConvMethod::winograd_4_slices, "F(4x4) by slices"}};

ConvPart::Of part_of(ConvPass pass) { return pass == ConvPass::data ? ConvPart::Of::data : ConvPart::Of::forward; }

void add_winograd(const ConvSpec& s, ConvPass pass, std::vector<ConvMethod>& out) {
  // Times leave out that the other forms write transformed weights to memory once a step, so these are not tried.
  if (pass != ConvPass::weights && WinogradSliceConv::is_faster(s, part_of(pass))) {
    out.push_back(ConvMethod::winograd_4_slices);
    return;
  }
  out.push_back(ConvMethod::winograd_4);
  const auto multiplications = [&](std::int64_t m) {
    const winograd::Tiles tiles(s, part_of(pass), m);
    return double(tiles.count() * tiles.tile * tiles.tile);
  };
  // As for images of 5x5 pixels. Otherwise F(4x4) has always been faster. In bf16, F(2x2) is not tried: where
  // the processor multiplies bf16, a direct convolution is about twice as fast as in float32, and F(2x2) needs only
  // 2.25 times fewer multiplications.
  if (s.dtype == DType::f32 && multiplications(2) <= 1.3 * multiplications(4)) out.push_back(ConvMethod::winograd_2);
  if (pass != ConvPass::weights) out.push_back(ConvMethod::winograd_4_alone);
}

bool is_strided(const ConvSpec& s) { return s.window.stride != std::array<std::int64_t, 3>{1, 1, 1}; }
bool has_several_taps(const ConvSpec& s) { return s.window.kernel != std::array<std::int64_t, 3>{1, 1, 1}; }

// The rest is from docs/benchmarks/2026-11-choice.md. Dense kernels read each pixel so often that gathering copies does
// not pay off, and reorders take longer than a 1x1 convolution gains.
bool gemm_can_win(const ConvSpec& s) { return is_strided(s) || !has_several_taps(s); }
bool blocks_can_win(const ConvSpec& s) { return is_strided(s) && has_several_taps(s) && !s.bias && s.src[-1] >= 16; }

// Where the rules choose millrace's kernels for the gradients of large kernels and volumes, oneDNN takes up to ten
// times as long.
std::vector<ConvMethod> depthwise_candidates(const ConvSpec& s, ConvPass pass, ConvMethod rule) {
  if (!DepthwiseGeometry::supports(s)) return {rule};
  if (rule != ConvMethod::depthwise) return {rule, ConvMethod::depthwise};
  const bool small_kernel = s.window.rank < 3 && *std::ranges::max_element(s.window.kernel) <= 3;
  return pass == ConvPass::forward || small_kernel ? std::vector{rule, ConvMethod::direct} : std::vector{rule};
}

}  // namespace

const char* name_of(ConvMethod method) {
  for (const auto& [known, name] : method_names)
    if (known == method) return name;
  return "rule";
}

const char* name_of(ConvPass pass) {
  return pass == ConvPass::forward ? "forward" : pass == ConvPass::data ? "data" : "weights";
}

std::vector<ConvMethod> candidates_for(const ConvSpec& s, ConvPass pass, bool winograd) {
  const ConvMethod rule = method_by_rule(s, pass, winograd);
  const bool native = s.dtype == DType::f32 || (s.dtype == DType::bf16 && onednn::has_bf16());
  if (!native || s.groups > 1) return depthwise_candidates(s, pass, rule);
  std::vector<ConvMethod> out{rule, ConvMethod::direct};
  const Shape dst = s.dst();
  if (Kn2rowConv::supports(s) && dst.count() <= most_kn2row_pixels * dst[0] * dst[-1])
    out.push_back(ConvMethod::kn2row);
  if (pass == ConvPass::weights ? TileWeightGradient::is_faster(s) : TileConv::is_faster(s, part_of(pass)))
    out.push_back(ConvMethod::tiles);
  if (winograd && winograd::supports(s) && winograd::is_candidate(s.dtype)) add_winograd(s, pass, out);
  if (gemm_can_win(s) && GemmConv::supports(s, part_of(pass))) {
    out.push_back(ConvMethod::gemm_alone);
    if (thread_count() > 1) out.push_back(ConvMethod::gemm_together);
  }
  if (pass == ConvPass::data && onednn::has_amx() && TurnedConv::supports(s)) out.push_back(ConvMethod::turned);
  if (blocks_can_win(s)) out.push_back(ConvMethod::blocked);
  out.erase(std::remove(out.begin() + 1, out.end(), rule), out.end());
  return out;
}

std::string text_of(const std::vector<TimedMethod>& methods) {
  std::string out;
  for (const TimedMethod& m : methods)
    out += fmt::format("{}{}={:.4g}", out.empty() ? "" : "|", name_of(m.method), m.seconds);
  return out;
}

std::vector<TimedMethod> read_timed_methods(const std::string& text) {
  std::vector<TimedMethod> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('|', begin), text.size()), equals = text.find('=', begin);
    if (equals >= end) break;
    TimedMethod m{ConvMethod::rule, std::strtod(text.c_str() + equals + 1, nullptr)};
    for (const auto& [known, name] : method_names)
      if (text.compare(begin, equals - begin, name) == 0) m.method = known;
    out.push_back(m);
    begin = end + 1;
  }
  return out;
}

std::string describe(ConvPass pass, const std::vector<TimedMethod>& methods) {
  if (methods.empty()) return "";
  std::string out = fmt::format("{} {} {:.3g} ms", name_of(pass), name_of(methods[0].method), methods[0].seconds * 1e3);
  if (methods.size() > 1) out += fmt::format(", then {} {:.3g}", name_of(methods[1].method), methods[1].seconds * 1e3);
  return out;
}

}  // namespace millrace::cpu
