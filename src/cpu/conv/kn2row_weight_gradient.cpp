#include "cpu/conv/kn2row_weight_gradient.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace millrace::cpu {

using Side = Kn2rowGeometry::Side;

bool Kn2rowWeightGradient::is_faster(const ConvSpec& s) {
  const Kn2rowGeometry taps(s);
  const bool strided = taps.stride != std::array<std::int64_t, 3>{1, 1, 1};
  const std::int64_t pixels = taps.pixels(Side::dst);
  return s.groups == 1 && !s.bias && taps.all.size() > 1 && s.src[-1] >= 64 && s.out_channels >= 64 &&
         pixels <= (strided ? 256 : 64) && pixels * s.src[0] >= 256;
}

Kn2rowWeightGradient::Kn2rowWeightGradient(const ConvSpec& s) : taps_(s), element_(size_of(s.dtype)) {
  const std::int64_t in = taps_.src[-1], out = taps_.dst[-1], filter = std::int64_t(taps_.all.size()) * in;
  std::size_t scratch = 0;
  for (const std::int64_t rows : taps_.row_counts()) {
    const auto diff = onednn::strided({out, rows}, s.dtype, {1, out}), src = onednn::plain({rows, in}, s.dtype),
               gradient = onednn::strided({out, in}, DType::f32, {filter, 1});
    Product& p = products_[rows];
    for (const bool add : {false, true}) {
      onednn::Call& call = add ? p.add : p.write;
      call = onednn::matmul_call(diff, src, {}, gradient, Activation::none, add);
      scratch = std::max(scratch, call.scratch_bytes());
    }
  }
  const std::size_t rows = std::size_t(taps_.chunk * taps_.max_rows) * element_;
  src_at_ = align64(scratch);
  diff_at_ = src_at_ + align64(rows * std::size_t(in));
  workspace_ = diff_at_ + align64(rows * std::size_t(out));
}

std::string Kn2rowWeightGradient::implementation() const {
  return fmt::format("{} x {}", taps_.all.size(),
                     products_.empty() ? "nothing" : products_.rbegin()->second.write.name());
}

void Kn2rowWeightGradient::run(const OpArgs& args) {
  const std::size_t in = std::size_t(taps_.src[-1]), out = std::size_t(taps_.dst[-1]);
  for (std::int64_t image = 0; image < taps_.src[0]; image += taps_.chunk) {
    const std::int64_t images = std::min(taps_.chunk, taps_.src[0] - image);
    const bool add = image > 0 || args.mode[0] == GradMode::add;
    for (std::size_t t = 0; t < taps_.all.size(); ++t) {
      const Kn2rowGeometry::Tap& tap = taps_.all[t];
      float* gradient = args.diff_weight[0].as<float>() + t * in;
      if (tap.rows == 0) {  // the tap reads only padding
        for (std::size_t k = 0; k < out && !add; ++k) std::fill_n(gradient + k * taps_.all.size() * in, in, 0.0f);
        continue;
      }
      const auto rows_of = [&](Side side, const Tensor& all, std::size_t place) -> void* {
        const std::size_t whole = std::size_t(image * taps_.pixels(side) * taps_.shape(side)[-1]) * element_;
        if (taps_.covers_image(tap, side)) return all.as<char>() + whole;
        taps_.gather(side, tap, image, images, all.as<char>(), element_, static_cast<char*>(at(args.workspace, place)));
        return at(args.workspace, place);
      };
      Product& p = products_.at(images * tap.rows);
      onednn::Call& product = add ? p.add : p.write;
      product.bind(DNNL_ARG_SRC, rows_of(Side::dst, args.diff_dst, diff_at_));
      product.bind(DNNL_ARG_WEIGHTS, rows_of(Side::src, args.src[0], src_at_));
      product.bind(DNNL_ARG_DST, gradient);
      cpu::run(product, args);
    }
  }
}

}  // namespace millrace::cpu
