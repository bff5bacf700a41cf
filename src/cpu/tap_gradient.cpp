#include "tap_gradient.hpp"

#include <algorithm>
#include <cstring>

namespace millrace::cpu {
namespace {

constexpr std::int64_t chunk_rows = 1024;  // of a product: what is gathered for it stays in the cache of a core

// (N, 1, height, width, C) and the like.
Shape with_three_axes(const Shape& s) {
  Shape out{s[0], 1, 1, 1, s[-1]};
  for (int a = 1; a + 1 < s.rank; ++a) out[5 - s.rank + a] = s[a];
  return out;
}

std::int64_t pixels(const Shape& s) { return s[1] * s[2] * s[3]; }

}  // namespace

bool TapGradient::wanted(const ConvSpec& s) {
  const Shape dst = s.dst();
  std::int64_t taps = 1;
  bool strided = false;
  for (int a = 0; a < s.window.rank; ++a) {
    taps *= s.window.kernel[std::size_t(a)];
    strided = strided || s.window.stride[std::size_t(a)] > 1;
  }
  const std::int64_t at = pixels(with_three_axes(dst));
  return s.groups == 1 && !s.bias && taps > 1 && s.src[-1] >= 64 && s.out_channels >= 64 &&
         at <= (strided ? 256 : 64) && at * s.src[0] >= 256;
}

TapGradient::TapGradient(const ConvSpec& s)
    : src_(with_three_axes(s.src)), dst_(with_three_axes(s.dst())), element_(size_of(s.dtype)) {
  const Window& w = s.window;
  const int front = 3 - w.rank;
  std::array<std::int64_t, 3> kernel{1, 1, 1};
  for (int a = 0; a < w.rank; ++a)
    kernel[std::size_t(front + a)] = w.kernel[std::size_t(a)],
                               stride_[std::size_t(front + a)] = w.stride[std::size_t(a)];
  const auto reach = [&](int axis, std::int64_t k) {
    if (axis < front) return Reach{0, 1, 0};
    const auto a = std::size_t(axis - front);
    const std::int64_t step = w.stride[a], shift = k * w.dilation[a] - w.pad[a], in = src_[1 + axis];
    const std::int64_t first = shift < 0 ? (-shift + step - 1) / step : 0;
    const std::int64_t end = in > shift ? std::min(dst_[1 + axis], (in - shift + step - 1) / step) : 0;
    return Reach{first, std::max<std::int64_t>(0, end - first), first * step + shift};
  };
  std::int64_t most = 0;
  for (std::int64_t z = 0; z < kernel[0]; ++z)
    for (std::int64_t y = 0; y < kernel[1]; ++y)
      for (std::int64_t x = 0; x < kernel[2]; ++x) {
        Tap tap{{reach(0, z), reach(1, y), reach(2, x)}, 1};
        for (const Reach& r : tap.reach) tap.per_image *= r.count;
        most = std::max(most, tap.per_image);
        taps_.push_back(tap);
      }

  const std::int64_t images = src_[0], in = src_[-1], out = dst_[-1], filter = std::int64_t(taps_.size()) * in;
  const std::int64_t chunks = std::max<std::int64_t>(1, images * pixels(dst_) / chunk_rows);
  chunk_ = (images + chunks - 1) / chunks;
  std::size_t scratch = 0;
  for (const Tap& tap : taps_)
    for (const std::int64_t n : {chunk_, images % chunk_}) {
      const std::int64_t rows = n * tap.per_image;
      if (rows == 0 || products_.contains(rows)) continue;
      const auto diff = onednn::strided({out, rows}, s.dtype, {1, out}), src = onednn::plain({rows, in}, s.dtype),
                 gradient = onednn::strided({out, in}, DType::f32, {filter, 1});
      Product p;
      for (const bool add : {false, true}) {
        const auto pd = onednn::matmul(diff, src, {}, gradient, Activation::none, add);
        onednn::Call& call = add ? p.add : p.write;
        call = onednn::Call(pd, dnnl::matmul(pd),
                            {{DNNL_ARG_SRC, diff}, {DNNL_ARG_WEIGHTS, src}, {DNNL_ARG_DST, gradient}});
        scratch = std::max(scratch, call.scratch_bytes());
      }
      products_.emplace(rows, std::move(p));
    }
  src_at_ = align64(scratch);
  diff_at_ = src_at_ + align64(std::size_t(chunk_ * most * in) * element_);
  workspace_ = diff_at_ + align64(std::size_t(chunk_ * most * out) * element_);
}

std::string TapGradient::implementation() const {
  return cat(taps_.size(), " x ", products_.empty() ? "nothing" : products_.rbegin()->second.write.name());
}

void TapGradient::gather(char* to, const char* from, const Tap& tap, std::int64_t image, std::int64_t images,
                         bool inputs) const {
  const Shape& s = inputs ? src_ : dst_;
  const auto& [depth, height, width] = tap.reach;
  const auto first = [&](const Reach& r) { return inputs ? r.input : r.first; };
  const auto step = [&](std::size_t axis) { return inputs ? stride_[axis] : 1; };
  const std::size_t pixel = std::size_t(s[-1]) * element_, line = std::size_t(width.count) * pixel;
  parallel_ranges(images, 1, [&](std::int64_t begin, std::int64_t end) {
    char* out = to + std::size_t(begin * tap.per_image) * pixel;
    for (std::int64_t n = image + begin; n < image + end; ++n)
      for (std::int64_t z = 0; z < depth.count; ++z)
        for (std::int64_t y = 0; y < height.count; ++y) {
          const std::int64_t at_z = first(depth) + z * step(0), at_y = first(height) + y * step(1);
          const char* in = from + std::size_t(((n * s[1] + at_z) * s[2] + at_y) * s[3] + first(width)) * pixel;
          if (step(2) == 1) {
            std::memcpy(out, in, line), out += line;
            continue;
          }
          for (std::int64_t x = 0; x < width.count; ++x, out += pixel)
            std::memcpy(out, in + std::size_t(x * step(2)) * pixel, pixel);
        }
  });
}

void TapGradient::run(const OpArgs& args) {
  const std::size_t in = std::size_t(src_[-1]), out = std::size_t(dst_[-1]);
  char *src_rows = static_cast<char*>(at(args.workspace, src_at_)),
       *diff_rows = static_cast<char*>(at(args.workspace, diff_at_));
  const char *src = args.src[0].as<char>(), *diff = args.diff_dst.as<char>();
  for (std::int64_t image = 0; image < src_[0]; image += chunk_) {
    const std::int64_t images = std::min(chunk_, src_[0] - image);
    const bool add = image > 0 || args.mode[0] == GradMode::add;
    for (std::size_t t = 0; t < taps_.size(); ++t) {
      const Tap& tap = taps_[t];
      float* gradient = args.diff_weight[0].as<float>() + t * in;
      if (tap.per_image == 0) {  // it meets the padding alone
        for (std::size_t k = 0; k < out && !add; ++k) std::fill_n(gradient + k * taps_.size() * in, in, 0.0f);
        continue;
      }
      onednn::Call& product =
          add ? products_.at(images * tap.per_image).add : products_.at(images * tap.per_image).write;
      const bool all_of_dst = tap.per_image == pixels(dst_);
      const bool all_of_src = all_of_dst && pixels(src_) == pixels(dst_);
      if (!all_of_src) gather(src_rows, src, tap, image, images, true);
      if (!all_of_dst) gather(diff_rows, diff, tap, image, images, false);
      const auto whole = [&](const char* all, const Shape& s) {
        return const_cast<char*>(all) + std::size_t(image * pixels(s) * s[-1]) * element_;
      };
      product.bind(DNNL_ARG_SRC, all_of_dst ? whole(diff, dst_) : diff_rows);
      product.bind(DNNL_ARG_WEIGHTS, all_of_src ? whole(src, src_) : src_rows);
      product.bind(DNNL_ARG_DST, gradient);
      millrace::cpu::run(product, args);
    }
  }
}

}  // namespace millrace::cpu
