// The kernels of the input pass: NormalizeContiguous reads rows in order, CropFlipNormalize moves pixels, and
// ResizedCropNormalize enlarges a part of an image. input.cu chooses between them.
#pragma once
#include "cuda/block/half.hpp"
#include "millrace/ops/augmentation.hpp"

namespace millrace::cuda {

// Reads stored values as floats. `from(i)` is the same reader, moved forward by i elements.
template <class Raw>
struct StoredValues {
  const Raw* at;
  MR_DEVICE_INLINE float operator[](std::int64_t i) const { return widen(at[i]); }
  MR_DEVICE_INLINE StoredValues from(std::int64_t i) const { return {at + i}; }
};

// The reader for the types that few data sets have. One kernel serves all of them: it tests the type at every value.
struct StoredValuesOfAnyType {
  const void* at;
  DType type;
  std::int64_t begin;
  template <class Raw>
  MR_DEVICE_INLINE float value(std::int64_t i) const {
    return widen(static_cast<const Raw*>(at)[begin + i]);
  }
  MR_DEVICE_INLINE float operator[](std::int64_t i) const {
    switch (type) {
      case DType::i8:
        return value<std::int8_t>(i);
      case DType::u16:
        return value<std::uint16_t>(i);
      case DType::i32:
        return value<std::int32_t>(i);
      case DType::f16:
        return value<f16>(i);
      case DType::bf16:
        return value<bf16>(i);
      default:
        return value<double>(i);
    }
  }
  MR_DEVICE_INLINE StoredValuesOfAnyType from(std::int64_t i) const { return {at, type, begin + i}; }
};

struct alignas(8) Affine {
  float factor, offset;
  MR_DEVICE_INLINE float of(float value) const { return value * factor + offset; }
};

// Normalises stored values. Each array has one entry per channel of dst.
struct Scales {
  const Affine* inner;  // applied to the stored value
  const Affine* outer;  // with log1p: applied to the logarithm; its offset also scales `lift`
  bool log1p;
  MR_DEVICE_INLINE float of(float stored, std::int64_t c) const {
    const float value = inner[c].of(stored);
    return log1p ? outer[c].of(log1pf(value)) : value;
  }
  // The value of channel c with all color augmentation. stored(k) reads channel k of the same pixel.
  template <class StoredOf>
  MR_DEVICE_INLINE float of(const StoredOf& stored, std::int64_t c, const Augmentation& move,
                            const ColorMatrix& mix) const {
    float value;
    if (move.has_color_jitter()) {
      const float pixel[3] = {of(stored(0), 0), of(stored(1), 1), of(stored(2), 2)};
      value = mix.of(int(c), pixel);
    } else {
      value = of(stored(c), c);
    }
    const float lift = move.lift != 0 ? outer[c].offset * move.lift : 0;
    return value * move.gain + lift;
  }
};

// InputStrides for a kernel: where channel c of dst lies within a stored row.
struct StoredStrides {
  const InputStrides::Channel* each;  // null: channels are evenly spaced, and the two steps below apply
  std::int64_t pixel_step, channel_step;
  MR_DEVICE_INLINE std::int64_t first(std::int64_t c) const { return each ? each[c].first : c * channel_step; }
  MR_DEVICE_INLINE std::int64_t step(std::int64_t c) const { return each ? each[c].step : pixel_step; }
};

template <class Raw, class T>
struct NormalizeContiguous {
  T* dst;
  const Raw* src;
  Scales scales;
  std::int64_t channels;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    const Pack<Raw, n> raw = *reinterpret_cast<const Pack<Raw, n>*>(src + i);
    std::int64_t c = channels == 1 ? 0 : i % channels;
    float y[n];
    for (int k = 0; k < n; ++k) {
      y[k] = scales.of(widen(raw.v[k]), c);
      if (++c == channels) c = 0;
    }
    store(dst + i, y);
  }
};

// Spatial extents of a sample; missing axes have the extent 1.
struct Extents {
  std::int64_t depth, height, width;
};

// What the two kernels below have in common. Blocks belong to samples, so that a thread draws the sample's augmentation
// once and then writes many elements.
template <class From, class T>
struct AugmentedRows {
  T* dst;
  From src;  // of the first row; the first element of its first channel
  Scales scales;
  StoredStrides strides;
  const std::int64_t* ids;  // sample id of each row
  const StepState* state;
  Augmenter augmenter;
  ColorJitter jitter;
  Extents extents;                               // of dst
  std::int64_t channels, dst_channels, src_row;  // dst_channels: with padding channels; src_row: elements
  std::int64_t blocks_per_row;
};

