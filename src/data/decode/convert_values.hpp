// Conversions of what files hold into what the step takes. Private to the data room.
#pragma once
#include <cstddef>
#include <cstdint>

#include "millrace/base/transform.hpp"
#include "millrace/base/types.hpp"

namespace millrace {

void swap_bytes(void* data, std::size_t count, std::size_t element_bytes);
// Integer labels of any width -> int32; Error(data) past int32.
void labels_to_int32(const void* from, DType type, std::int64_t count, std::int32_t* to);
void targets_to_float(const void* from, DType type, std::int64_t count, float* to);
double value_at(const void* from, DType type, std::int64_t i);
struct ValueTransform {  // what is stored: transform(stored * scale + offset)
  double scale = 1, offset = 0;
  Transform transform = Transform::none;
};
// Adds one sample of `values` values, and their squares, to the sums of their channels.
void add_to_sums(const void* sample, DType type, std::int64_t values, std::int64_t channels, bool channels_first,
                 const ValueTransform&, double* sums, double* sums_of_squares);

}  // namespace millrace
