// Helper kernels of the CUDA backend: accumulation of gradients into the flat buffer, conversion, and column sums for
// bias gradients. What kernels with 32-bit indices use.
#include <fmt/core.h>

#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace helpers_test {

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

struct AddUpInLastBlock {
  double *parts, *sums;  // sums: of each launch
  unsigned* counter;
  int launch;
  template <class Block>
  void operator()(Block& block) const {
    parts[block.index() * block.threads() + block.thread()] = double(block.index() + 1);
    if (!block.is_last(counter, unsigned(block.blocks()))) return;
    double sum = 0;
    for (std::int64_t b = 0; b < block.blocks(); ++b) sum += parts[b * block.threads() + block.thread()];
    if (sum = block.sum(sum); block.thread() == 0) sums[launch] += sum;
  }
};

TEST(Blocks, OneOfThemIsTheLastAndLeavesTheCounterZero) {
  unsigned counter = 0;
  for (const int blocks : {1, 2, 7, 40}) {
    std::vector<double> sums(3, 0.0);
    for (int n = 0; n < 3; ++n) {
      std::vector<double> parts(std::size_t(blocks) * 64, std::nan(""));
      cuda::launch(context, blocks, 64, 0, AddUpInLastBlock{parts.data(), sums.data(), &counter, n});
      EXPECT_EQ(counter, 0u);
    }
    EXPECT_EQ(sums, std::vector<double>(3, 64.0 * blocks * (blocks + 1) / 2)) << blocks;
  }
}

struct NoteOrder {
  std::vector<std::int64_t>* order;
  template <class Block>
  void operator()(Block& block) const {
    if (block.thread() == 0) order->push_back(block.index());
  }
};

TEST(Blocks, RunInAnotherOrderInEachLaunch) {
  std::vector<std::int64_t> first, second;
  cuda::launch(context, 50, 32, 0, NoteOrder{&first});
  cuda::launch(context, 50, 32, 0, NoteOrder{&second});
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

TEST(Indices, DividerDividesEveryIndex) {
  constexpr std::int64_t end = std::int64_t(1) << 31;
  for (const std::int64_t divisor : {1, 2, 3, 4, 7, 224, 1000, 50257, 65536, 1073741823, 1073741824, 2147483647}) {
    const cuda::Divider by(divisor);
    for (const std::int64_t near :
         {std::int64_t(0), divisor, 2 * divisor, 1000 * divisor, end / 2, end / divisor * divisor, end})
      for (std::int64_t n = std::max<std::int64_t>(near - 3, 0); n < std::min(near + 3, end); ++n) {
        int rest = int(n);
        ASSERT_EQ(by.split(rest), n / divisor) << n << " / " << divisor;
        ASSERT_EQ(rest, n % divisor) << n << " / " << divisor;
      }
  }
}

TEST(Indices, SlicesCoverTheElementsInWholeUnits) {
  for (const std::int64_t count : {0, 1, 23, 24, 25, 1000})
    for (const std::int64_t unit : {1, 8, 24, 200})
      for (const std::int64_t limit : {1, 100, 5000}) {
        std::int64_t next = 0;
        cuda::in_slices(count, unit, limit, [&](std::int64_t begin, std::int64_t length) {
          EXPECT_EQ(begin, next);
          EXPECT_GT(length, 0);
          EXPECT_LE(length, std::max(unit, limit));
          next = begin + length;
          EXPECT_TRUE(next == count || length % unit == 0);
        });
        EXPECT_EQ(next, count);
      }
}

TEST(Indices, SamplesBeyondThemAreRejected) {
  InputSpec s;
  s.src = {1, 1100, 1000, 1000, 1};
  try {
    backend().make(s);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::config);
    EXPECT_NE(std::string(e.what()).find("can index"), std::string::npos) << e.what();
  }
}

}  // namespace helpers_test
}  // namespace millrace