// Crop, flip, cutout, color jitter and padding channels, in one pass over dst.
template <class From, class T>
struct CropFlipNormalize {
  AugmentedRows<From, T> rows;
  Extents stored;   // of src
  bool vectorized;  // rows of dst are whole packs, and aligned

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    constexpr int n = pack_size<T>;
    const std::int64_t row = block.index() / rows.blocks_per_row;
    const std::int64_t block_of_row = block.index() - row * rows.blocks_per_row;
    const Augmentation move = rows.augmenter.of_row(rows.state, rows.ids, row);
    const ColorMatrix mix = rows.jitter.mix(move);
    const std::int64_t depth = rows.extents.depth, height = rows.extents.height, width = rows.extents.width;
    const std::int64_t row_count = depth * height * width * rows.dst_channels;
    const From image = rows.src.from(row * rows.src_row);
    T* out = rows.dst + row * row_count;

    for (std::int64_t begin = (block_of_row * block.threads() + block.thread()) * n; begin < row_count;
         begin += rows.blocks_per_row * block.threads() * n) {
      const std::int64_t pixel = begin / rows.dst_channels, line = pixel / width;
      std::int64_t c = begin - pixel * rows.dst_channels, x = pixel - line * width;
      std::int64_t z = line / height, y = line - z * height;
      float values[n];
      for (int k = 0; k < n; ++k) {
        const bool blank = c >= rows.channels || move.cut(z, y, x);
        const std::int64_t place = begin + k < row_count ? stored_place(move, z, y, x) : -1;
        const auto stored_value = [&](std::int64_t channel) {
          return place >= 0 ? image[place * rows.strides.step(channel) + rows.strides.first(channel)] : 0.0f;
        };
        values[k] = blank ? 0 : rows.scales.of(stored_value, c, move, mix);
        if (++c < rows.dst_channels) continue;
        c = 0;
        if (++x < width) continue;
        x = 0;
        if (++y < height) continue;
        y = 0;
        ++z;
      }
      if (vectorized)
        store(out + begin, values);
      else
        for (int k = 0; k < n && begin + k < row_count; ++k) out[begin + k] = narrow<T>(values[k]);
    }
  }

  // The pixel of src that a pixel of dst comes from, or -1: padding.
  MR_DEVICE_INLINE std::int64_t stored_place(const Augmentation& move, std::int64_t z, std::int64_t y,
                                             std::int64_t x) const {
    const std::int64_t from_z = move.source_position(0, z, rows.extents.depth);
    const std::int64_t from_y = move.source_position(1, y, rows.extents.height);
    const std::int64_t from_x = move.source_position(2, x, rows.extents.width);
    const bool inside = from_z >= 0 && from_z < stored.depth && from_y >= 0 && from_y < stored.height && from_x >= 0 &&
                        from_x < stored.width;
    return inside ? (from_z * stored.height + from_y) * stored.width + from_x : -1;
  }
};

// Random resized crop: a random part of a 2D image, enlarged to the size of the image by bilinear interpolation.
template <class From, class T>
struct ResizedCropNormalize {
  AugmentedRows<From, T> rows;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t row = block.index() / rows.blocks_per_row;
    const std::int64_t block_of_row = block.index() - row * rows.blocks_per_row;
    const Augmentation move = rows.augmenter.of_row(rows.state, rows.ids, row);
    const ColorMatrix mix = rows.jitter.mix(move);
    const std::int64_t height = rows.extents.height, width = rows.extents.width, pixels = height * width;
    const From image = rows.src.from(row * rows.src_row);
    T* out = rows.dst + row * pixels * rows.dst_channels;
    for (std::int64_t pixel = block_of_row * block.threads() + block.thread(); pixel < pixels;
         pixel += rows.blocks_per_row * block.threads()) {
      const std::int64_t y = pixel / width, x = pixel - y * width;
      const auto v = move.interpolation_point(0, move.unflipped(1, y, height), height);
      const auto h = move.interpolation_point(1, move.unflipped(2, x, width), width);
      const auto value = [&](std::int64_t c) {
        const std::int64_t step = rows.strides.step(c);
        const std::int64_t right = width > 1 ? step : 0, down = height > 1 ? width * step : 0;
        const From corner = image.from(rows.strides.first(c) + (v.first * width + h.first) * step);
        return Augmentation::interpolate(v, h, corner[0], corner[right], corner[down], corner[down + right]);
      };
      const bool cut = move.cut(0, y, x);
      T* const to = out + pixel * rows.dst_channels;
      for (std::int64_t c = 0; c < rows.channels; ++c) to[c] = narrow<T>(cut ? 0 : rows.scales.of(value, c, move, mix));
      for (std::int64_t c = rows.channels; c < rows.dst_channels; ++c) to[c] = narrow<T>(0);
    }
  }
};

}  // namespace millrace::cuda
