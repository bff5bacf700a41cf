// Helper kernels of the CUDA backend: accumulation of gradients into the flat buffer, conversion, and column sums for
// bias gradients.
#include <fmt/core.h>

#include "cuda/kernels/kernels.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace {

using namespace test;

const cuda::LaunchContext context{nullptr, 2};

// `count` elements that begin `skip` elements after the beginning of an aligned buffer. The rest of the buffer must not
// change.
struct Vector {
  Vector(DType dtype, std::int64_t count, std::int64_t skip, const Values& values)
      : buffer(device(), MemoryKind::device, std::size_t(count + skip + 9) * size_of(dtype)) {
    std::memset(buffer.data(), 0x3c, buffer.bytes());
    view.data = buffer.as<std::byte>() + std::size_t(skip) * size_of(dtype);
    view.dtype = dtype;
    view.shape = {count};
    if (!values.empty()) put(view, values);
  }
  void expect_untouched_outside() const {
    const auto* begin = buffer.as<std::byte>();
    const auto* data = view.as<std::byte>();
    for (const auto* b = begin; b < begin + buffer.bytes(); ++b)
      ASSERT_TRUE(int(*b) == 0x3c || (b >= data && b < data + view.bytes())) << b - begin;
  }
  Buffer buffer;
  Tensor view;
};

constexpr DType types[] = {DType::f32, DType::bf16, DType::f16};

TEST(Accumulate, WritesOrAddsForAnyAlignment) {
  for (const DType dtype : types)
    for (const std::int64_t count : {0, 1, 7, 64, 40003})
      for (const std::int64_t skip : {0, 1, 4})
        for (const GradMode mode : {GradMode::write, GradMode::add}) {
          const Vector src(dtype, count, skip, random_values(count, 1));
          const Vector dst(DType::f32, count, 4 - skip, random_values(count, 2));
          const Values x = get(src.view), before = get(dst.view);
          cuda::accumulate(context, dst.view.as<float>(), src.view.data, dtype, count, mode);
          Values expected = x;
          if (mode == GradMode::add)
            for (std::size_t i = 0; i < x.size(); ++i) expected[i] = double(float(before[i]) + float(x[i]));
          EXPECT_EQ(get(dst.view), expected) << name_of(dtype) << " " << count << " from " << skip;
          dst.expect_untouched_outside();
        }
}

TEST(Convert, ConvertsEveryPairForAnyAlignment) {
  for (const DType from : types)
    for (const DType to : types)
      for (const std::int64_t skip : {0, 1, 4}) {
        const std::int64_t count = 4013;
        const Vector src(from, count, skip, random_values(count, 1)), dst(to, count, 4 - skip, {});
        cuda::convert(context, dst.view.data, to, src.view.data, from, count);
        const Vector expected(to, count, 0, get(src.view));  // rounded on the host
        EXPECT_EQ(get(dst.view), get(expected.view)) << name_of(from) << " to " << name_of(to) << " from " << skip;
        dst.expect_untouched_outside();
      }
}

TEST(RowSums, MatchReferenceInEveryShape) {
  struct Size {
    std::int64_t rows, columns;
  };
  for (const DType dtype : types)
    for (const Size size :
         {Size{1, 1}, {5, 3}, {0, 4}, {64, 1000}, {700, 10}, {3001, 1}, {2050, 64}, {1025, 259}, {130, 2056}})
      for (const std::int64_t skip : {0, 1})
        for (const GradMode mode : {GradMode::write, GradMode::add}) {
          const std::int64_t count = size.rows * size.columns;
          const Vector src(dtype, count, skip, random_values(count, 1));
          const Vector sum(DType::f32, size.columns, skip, random_values(size.columns, 2));
          const std::size_t bytes = cuda::column_sums_bytes(size.rows, size.columns, context);
          const Vector scratch(DType::u8, std::int64_t(bytes), 0, {});
          const Values x = get(src.view);
          Values expected = get(sum.view);
          if (mode == GradMode::write) expected.assign(expected.size(), 0);
          for (std::size_t i = 0; i < x.size(); ++i) expected[i % expected.size()] += x[i];
          cuda::column_sums(context, sum.view.as<float>(), {src.view.data, dtype, size.rows, size.columns}, mode,
                            scratch.view.data);
          // float32 sums in a tree are rounded a few times, and partial sums may be larger than the result.
          expect_close(get(sum.view), expected, 2e-6, fmt::format("{} {}x{}", name_of(dtype), size.rows, size.columns));
          sum.expect_untouched_outside();
          scratch.expect_untouched_outside();
        }
}

}  // namespace
}  // namespace millrace
