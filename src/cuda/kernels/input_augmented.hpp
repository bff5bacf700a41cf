// NormalizeAugmented: the kernel of the input pass that moves pixels (CropFlip) or enlarges a part of an image
// (ResizedCrop). Indices within a sample have 32 bits: input.cu rejects larger samples.
#pragma once
#include "cuda/kernels/input_kernels.hpp"

namespace millrace::cuda {

// Spatial extents of a sample; missing axes have the extent 1.
struct Extents {
  int depth, height, width;
};

// Crop and flip: a pixel of dst is a pixel of src, or padding.
struct CropFlip {
  Extents stored;      // of src
  using Source = int;  // the pixel of src; -1: padding
  MR_DEVICE_INLINE Source source(const Augmentation& move, const Extents& dst, int z, int y, int x) const {
    const int from_z = move.source_position(0, z, dst.depth), from_y = move.source_position(1, y, dst.height),
              from_x = move.source_position(2, x, dst.width);
    const bool inside = from_z >= 0 && from_z < stored.depth && from_y >= 0 && from_y < stored.height && from_x >= 0 &&
                        from_x < stored.width;
    return inside ? (from_z * stored.height + from_y) * stored.width + from_x : -1;
  }
  template <class From>
  MR_DEVICE_INLINE float value(const From& image, Source pixel, int first, int step) const {
    const float read =
        image[unsigned(first + (pixel < 0 ? 0 : pixel) * step)];  // without a branch, so that loads overlap
    return pixel < 0 ? 0.0f : read;
  }
};

// Random resized crop: a random part of a 2D image, enlarged to the size of the image by bilinear interpolation.
struct ResizedCrop {
  Extents stored;  // those of dst
  struct Source {
    Augmentation::InterpolationPoint<int> row, column;
  };
  MR_DEVICE_INLINE Source source(const Augmentation& move, const Extents& dst, int, int y, int x) const {
    return {move.interpolation_point(0, move.unflipped(1, y, dst.height), dst.height),
            move.interpolation_point(1, move.unflipped(2, x, dst.width), dst.width)};
  }
  template <class From>
  MR_DEVICE_INLINE float value(const From& image, const Source& at, int first, int step) const {
    const unsigned right = unsigned(stored.width > 1 ? step : 0);
    const unsigned down = unsigned(stored.height > 1 ? stored.width * step : 0);
    const unsigned corner = unsigned(first + (at.row.first * stored.width + at.column.first) * step);
    return Augmentation::interpolate(at.row, at.column, image[corner], image[corner + right], image[corner + down],
                                     image[corner + down + right]);
  }
};

// Augmentation, normalization, cutout and padding channels, in one pass over dst. Each sample has its own blocks. The
// first thread of a block draws the augmentation for all of them. A thread handles one item at a time: whole_pixels
// says how many channels the pixels of dst have, and an item is as many pixels as fill one wide store, at least one.
// With whole_pixels = 0 any number of channels is possible, and an item is one wide store.
template <class From, class T, class Sampling, int whole_pixels>
struct NormalizeAugmented {
  T* dst;
  From src;  // of the first row; the first element of its first channel
  Sampling sampling;
  Scales scales;
  StoredStrides strides;
  const std::int64_t* ids;  // sample id of each row
  const StepState* state;
  Augmenter augmenter;
  ColorJitter jitter;
  Extents extents;                                          // of dst
  int channels, dst_channels;                               // dst_channels: with padding channels
  int row_count;                                            // elements of a row of dst
  std::int64_t src_row;                                     // elements of a row of src
  Divider by_blocks, by_width, by_height, by_dst_channels;  // by_blocks: by the blocks of a row
  bool vectorized;                                          // rows of dst are whole packs, and aligned

  static constexpr int n = pack_size<T>;
  static constexpr int pixels = whole_pixels > 0 && whole_pixels < n ? n / whole_pixels : 1;  // of an item
  static constexpr int values = whole_pixels > 0 ? pixels* whole_pixels : n;                  // of an item
  static_assert(values % n == 0);
  static int item_count(std::int64_t row_count) { return int((row_count + values - 1) / values); }

  struct Sample {  // the same for all threads of a block
    Augmentation move;
    ColorMatrix mix;
    From image;  // in shared memory, because the compiler would repeat its 64-bit arithmetic for each load
  };
  struct Position {  // of a pixel of dst
    int z, y, x;
  };

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int part = int(block.index());
    const int row = by_blocks.split(part);
    Sample* const shared = block.template shared<Sample>();
    if (block.thread() == 0) {
      shared->move = augmenter.of_row(state, ids, row);
      shared->mix = jitter.mix(shared->move);
      shared->image = src.from(row * src_row);
    }
    block.sync();
    const Augmentation move = shared->move;
    const ColorMatrix& mix = shared->mix;  // few samples need it: it takes no registers
    const From image = shared->image;
    T* const out = dst + row * std::int64_t(row_count);
    Affine inner[whole_pixels > 0 ? whole_pixels : 1];
    for (int c = 0; c < whole_pixels; ++c) inner[c] = c < channels ? scales.inner[c] : Affine{0, 0};
    const int items = (row_count + values - 1) / values, stride = int(by_blocks.divisor) * block.threads();
    for (int item = part * block.threads() + block.thread(); item < items; item += stride) {
      const int begin = item * values;
      float y[values];
      if constexpr (whole_pixels > 0) {
        read_pixels(y, item * pixels, image, move, mix, inner);
      } else if (move.has_color_jitter()) {
        write_jittered(out, begin, image, move, mix);
        continue;
      } else {
        read_elements(y, begin, image, move);
      }
      write(out, begin, y);
    }
  }

