#include "cpu/conv/kn2row_conv.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace millrace::cpu {

using Side = Kn2rowGeometry::Side;

bool Kn2rowConv::supports(const ConvSpec& s) {
  // With one input channel the gradient of the weights is a column with distances between its elements. oneDNN 3.6
  // writes wrong values into it.
  return s.groups == 1 && !s.bias && s.src[-1] > 1 && Kn2rowGeometry(s).all.size() > 1;
}

bool Kn2rowConv::is_faster(const ConvSpec& s, Of of) {
  const Kn2rowGeometry taps(s);
  const std::int64_t pixels = taps.pixels(Side::dst);
  // In float32, oneDNN computes the gradient of src equally fast.
  return supports(s) && s.src[-1] >= 64 && s.out_channels >= 64 && pixels <= 16 && pixels * s.src[0] >= 256 &&
         (of == Of::forward || s.dtype != DType::f32);
}

Kn2rowConv::Kn2rowConv(const ConvSpec& s, Of of, MemoryRequirements& needs)
    : taps_(s),
      dtype_(s.dtype),
      from_(of == Of::forward ? Side::src : Side::dst),
      to_(of == Of::forward ? Side::dst : Side::src) {
  const std::int64_t in = taps_.shape(from_)[-1], out = taps_.shape(to_)[-1];
  const std::int64_t channels = taps_.src[-1], filter = std::int64_t(taps_.all.size()) * channels;
  // The weights of one tap as (in, out), within the canonical weight (K, kernel..., C).
  const auto canonical =
      onednn::strided({in, out}, dtype_, of == Of::forward ? onednn::dims{1, filter} : onednn::dims{filter, 1});
  std::size_t scratch = 0;
  onednn::desc packed = canonical;  // FloatMatmul reads no layouts of oneDNN
  const bool chooses = dtype_ != DType::f32 || !onednn::prefers_float_matmul();
  for (const std::int64_t rows : taps_.row_counts()) {
    const auto from = onednn::plain({rows, in}, dtype_), to = onednn::plain({rows, out}, DType::f32);
    if (chooses && products_.empty())  // all products use the layout of the first one
      packed = onednn::matmul(from, onednn::any({in, out}, dtype_), {}, to).weights_desc();
    onednn::Call& call = products_[rows];
    call = onednn::matmul_call(from, packed, {}, to);
    scratch = std::max(scratch, call.scratch_bytes());
  }
  for (std::size_t t = 0; t < taps_.all.size(); ++t) {
    weights_.emplace_back(canonical, packed, needs, t * std::size_t(channels) * size_of(dtype_));
    scratch = std::max(scratch, weights_.back().scratch_bytes());
  }
  const std::size_t rows = std::size_t(taps_.chunk * taps_.max_rows);
  rows_at_ = align64(scratch);
  product_at_ = rows_at_ + align64(rows * std::size_t(in) * size_of(dtype_));
  sum_at_ = product_at_ + align64(rows * std::size_t(out) * sizeof(float));
  workspace_ = sum_at_ + align64(std::size_t(taps_.chunk * taps_.pixels(to_) * out) * sizeof(float));
}

std::string Kn2rowConv::implementation() const {
  return fmt::format("{} x {}", taps_.all.size(), products_.empty() ? "nothing" : products_.rbegin()->second.name());
}

void Kn2rowConv::repack(const OpArgs& args) {
  for (PackedWeight& weight : weights_) weight.repack(args);
}

void Kn2rowConv::run(const OpArgs& args) {
  const bool forward = from_ == Side::src;
  const Tensor &from = forward ? args.src[0] : args.diff_dst, &to = forward ? args.dst : args.diff_src[0];
  auto* rows = static_cast<char*>(at(args.workspace, rows_at_));
  auto* product = static_cast<float*>(at(args.workspace, product_at_));
  const auto begin_of = [&](const Tensor& all, Side side, std::int64_t image) {
    return all.as<char>() + std::size_t(image * taps_.pixels(side) * taps_.shape(side)[-1]) * size_of(dtype_);
  };
  for (std::int64_t image = 0; image < taps_.src[0]; image += taps_.chunk) {
    const std::int64_t images = std::min(taps_.chunk, taps_.src[0] - image);
    const std::int64_t count = images * taps_.pixels(to_) * taps_.shape(to_)[-1];
    char* out = begin_of(to, to_, image);
    float* sum =
        dtype_ == DType::f32 ? reinterpret_cast<float*>(out) : static_cast<float*>(at(args.workspace, sum_at_));
    std::fill_n(sum, count, 0.0f);
    for (std::size_t t = 0; t < taps_.all.size(); ++t) {
      const Kn2rowGeometry::Tap& tap = taps_.all[t];
      if (tap.rows == 0) continue;
      const bool all = taps_.covers_image(tap, from_);
      if (!all) taps_.gather(from_, tap, image, images, from.as<char>(), size_of(dtype_), rows);
      onednn::Call& call = products_.at(images * tap.rows);
      call.bind(DNNL_ARG_SRC, all ? begin_of(from, from_, image) : rows);
      call.bind(DNNL_ARG_WEIGHTS, weights_[t].data(args));
      call.bind(DNNL_ARG_DST, product);
      cpu::run(call, args);
      taps_.scatter_add(to_, tap, images, product, sum);
    }
    if (dtype_ != DType::f32) convert(out, dtype_, sum, DType::f32, count);
  }
}

}  // namespace millrace::cpu
