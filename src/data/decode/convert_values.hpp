// Conversions of stored values to the types that a training step takes. Private to the data room.
#pragma once
#include <cstddef>
#include <cstdint>

#include "millrace/base/transform.hpp"
#include "millrace/base/types.hpp"

namespace millrace {

// Reverses the bytes of each of `count` elements of 2, 4 or 8 bytes, in place.
void swap_bytes(void* data, std::size_t count, std::size_t element_bytes);
// Integer labels of any width to int32. Labels that equal `ignored` become -1. Error(data) for a label that does not
// fit.
void labels_to_int32(const void* from, DType type, std::int64_t count, std::int64_t ignored, std::int32_t* to);
void targets_to_float(const void* from, DType type, std::int64_t count, float* to);
double value_at(const void* from, DType type, std::int64_t i);

// value = transform(stored * scale + offset)
struct ValueTransform {
  double scale = 1, offset = 0;
  Transform transform = Transform::none;
};

// The values of one sample, or of one part of a concatenated sample.
struct StoredValues {
  const void* data;
  DType dtype;
  std::int64_t count;  // of values, all channels together
  std::int64_t channels;
  bool channels_first;
};

// Adds the sample's transformed values to sums[channel] and their squares to sums_of_squares[channel].
void add_to_sums(const StoredValues&, const ValueTransform&, double* sums, double* sums_of_squares);

}  // namespace millrace
