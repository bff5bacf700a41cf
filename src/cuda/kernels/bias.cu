#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/kernels/conv_kernels.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

template <class T, int n>
struct AddBias {  // index i is a group of n channels
  T* values;
  const float* bias;
  std::uint32_t groups;  // in a row
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    float x[n];
    load(x, values + i * n);
    const float* b = bias + std::uint32_t(i) % groups * n;
    for (int k = 0; k < n; ++k) x[k] += b[k];
    store(values + i * n, x);
  }
};

}  // namespace

void add_bias(const LaunchContext& context, void* values, DType dtype, const float* bias, std::int64_t rows,
              std::int64_t channels) {
  dispatch_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int n = pack_size<T>;
    const bool packs = channels % n == 0;
    const std::int64_t groups = packs ? channels / n : channels;
    MR_CHECK(rows * groups <= std::int64_t(UINT32_MAX));
    if (packs)
      for_each(context, rows * groups, AddBias<T, n>{static_cast<T*>(values), bias, std::uint32_t(groups)});
    else
      for_each(context, rows * groups, AddBias<T, 1>{static_cast<T*>(values), bias, std::uint32_t(groups)});
  });
}

namespace {

// src/ops/transposed_conv.cpp has the rest.
class TransposedConv : public TransposedConvOp {
 public:
  TransposedConv(const TransposedConvSpec& spec, const LaunchContext& context, std::unique_ptr<Op> conv)
      : TransposedConv(spec, context, std::move(conv), spec.dst().count() / spec.out_channels) {}

 private:
  TransposedConv(const TransposedConvSpec& spec, const LaunchContext& context, std::unique_ptr<Op> conv,
                 std::int64_t rows)
      : TransposedConvOp(spec, std::move(conv), spec.bias ? column_sums_bytes(rows, spec.out_channels, context) : 0),
        context_(context),
        dtype_(spec.dtype),
        rows_(rows),
        channels_(spec.out_channels) {}

  void add_bias(const OpArgs& args) override {
    cuda::add_bias(context_, args.dst.data, dtype_, args.weight[1].as<float>(), rows_, channels_);
  }
  void sum_bias_gradient(const OpArgs& args) override {
    column_sums(context_, args.diff_weight[1].as<float>(), {args.diff_dst.data, dtype_, rows_, channels_}, args.mode[1],
                args.workspace);
  }

  LaunchContext context_;
  DType dtype_;
  std::int64_t rows_, channels_;
};

}  // namespace

std::unique_ptr<Op> make_transposed_conv(const TransposedConvSpec& spec, const LaunchContext& context,
                                         std::unique_ptr<Op> conv) {
  return std::make_unique<TransposedConv>(spec, context, std::move(conv));
}

}  // namespace millrace::cuda
