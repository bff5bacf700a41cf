// The small kernels that the convolution uses besides cuDNN: adding a bias, and padding channels.
#include <gtest/gtest.h>

#include "cuda/kernels/conv_kernels.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace copy_channels_test {

using namespace test;

const cuda::LaunchContext context{nullptr, 1};

struct Memory {
  Memory(const Shape& shape, DType dtype, const Values& v) {
    tensor.shape = shape;
    tensor.dtype = dtype;
    buffer = Buffer(device(), MemoryKind::device, tensor.bytes());
    tensor.data = buffer.data();
    put(tensor, v);
  }
  cuda::Channels channels() const { return {tensor.data, tensor.dtype, tensor.shape[-1]}; }
  Tensor tensor;
  Buffer buffer;
};

TEST(ConvKernels, BiasIsAddedToEveryRow) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t channels : {1, 7, 24}) {
      const Shape shape{600, channels};
      Memory values(shape, dtype, random_values(shape.count(), 1));
      const Memory bias({channels}, DType::f32, random_values(channels, 2));
      Values expected = get(values.tensor);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += get(bias.tensor)[i % std::size_t(channels)];
      cuda::add_bias(context, values.tensor.data, dtype, bias.tensor.as<float>(), shape[0], channels);
      expect_close(get(values.tensor), expected, Tolerance{1e-7, 4e-3, 5e-4}.of(dtype), "sum");
    }
}

TEST(ConvKernels, PaddingChannelsAreZeroAndAreRemovedAgain) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [narrow, wide] : {std::pair(1, 4), std::pair(3, 4), std::pair(3, 8), std::pair(17, 24)}) {
      const std::int64_t rows = 301;
      const Memory from({rows, narrow}, dtype, random_values(rows * narrow, 1));
      Memory to({rows, wide}, dtype, Values(std::size_t(rows * wide), NAN));
      cuda::copy_channels(context, to.channels(), from.channels(), rows);
      const Values source = get(from.tensor), padded = get(to.tensor);
      for (std::int64_t i = 0; i < rows * wide; ++i)
        ASSERT_EQ(padded[std::size_t(i)], i % wide < narrow ? source[std::size_t(i / wide * narrow + i % wide)] : 0.0);

      Memory back({rows, narrow}, DType::f32, Values(std::size_t(rows * narrow), NAN));
      cuda::copy_channels(context, back.channels(), to.channels(), rows, GradMode::write);
      EXPECT_EQ(get(back.tensor), source);
      cuda::copy_channels(context, back.channels(), to.channels(), rows, GradMode::add);
      Values twice = source;
      for (double& v : twice) v *= 2;
      EXPECT_EQ(get(back.tensor), twice);
    }
}

}  // namespace copy_channels_test
}  // namespace millrace
