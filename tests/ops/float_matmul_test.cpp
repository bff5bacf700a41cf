// Own products against sums in double. Other processors use oneDNN, so here they are called directly.
#include "cpu/matmul/float_matmul.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cpu/common/parallel.hpp"
#include "cpu/matmul/amx_tiles.hpp"
#include "cpu/matmul/half_matmul.hpp"
#include "cpu/matmul/split_matmul.hpp"
#include "cpu/matmul/tile_product.hpp"
#include "cpu/onednn/onednn.hpp"

namespace millrace {
namespace float_matmul_test {

using cpu::FloatMatmul, cpu::HalfMatmul, cpu::MatmulShape, cpu::SplitMatmul;

std::vector<float> random_floats(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& v : out) v = values(engine);
  return out;
}

template <class Matmul>
struct Product {
  MatmulShape shape;
  Activation activation;
  bool add, bias;
  std::vector<float> a = random_floats(shape.rows * shape.depth, 1), b = random_floats(shape.depth * shape.columns, 2),
                     biases = random_floats(shape.columns, 3), old = random_floats(shape.rows * shape.dst_width, 4);

  std::vector<float> run(int threads) const {
    std::vector<float> dst = old;
    const Matmul product(shape, activation, add, threads);
    const std::size_t bytes = product.scratch_bytes() + 64;
    std::vector<std::byte> scratch(bytes);
    void* aligned = scratch.data();
    std::size_t space = bytes;
    std::align(64, product.scratch_bytes(), aligned, space);
    product.run(a.data(), b.data(), bias ? biases.data() : nullptr, dst.data(), aligned);
    return dst;
  }

  double expected(std::int64_t row, std::int64_t column) const {
    double sum = add ? old[std::size_t(row * shape.dst_width + column)] : bias ? biases[std::size_t(column)] : 0;
    for (std::int64_t k = 0; k < shape.depth; ++k)
      sum += double(a[std::size_t(row * shape.a.row + k * shape.a.column)]) *
             b[std::size_t(k * shape.b.row + column * shape.b.column)];
    return activation == Activation::relu && sum < 0 ? 0 : sum;
  }

  void check() const {
    const std::vector<float> dst = run(1);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column)
        ASSERT_NEAR(dst[std::size_t(row * shape.dst_width + column)], expected(row, column),
                    2e-7 * std::sqrt(double(shape.depth)) * 8)
            << "row " << row << ", column " << column;
      for (std::int64_t column = shape.columns; column < shape.dst_width; ++column)
        ASSERT_EQ(dst[std::size_t(row * shape.dst_width + column)], old[std::size_t(row * shape.dst_width + column)]);
    }
    const int threads = cpu::thread_count();
    cpu::set_thread_count(3);
    EXPECT_EQ(run(3), dst);
    cpu::set_thread_count(threads);
  }
};

// HalfMatmul with operands in float32 that have the values of bf16.
class RoundedMatmul {
 public:
  RoundedMatmul(const MatmulShape& shape, Activation, bool add, int threads)
      : shape_(shape), of_(shape, add, threads) {}
  std::size_t scratch_bytes() const { return of_.scratch_bytes(); }
  void run(const float* a, const float* b, const float*, float* dst, void* scratch) const {
    of_.run(halves(a, shape_.a.column).data(), halves(b, shape_.b.row).data(), nullptr, dst, scratch);
  }

 private:
  std::vector<bf16> halves(const float* from, std::int64_t stride) const {
    return {from, from + shape_.depth * stride};
  }

  MatmulShape shape_;
  HalfMatmul of_;
};

// Rows, depth and columns beside and beyond the sizes of tiles and blocks. With three threads, the larger ones share a
// packed operand: of several depths, and of more columns than a block has.
template <class Matmul>
void check_products() {
  constexpr std::int64_t sizes[][3] = {{1, 1, 1},     {6, 16, 16},    {5, 8, 15},      {7, 9, 17},
                                       {37, 19, 21},  {96, 256, 64},  {97, 257, 33},   {200, 601, 530},
                                       {13, 40, 600}, {200, 40, 600}, {230, 601, 200}, {540, 257, 530}};
  for (const auto& [rows, depth, columns] : sizes)
    for (const bool turned_a : {false, true})
      for (const bool turned_b : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << depth << " x " << columns << (turned_a ? ", a turned" : "")
                                        << (turned_b ? ", b turned" : ""));
        const cpu::MatrixStrides a = turned_a ? cpu::MatrixStrides{1, rows} : cpu::MatrixStrides{depth, 1},
                                 b = turned_b ? cpu::MatrixStrides{1, depth} : cpu::MatrixStrides{columns, 1};
        const MatmulShape shape{rows, columns, depth, a, b, columns + 3};
        Product<Matmul>{shape, Activation::none, turned_a, false}.check();
        Product<Matmul>{shape, turned_a ? Activation::none : Activation::relu, false, true}.check();
      }
}

TEST(FloatMatmul, MatchesSumsInDouble) {
  if (!FloatMatmul::available()) GTEST_SKIP() << "this processor has no AVX2";
  check_products<FloatMatmul>();
}

TEST(SplitMatmul, MatchesSumsInDouble) {
  if (!cpu::amx::permitted()) GTEST_SKIP() << "this processor has no AMX";
  check_products<SplitMatmul>();
}

