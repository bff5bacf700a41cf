#include "cpu/conv/turned_conv.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "cpu/common/conv_axes.hpp"
#include "cpu/onednn/conv_descs.hpp"

namespace millrace::cpu {
namespace {

ConvSpec turned(const ConvSpec& s) {
  ConvSpec out = s;
  out.src = s.dst();
  out.out_channels = s.src[-1];
  out.bias = false;
  out.mode = Mode::infer;
  for (int axis = 0; axis < s.window.rank; ++axis)
    out.window.pad[axis] = s.window.dilation[axis] * (s.window.kernel[axis] - 1) - s.window.pad[axis];
  return out;
}

constexpr std::int64_t square = 8;
typedef std::uint16_t Row __attribute__((vector_size(square * sizeof(std::uint16_t))));

// A round of the transposition of 8 x 8 numbers: exchanges the two squares of `step` numbers beside the diagonal, in
// each square of twice that size.
template <int step>
__attribute__((always_inline)) inline void exchange(Row (&rows)[square]) {
  for (int r = 0; r < square; ++r) {
    if (r & step) continue;
    const Row a = rows[r], b = rows[r + step];
    if constexpr (step == 1) {
      rows[r] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
      rows[r + step] = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    } else if constexpr (step == 2) {
      rows[r] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      rows[r + step] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    } else {
      rows[r] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
      rows[r + step] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
  }
}

// to[i * to_stride + k] = from[k * from_stride + i] for i < columns and k < rows, at most 8 each.
void transpose(std::uint16_t* to, std::int64_t to_stride, const std::uint16_t* from, std::int64_t from_stride,
               std::int64_t rows, std::int64_t columns) {
  if (rows < square || columns < square) {
    for (std::int64_t k = 0; k < rows; ++k)
      for (std::int64_t i = 0; i < columns; ++i) to[i * to_stride + k] = from[k * from_stride + i];
    return;
  }
  Row numbers[square];
  for (int k = 0; k < square; ++k) std::memcpy(&numbers[k], from + k * from_stride, sizeof(Row));
  exchange<1>(numbers);
  exchange<2>(numbers);
  exchange<4>(numbers);
  for (int i = 0; i < square; ++i) std::memcpy(to + i * to_stride, &numbers[i], sizeof(Row));
}

// From (K, taps, C) to (C, taps in reverse order, K).
void turn(std::uint16_t* to, const std::uint16_t* from, std::int64_t out, std::int64_t taps, std::int64_t in) {
  constexpr std::int64_t block = 4 * square;
  parallel_ranges(in, block, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += block)
      for (std::int64_t t = 0; t < taps; ++t)
        for (std::int64_t k = 0; k < out; k += square)
          for (std::int64_t c = first; c < std::min(end, first + block); c += square)
            transpose(to + (c * taps + taps - 1 - t) * out + k, taps * out, from + (k * taps + t) * in + c, taps * in,
                      std::min(square, out - k), std::min(square, end - c));
  });
}

}  // namespace

bool TurnedConv::supports(const ConvSpec& s) {
  const Window& w = s.window;
  if (s.dtype != DType::bf16 || s.groups > 1 || ConvAxes(s).taps() == 1) return false;
  for (int axis = 0; axis < w.rank; ++axis)
    if (w.stride[axis] != 1 || w.pad[axis] > w.dilation[axis] * (w.kernel[axis] - 1)) return false;
  return true;
}

// Only what was measured (docs/benchmarks/2026-11-choice.md). With fewer pixels, turning takes longer than it saves.
bool TurnedConv::is_faster(const ConvSpec& s) {
  constexpr std::int64_t least_pixels = 4096;  // of all rows
  return onednn::has_amx() && supports(s) && s.window.rank == 2 &&
         s.window.kernel == std::array<std::int64_t, 3>{3, 3, 1} &&
         s.window.dilation == std::array<std::int64_t, 3>{1, 1, 1} && s.src[-1] >= 16 && s.out_channels >= 16 &&
         s.dst().count() / s.out_channels >= least_pixels;
}

std::unique_ptr<TurnedConv> TurnedConv::make(const ConvSpec& s, MemoryRequirements& needs) {
  if (!supports(s)) return nullptr;
  const ConvSpec of = turned(s);
  try {
    const auto forward = onednn::conv_forward(onednn::conv_shape(of, of.dtype), Mode::infer);
    const bool copies = forward.weights_desc() != onednn::canonical_weight(of, of.dtype);
    MemoryRequirements with = needs;
    std::unique_ptr<TurnedConv> out(new TurnedConv(s, forward, with));
    if (!copies || out->implementation().find("ref:") != std::string::npos) return nullptr;
    needs = with;
    return out;
  } catch (const dnnl::error&) {  // this shape is not supported
  }
  return nullptr;
}

TurnedConv::TurnedConv(const ConvSpec& s, const onednn::ConvForward& forward, MemoryRequirements& needs)
    : in_(s.src[-1]), out_(s.out_channels), taps_(ConvAxes(s).taps()) {
  const ConvSpec of = turned(s);
  const auto shape = onednn::conv_shape(of, of.dtype);
  forward_ =
      onednn::Call(forward, dnnl::convolution_forward(forward),
                   {{DNNL_ARG_SRC, shape.src}, {DNNL_ARG_WEIGHTS, forward.weights_desc()}, {DNNL_ARG_DST, shape.dst}});
  weight_ = PackedWeight(onednn::canonical_weight(of, of.dtype), forward.weights_desc(), needs);
  turned_at_ = align64(std::max(forward_.scratch_bytes(), weight_.scratch_bytes()));
  turned_bytes_ = std::size_t(s.weight().count()) * sizeof(std::uint16_t);
}

void TurnedConv::repack(const OpArgs& args) {
  OpArgs of = args;
  of.weight[0].data = at(args.workspace, turned_at_);
  turn(of.weight[0].as<std::uint16_t>(), args.weight[0].as<std::uint16_t>(), out_, taps_, in_);
  weight_.repack(of);
}

void TurnedConv::run(const OpArgs& args) {
  forward_.bind(DNNL_ARG_SRC, args.diff_dst.data);
  forward_.bind(DNNL_ARG_WEIGHTS, weight_.data(args));
  forward_.bind(DNNL_ARG_DST, args.diff_src[0].data);
  cpu::run(forward_, args);
}

}  // namespace millrace::cpu