 private:
  MR_DEVICE_INLINE Position position(int pixel) const {
    Position at;
    const int line = by_width.split(pixel);
    at.x = pixel;
    at.y = line;
    at.z = by_height.split(at.y);
    return at;
  }
  MR_DEVICE_INLINE void advance(Position& at) const {
    if (++at.x < extents.width) return;
    at.x = 0;
    if (++at.y < extents.height) return;
    at.y = 0;
    ++at.z;
  }
  // All loads come before the arithmetic, so that their latencies overlap.
  MR_DEVICE_INLINE void read_pixels(float (&y)[values], int pixel, const From& image, const Augmentation& move,
                                    const ColorMatrix& mix, const Affine* inner) const {
    Position at = position(pixel);
    bool cut[pixels];
    for (int p = 0; p < pixels; ++p) {
      if (p > 0) advance(at);
      const auto source = sampling.source(move, extents, at.z, at.y, at.x);
      cut[p] = move.cut(at.z, at.y, at.x);
      for (int c = 0; c < whole_pixels; ++c)
        y[p * whole_pixels + c] =
            c < channels ? sampling.value(image, source, c * strides.channel_step, strides.pixel_step) : 0;
    }
    for (int i = 0; i < values; ++i) y[i] = inner[i % whole_pixels].of(y[i]);
    if (scales.log1p)
      for (int i = 0; i < values; ++i)
        if (i % whole_pixels < channels) y[i] = scales.transformed(y[i], i % whole_pixels);
    if (move.has_color_jitter())
      for (int p = 0; p < pixels; ++p) {
        float* const of_pixel = y + p * whole_pixels;
        const float before[3] = {of_pixel[0], of_pixel[1], of_pixel[2]};
        for (int c = 0; c < 3; ++c) of_pixel[c] = mix.of(c, before);
      }
    if (move.gain != 1 || move.lift != 0)
      for (int i = 0; i < values; ++i)
        if (i % whole_pixels < channels) y[i] = scales.adjusted(y[i], i % whole_pixels, move);
    for (int i = 0; i < values; ++i)
      if (cut[i / whole_pixels] || i % whole_pixels >= channels) y[i] = 0;
  }

  MR_DEVICE_INLINE void read_elements(float (&y)[values], int begin, const From& image,
                                      const Augmentation& move) const {
    int c = begin;
    Position at = position(by_dst_channels.split(c));
    auto source = sampling.source(move, extents, at.z, at.y, at.x);
    bool cut = move.cut(at.z, at.y, at.x);
    int channel[values];  // -1: the value is 0
    for (int k = 0; k < values; ++k) {
      if (c == dst_channels) {
        c = 0;
        advance(at);
        source = sampling.source(move, extents, at.z, at.y, at.x);
        cut = move.cut(at.z, at.y, at.x);
      }
      channel[k] = c < channels && !cut ? c : -1;
      y[k] = channel[k] >= 0 ? stored(image, source, c) : 0;
      ++c;
    }
    for (int k = 0; k < values; ++k)
      if (channel[k] >= 0) y[k] = scales.inner[channel[k]].of(y[k]);
    if (scales.log1p)
      for (int k = 0; k < values; ++k)
        if (channel[k] >= 0) y[k] = scales.transformed(y[k], channel[k]);
    if (move.gain != 1 || move.lift != 0)
      for (int k = 0; k < values; ++k)
        if (channel[k] >= 0) y[k] = scales.adjusted(y[k], channel[k], move);
  }
  MR_DEVICE_INLINE float stored(const From& image, const typename Sampling::Source& source, int c) const {
    return sampling.value(image, source, strides.first(c), strides.step(c));
  }
  // With colour jitter each value needs all channels of its pixel. Such images are nearly always padded to 4 or 8
  // channels; this serves the others, one element at a time.
  MR_DEVICE_INLINE void write_jittered(T* out, int begin, const From& image, const Augmentation& move,
                                       const ColorMatrix& mix) const {
    MR_NO_UNROLL for (int i = begin; i < begin + values && i < row_count; ++i) {
      int c = i;
      const Position at = position(by_dst_channels.split(c));
      const auto source = sampling.source(move, extents, at.z, at.y, at.x);
      float pixel[3];
      for (int k = 0; k < 3; ++k) pixel[k] = scales.of(stored(image, source, k), k);
      const bool blank = c >= channels || move.cut(at.z, at.y, at.x);
      out[i] = narrow<T>(blank ? 0 : scales.adjusted(mix.of(c, pixel), c, move));
    }
  }

  MR_DEVICE_INLINE void write(T* out, int begin, const float (&y)[values]) const {
    if (vectorized) {
      for (int first = 0; first < values; first += n) {
        float pack[n];
        for (int k = 0; k < n; ++k) pack[k] = y[first + k];
        store(out + begin + first, pack);
      }
    } else {
      for (int k = 0; k < values && begin + k < row_count; ++k) out[begin + k] = narrow<T>(y[k]);
    }
  }
};

}  // namespace millrace::cuda
