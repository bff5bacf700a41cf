// Column sums in two stages. First, each block sums a part of the rows into the workspace. Then the same kernel sums
// the parts. The order of the additions depends only on the shape, the type and the number of multiprocessors.
#include <algorithm>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

constexpr int threads = 256;
constexpr int max_width = 32;  // the largest number of packs of one row that a block reads

// The threads of a block form a grid of `wide` packs by `high` rows; the remaining threads are idle. Block
// tile + tiles * part sums wide * n columns, from column tile * wide * n on, over the rows of the part, into
// sum[part, column].
template <class T, int n>
struct SumColumns {
  float* sum;
  const T* values;
  std::int64_t rows, columns, part_rows, tiles;
  int wide, high;
  bool add;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t part = block.index() / tiles, tile = block.index() - part * tiles;
    const int x = block.thread() % wide, y = block.thread() / wide;
    const std::int64_t column = (tile * wide + x) * n;
    const bool mine = y < high && column < columns;
    float total[n];
    for (int k = 0; k < n; ++k) total[k] = 0;
    if (mine) {
      const std::int64_t part_end = (part + 1) * part_rows, end = part_end < rows ? part_end : rows;
      const T* from = values + column;
      std::int64_t r = part * part_rows + y;
      for (; r + 3 * high < end; r += 4 * high) {  // four loads in flight
        float v[4][n];
        for (int j = 0; j < 4; ++j) load(v[j], from + (r + j * high) * columns);
        for (int j = 0; j < 4; ++j)
          for (int k = 0; k < n; ++k) total[k] += v[j][k];
      }
      for (; r < end; r += high) {
        float v[n];
        load(v, from + r * columns);
        for (int k = 0; k < n; ++k) total[k] += v[k];
      }
    }
    float* shared = block.template shared<float>() + block.thread();
    for (int k = 0; k < n; ++k) shared[k * block.threads()] = total[k];
    block.sync();
    for (int left = high; left > 1;) {
      const int half = (left + 1) / 2;
      if (mine && y + half < left)
        for (int k = 0; k < n; ++k) shared[k * block.threads()] = total[k] += shared[k * block.threads() + half * wide];
      block.sync();
      left = half;
    }
    if (!mine || y > 0) return;
    float* to = sum + part * columns + column;
    for (int k = 0; k < n; ++k) to[k] = add ? to[k] + total[k] : total[k];
  }
};

std::int64_t parts_of(std::int64_t rows, std::int64_t columns, const LaunchContext& context) {
  const std::int64_t tiles = (columns + 255) / 256, max_blocks = std::int64_t(context.multiprocessors) * 8;
  return std::clamp<std::int64_t>(max_blocks / std::max<std::int64_t>(1, tiles), 1,
                                  std::max<std::int64_t>(1, rows / 64));
}

template <class T, int n>
void sum_columns(const LaunchContext& context, float* sum, const T* values, std::int64_t rows, std::int64_t columns,
                 std::int64_t parts, bool add) {
  const std::int64_t packs = columns / n;
  if (packs == 0) return;
  const int wide = int(std::min<std::int64_t>(packs, max_width)), high = threads / wide;
  const std::int64_t tiles = (packs + wide - 1) / wide, part_rows = (rows + parts - 1) / parts;
  launch(context, tiles * parts, threads, threads * n * sizeof(float),
         SumColumns<T, n>{sum, values, rows, columns, part_rows, tiles, wide, high, add});
}

template <class T>
void sum_columns(const LaunchContext& context, float* sum, const T* values, std::int64_t rows, std::int64_t columns,
                 std::int64_t parts, bool add) {
  constexpr int n = pack_size<T>;
  if (columns % n == 0 && aligned(values, n))
    sum_columns<T, n>(context, sum, values, rows, columns, parts, add);
  else
    sum_columns<T, 1>(context, sum, values, rows, columns, parts, add);
}

}  // namespace

std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns, const LaunchContext& context) {
  const std::int64_t parts = parts_of(rows, columns, context);
  return parts > 1 ? std::size_t(parts * columns) * sizeof(float) : 0;
}

void column_sums(const LaunchContext& context, float* sum, const RowMajorMatrix& matrix, GradMode mode,
                 void* workspace) {
  const std::int64_t rows = matrix.rows, columns = matrix.columns;
  const std::int64_t parts = parts_of(rows, columns, context);
  const bool add = mode == GradMode::add;
  float* part_sums = static_cast<float*>(workspace);
  dispatch_dtype(matrix.dtype, [&](auto zero) {
    const auto* from = static_cast<const decltype(zero)*>(matrix.values);
    sum_columns(context, parts > 1 ? part_sums : sum, from, rows, columns, parts, parts > 1 ? false : add);
  });
  if (parts > 1) sum_columns(context, sum, part_sums, parts, columns, 1, add);
}

}  // namespace millrace::cuda
