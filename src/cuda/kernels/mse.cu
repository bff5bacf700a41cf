// Mean squared error. Each block handles a part of a row; then one block adds up the parts.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/row_loss.hpp"

namespace millrace::cuda {
namespace {

constexpr std::int64_t part_count = 4096;  // elements of a part

template <class T, int n>
struct MsePart {
  const T* src;
  const float* target;
  T* diff;  // null: no gradient is needed
  RowLoss* sums;
  const StepState* state;
  std::int64_t features, parts;  // in a row

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t row = block.index() / parts, part = block.index() % parts;
    const std::int64_t begin = row * features + part * part_count,
                       end = row * features + (part + 1 < parts ? (part + 1) * part_count : features);
    const float factor = float(2 * double(state->loss_scale) * double(state->row_weight) / double(features));
    double sum = 0;
    for (std::int64_t i = begin + block.thread() * n; i < end; i += block.threads() * n) {
      float x[n], y[n];
      load(x, src + i);
      load(y, target + i);
      for (int k = 0; k < n; ++k) {
        x[k] -= y[k];
        sum += double(x[k]) * double(x[k]);
        x[k] *= factor;
      }
      if (diff) store(diff + i, x);
    }
    sum = block.sum(sum);
    if (block.thread() != 0) return;
    RowLoss result;
    result.loss = sum / double(features);
    result.counted = part == 0;
    sums[block.index()] = result;
  }
};

class Mse : public Op {
 public:
  Mse(const MseSpec& spec, const LaunchContext& context)
      : spec_(spec),
        context_(context),
        features_(spec.src.row_count()),
        parts_((features_ + part_count - 1) / part_count),
        sums_(spec.src[0] * parts_) {
    dispatch_dtype(spec_.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {std::size_t(sums_) * sizeof(RowLoss), 0, 0}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (features_ % pack_size<T> == 0)
        parts<T, pack_size<T>>(args);
      else
        parts<T, 1>(args);
    });
    add_row_losses(context_, args.state, static_cast<RowLoss*>(args.workspace), sums_);
  }
  void backward(const OpArgs&) override {}

 private:
  template <class T, int n>
  void parts(const OpArgs& args) const {
    T* diff = spec_.mode == Mode::train ? args.diff_src[0].as<T>() : nullptr;
    const std::int64_t longest = features_ < part_count ? features_ : part_count;
    launch(context_, sums_, even_threads(longest / n, 256), 0,
           MsePart<T, n>{args.src[0].as<T>(), args.src[1].as<float>(), diff, static_cast<RowLoss*>(args.workspace),
                         args.state, features_, parts_});
  }

  MseSpec spec_;
  LaunchContext context_;
  std::int64_t features_, parts_, sums_;  // parts: of a row; sums: of all rows
};

}  // namespace

std::unique_ptr<Op> make_mse(const MseSpec& spec, const LaunchContext& context) {
  return std::make_unique<Mse>(spec, context);
}

}  // namespace millrace::cuda
