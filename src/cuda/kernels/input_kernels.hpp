// The parts of the kernels of the input pass, and NormalizeContiguous, the kernel for rows that are read in order.
#pragma once
#include "cuda/block/divider.hpp"
#include "cuda/block/half.hpp"
#include "millrace/ops/augmentation.hpp"

namespace millrace::cuda {

// Reads stored values as floats. `from(i)` is the same reader, moved forward by i elements.
template <class Raw>
struct StoredValues {
  const Raw* at;
  MR_DEVICE_INLINE float operator[](unsigned i) const { return widen(at[i]); }
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
  MR_DEVICE_INLINE float operator[](unsigned i) const {
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
  MR_DEVICE_INLINE float of(float stored, int c) const {
    const float value = inner[c].of(stored);
    return log1p ? transformed(value, c) : value;
  }
  MR_DEVICE_INLINE float transformed(float value, int c) const { return outer[c].of(log1pf(value)); }
  // Brightness and contrast of a normalised value.
  MR_DEVICE_INLINE float adjusted(float value, int c, const Augmentation& move) const {
    const float lift = move.lift != 0 ? outer[c].offset * move.lift : 0;
    return value * move.gain + lift;
  }
};

// InputStrides for a kernel: where channel c of dst lies within a stored row.
struct StoredStrides {
  const InputStrides::Channel* each;  // null: channels are evenly spaced, and the two steps below apply
  int pixel_step, channel_step;
  MR_DEVICE_INLINE int first(int c) const { return each ? int(each[c].first) : c * channel_step; }
  MR_DEVICE_INLINE int step(int c) const { return each ? int(each[c].step) : pixel_step; }
};

template <class Raw, class T>
struct NormalizeContiguous {
  T* dst;
  const Raw* src;
  Scales scales;
  Divider by_channels;
  template <int n>
  MR_DEVICE_INLINE void at(std::int64_t i) const {
    const Pack<Raw, n> raw = *reinterpret_cast<const Pack<Raw, n>*>(src + i);
    const int channels = int(by_channels.divisor);
    int c = int(i);
    by_channels.split(c);
    float y[n];
    for (int k = 0; k < n; ++k) {
      y[k] = scales.of(widen(raw.v[k]), c);
      if (++c == channels) c = 0;
    }
    store(dst + i, y);
  }
};

}  // namespace millrace::cuda