// Sizes beside and beyond those of tiles and panels. Values of bf16 have few digits, so the sums are as exact as above.
TEST(HalfMatmul, MatchesSumsInDouble) {
  if (!cpu::amx::permitted()) GTEST_SKIP() << "this processor has no AMX";
  constexpr std::int64_t sizes[][3] = {{1, 1, 1},     {32, 32, 32},    {5, 8, 15},      {33, 31, 65},   {96, 512, 64},
                                       {70, 513, 90}, {1060, 530, 40}, {40, 530, 1060}, {520, 515, 520}};
  for (const auto& [rows, depth, columns] : sizes)
    for (const bool add : {false, true}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << depth << " x " << columns);
      const MatmulShape shape{rows, columns, depth, {1, rows + 2}, {columns + 1, 1}, columns + 3};
      Product<RoundedMatmul> product{shape, Activation::none, add, false};
      product.a = random_floats((rows + 2) * depth, 1);
      product.b = random_floats((columns + 1) * depth, 2);
      for (auto* values : {&product.a, &product.b})
        for (float& v : *values) v = float(bf16(v));
      product.check();
    }
}

// Which products of bf16 matrices it computes.
TEST(HalfMatmul, ComputesGradientsOfWeights) {
  using namespace cpu::onednn;
  if (!has_bf16()) GTEST_SKIP() << "this processor has no bf16";
  constexpr std::int64_t rows = 64, depth = 128, columns = 96;
  const desc src = strided({rows, depth}, DType::bf16, {1, rows}), dst = plain({rows, columns}, DType::f32);
  const desc weight = plain({depth, columns}, DType::bf16), bias = plain({1, columns}, DType::f32);
  const auto uses = [](const cpu::onednn::Call& call) { return call.name().starts_with("half_matmul"); };
  const bool amx = has_amx() && cpu::amx::permitted();
  EXPECT_EQ(uses(matmul_call(src, weight, {}, dst)), amx);
  EXPECT_EQ(uses(matmul_call(src, weight, {}, dst, Activation::none, true)), amx);
  EXPECT_FALSE(uses(matmul_call(src, weight, bias, dst)));
  EXPECT_FALSE(uses(matmul_call(src, weight, {}, dst, Activation::relu)));
  EXPECT_FALSE(uses(matmul_call(src, weight, {}, plain({rows, columns}, DType::bf16))));
  EXPECT_FALSE(uses(matmul_call(plain({rows, depth}, DType::bf16), weight, {}, dst)));
  EXPECT_FALSE(
      uses(matmul_call(strided({63, depth}, DType::bf16, {1, 63}), weight, {}, plain({63, columns}, DType::f32))));
  EXPECT_FALSE(
      uses(matmul_call(strided({rows, 127}, DType::bf16, {1, rows}), plain({127, columns}, DType::bf16), {}, dst)));
}

// Six products of parts are at least as exact as float32 multiplications, for numbers of very different sizes too.
TEST(SplitMatmul, IsAsExactAsFloat32) {
  if (!cpu::amx::permitted()) GTEST_SKIP() << "this processor has no AMX";
  constexpr std::int64_t rows = 64, depth = 256, columns = 96;
  Product<SplitMatmul> product{
      {rows, columns, depth, {depth, 1}, {columns, 1}, columns}, Activation::none, false, false};
  for (std::size_t i = 0; i < product.a.size(); ++i) product.a[i] = std::ldexp(product.a[i], int(i % 41) - 20);
  const std::vector<float> dst = product.run(1);
  double split = 0, multiplied = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      float sum = 0;
      for (std::int64_t k = 0; k < depth; ++k)
        sum += product.a[std::size_t(row * depth + k)] * product.b[std::size_t(k * columns + column)];
      const double expected = product.expected(row, column);
      split += std::pow(dst[std::size_t(row * columns + column)] - expected, 2);
      multiplied += std::pow(sum - expected, 2);
    }
  EXPECT_LE(split, multiplied);
  EXPECT_GT(split, 0);
}

// Every number of rows and columns of a tile.
TEST(TileKernels, MatchSumsInDouble) {
  for (const cpu::matmul::TileKernels* tiles : {&cpu::matmul::narrow_tiles, &cpu::matmul::wide_tiles}) {
    if (!FloatMatmul::available() || (tiles->rows > 6 && !__builtin_cpu_supports("avx512f"))) continue;
    SCOPED_TRACE(tiles->name);
    constexpr std::int64_t depth = 19;
    const std::vector<float> a = random_floats(depth * tiles->rows, 1), b = random_floats(depth * tiles->columns, 2);
    const std::int64_t width = tiles->columns + 3;
    for (std::int64_t rows = 1; rows <= tiles->rows; ++rows)
      for (std::int64_t count = 1; count <= tiles->columns; ++count) {
        std::vector<float> packed(std::size_t(depth * tiles->columns), -1), dst = random_floats(rows * width, 3);
        const std::vector<float> old = dst;
        tiles->pack(packed.data(), b.data(), {count, 1}, depth, count);
        const auto start = count % 2 ? cpu::matmul::Start::zero : cpu::matmul::Start::dst;
        tiles->multiply({a.data(), {1, rows}, rows, depth}, packed.data(), start, dst.data(), width, count);
        for (std::int64_t i = 0; i < rows * width; ++i) {
          double sum = i % width >= count || count % 2 == 0 ? old[std::size_t(i)] : 0;
          for (std::int64_t k = 0; k < depth && i % width < count; ++k)
            sum += double(a[std::size_t(i / width + k * rows)]) * b[std::size_t(k * count + i % width)];
          ASSERT_NEAR(dst[std::size_t(i)], sum, 1e-5) << rows << " rows, " << count << " columns, element " << i;
        }
      }
  }
}

}  // namespace float_matmul_test
}  // namespace millrace
