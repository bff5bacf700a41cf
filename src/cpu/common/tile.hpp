// Arithmetic is in float for every storage type. Loops run over tiles that stay in the first-level cache. float32
// tensors are used in place, and 16-bit tensors are converted through a tile. So kernels are plain functions over
// floats, which MR_TARGET_CLONES compiles for several instruction sets.
#pragma once
#include "cpu/common/half.hpp"
#include "cpu/common/parallel.hpp"

namespace millrace::cpu {

constexpr std::int64_t tile_count = 2048;

struct alignas(64) Tile {
  float v[tile_count];
  operator float*() { return v; }
};

inline std::byte* element(const Tensor& t, std::int64_t index) {
  return t.as<std::byte>() + std::size_t(index) * size_of(t.dtype);
}

// `count` elements from `begin` on, as floats: in place, or converted into `tile`.
inline const float* read_floats(const Tensor& t, std::int64_t begin, std::int64_t count, float* tile) {
  if (t.dtype == DType::f32) return t.as<float>() + begin;
  to_float(tile, element(t, begin), t.dtype, count);
  return tile;
}

// Where to compute a result: in place, or in `tile`, which write_floats() stores afterwards.
inline float* float_target(const Tensor& t, std::int64_t begin, float* tile) {
  return t.dtype == DType::f32 ? t.as<float>() + begin : tile;
}
inline void write_floats(const Tensor& t, std::int64_t begin, std::int64_t count, const float* tile) {
  if (t.dtype != DType::f32) from_float(element(t, begin), t.dtype, tile, count);
}

// dst[i] = a[i] + b[i], dst[i] = a[i] * b[i], and sum[i] += a[i] * b[i]. dst may be a or b.
void add(float* dst, const float* a, const float* b, std::int64_t n);
void multiply(float* dst, const float* a, const float* b, std::int64_t n);
void add_products(float* __restrict sum, const float* __restrict a, const float* __restrict b, std::int64_t n);

// sum = (write) or sum += (add) the sums of the columns of a matrix in float32 or bf16, row by row. So their bits do
// not depend on the number of threads.
void sum_columns(float* sum, const Tensor& matrix, GradMode);

// Calls body(begin, n) for each tile of [0, count), on all threads. Tiles begin at multiples of tile_count.
template <class Body>
void parallel_tiles(std::int64_t count, const Body& body) {
  parallel_ranges(count, 8 * tile_count, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += tile_count) body(begin, std::min(tile_count, end - begin));
  });
}

inline void parallel_copy(const Tensor& to, const Tensor& from) {
  if (to.data == from.data) return;
  parallel_ranges(from.count(), 8 * tile_count, [&](std::int64_t begin, std::int64_t end) {
    std::copy(element(from, begin), element(from, end), element(to, begin));
  });
}

}  // namespace millrace::cpu
