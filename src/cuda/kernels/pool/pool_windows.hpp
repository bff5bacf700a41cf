// The windows of a pool, from its Spec: what the kernels of pool_kernels.hpp need to find the pixels of a result.
#pragma once
#include <algorithm>
#include <limits>

#include "cuda/kernels/pool/pool_kernels.hpp"
#include "millrace/base/error.hpp"
#include "millrace/ops/pool.hpp"

namespace millrace::cuda::pool {

struct Windows {
  static constexpr std::int64_t index_max = std::numeric_limits<std::int32_t>::max();
  Geometry g{};
  std::int64_t images, channels, taps = 1, in_pixels = 1, out_pixels = 1;  // pixels: of an image

  explicit Windows(const PoolSpec& spec) : images(spec.src[0]), channels(spec.src[-1]) {
    const int rank = spec.src.spatial_rank();
    if (rank < 0 || rank > 3) fail(Exit::config, "pool: input {} must have 0 to 3 spatial dimensions", spec.src.str());
    const Shape dst = spec.dst();
    for (int a = 0; a < rank; ++a) {
      Axis& axis = g.axis[3 - rank + a];
      axis.in = int(spec.src[1 + a]);
      if (spec.kind == PoolSpec::Kind::global) {
        axis.kernel = axis.in;
      } else {
        const Window& w = spec.window;
        axis.out = int(dst[1 + a]);
        axis.kernel = int(w.kernel[a]);
        axis.stride = int(w.stride[a]);
        axis.pad = int(w.pad[a]);
        axis.dilation = int(w.dilation[a]);
      }
    }
    for (int a = 0; a < 3; ++a) {
      Axis& axis = g.axis[a];
      axis.by_stride = Divider(axis.stride);
      axis.by_dilation = Divider(axis.dilation);
      g.by_in[a] = Divider(axis.in);
      g.by_out[a] = Divider(axis.out);
      taps *= axis.kernel;
      in_pixels *= axis.in;
      out_pixels *= axis.out;
    }
    if (std::max(in_pixels, out_pixels) * channels > index_max)
      fail(Exit::config, "pool: one image of {} is too large (2^31 elements)", spec.src.str());
    g.channels = int(channels);
    g.share = 1 / float(taps);
  }

  // Calls body(geometry, number of packs, first element of src, first element of dst) for groups of images that are
  // small enough for 31-bit indices. pixels: of an image, over which the kernel loops.
  template <class Body>
  void by_images(int pack, std::int64_t pixels, const Body& body) const {
    Geometry of = g;
    of.packs = int(channels) / pack;
    of.by_packs = Divider(of.packs);
    const std::int64_t image_packs = pixels * of.packs, max_images = image_packs ? index_max / image_packs : 1;
    for (std::int64_t image = 0; image < images; image += max_images)
      body(of, std::min(max_images, images - image) * image_packs, image * in_pixels * channels,
           image * out_pixels * channels);
  }
};

}  // namespace millrace::cuda::pool
