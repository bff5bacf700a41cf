#include "cpu/conv/turned_conv.hpp"

#include <algorithm>

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

// From (K, taps, C) to (C, taps in reverse order, K), 16 bits.
void turn(std::uint16_t* to, const std::uint16_t* from, std::int64_t out, std::int64_t taps, std::int64_t in) {
  constexpr std::int64_t block = 32;
  parallel_ranges(in, block, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += block)
      for (std::int64_t t = 0; t < taps; ++t)
        for (std::int64_t k0 = 0; k0 < out; k0 += block)
          for (std::int64_t c = first; c < std::min(end, first + block); ++c)
            for (std::int64_t k = k0; k < std::min(out, k0 + block); ++k)
              to[(c * taps + taps - 1 - t) * out + k] = from[(k * taps + t) * in + c];
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

bool TurnedConv::is_faster(const ConvSpec& s) { return onednn::has_amx() && supports(s); }

TurnedConv::TurnedConv(const ConvSpec& s, MemoryRequirements& needs)
    : in_(s.src[-1]), out_(s.out_channels), taps_(ConvAxes(s).taps()) {
  const ConvSpec of = turned(s);
  const auto shape = onednn::conv_shape(of, of.dtype);
  const auto forward = onednn::conv_forward(shape, Mode::infer);
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
