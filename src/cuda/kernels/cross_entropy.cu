// Cross-entropy. Each block handles one row in three passes: the maximum, the sum of the exponentials, and the
// gradient. Between the passes the row stays in shared memory. A row that is too large for it is read again, usually
// from the L2 cache. Then one block adds up the losses of all rows.
#include <cmath>
#include <limits>

#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/half.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/row_loss.hpp"

namespace millrace::cuda {
namespace {

constexpr std::size_t max_cached_bytes = 40 << 10;  // so that several blocks fit on a multiprocessor
constexpr int max_threads = 512;

template <class T, int n>
struct CrossEntropyRow {
  const T* logits;
  const std::int32_t* labels;
  T* diff;  // null: no gradient is needed
  RowLoss* rows;
  const StepState* state;
  int classes;  // a multiple of n
  bool cached;  // the row fits into shared memory
  float smoothing;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t row = block.index(), base = row * classes;
    const int label = labels[row], packs = classes / n;
    const T* const x = logits + base;
    // Element k of pack p is at cache[k * packs + p]. Each thread reads only elements that it wrote itself.
    float* const cache = block.template shared<float>();
    float v[n];

    if (label < 0 || label >= classes) return skip_row(block, row, label);

    const float own = widen(x[label]);
    float maximum = -std::numeric_limits<float>::infinity();
    int rank = 0;  // classes ranked before the label: those with a larger logit, or an equal one and a smaller number
    for (int p = block.thread(); p < packs; p += block.threads()) {
      load(v, x + p * n);
      for (int k = 0; k < n; ++k) {
        maximum = v[k] > maximum ? v[k] : maximum;
        rank += v[k] > own || (v[k] == own && p * n + k < label);
        if (cached) cache[k * packs + p] = v[k];
      }
    }
    maximum = block.max(maximum);
    rank = block.sum(rank);

    double sum = 0, total = 0;
    for (int p = block.thread(); p < packs; p += block.threads()) {
      if (!cached) load(v, x + p * n);
      for (int k = 0; k < n; ++k) {
        if (cached) v[k] = cache[k * packs + p];
        if (smoothing > 0) total += double(v[k]);
        v[k] = expf(v[k] - maximum);
        sum += double(v[k]);
        if (cached) cache[k * packs + p] = v[k];
      }
    }
    sum = block.sum(sum);
    if (smoothing > 0) total = block.sum(total);
    const double kept = 1 - double(smoothing), uniform = double(smoothing) / double(classes);
    if (block.thread() == 0) {
      RowLoss result;
      result.loss = log(sum) - kept * (double(own) - double(maximum));
      if (smoothing > 0) result.loss -= uniform * (total - double(maximum) * double(classes));
      result.counted = 1;
      result.top1 = rank < 1 && own == own;
      result.top5 = rank < 5 && own == own;
      rows[row] = result;
    }
    if (!diff) return;

    const double scale = double(state->loss_scale) * double(state->row_weight), target = uniform + kept;
    const float factor = float(scale / sum), shift = float(scale * uniform);
    for (int p = block.thread(); p < packs; p += block.threads()) {
      if (!cached) load(v, x + p * n);
      for (int k = 0; k < n; ++k) {
        const float e = cached ? cache[k * packs + p] : expf(v[k] - maximum);
        v[k] = p * n + k == label ? float(scale * (double(e) / sum - target)) : e * factor - shift;
      }
      store(diff + base + p * n, v);
    }
  }

 private:
  // A row without a class: its gradient is zero. A negative label means that the row does not count. Any other label
  // that is no class is an error in the data: the loss becomes NaN, and nothing is read out of bounds.
  template <class Block>
  MR_DEVICE_INLINE void skip_row(Block& block, std::int64_t row, int label) const {
    float zeros[n];
    for (int k = 0; k < n; ++k) zeros[k] = 0;
    for (int p = block.thread(); diff && p < classes / n; p += block.threads())
      store(diff + row * classes + p * n, zeros);
    if (block.thread() != 0) return;
    RowLoss result;
    if (label >= 0) {
      result.loss = std::numeric_limits<double>::quiet_NaN();
      result.counted = 1;
    }
    rows[row] = result;
  }
};

class CrossEntropy : public Op {
 public:
  CrossEntropy(const CrossEntropySpec& spec, const LaunchContext& context)
      : spec_(spec), context_(context), rows_(spec.src[0]), classes_(spec.src.row_count()) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    if (classes_ < 1 || classes_ > std::numeric_limits<std::int32_t>::max())
      fail(Exit::config, "cross-entropy: input {} has no classes, or more classes than int32 labels can hold",
           spec_.src.str());
  }
  MemoryRequirements memory_requirements() const override { return {std::size_t(rows_) * sizeof(RowLoss), 0, 0}; }
  std::string implementation() const override { return "kernel"; }

  void forward(const OpArgs& args) override {
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (classes_ % pack_size<T> == 0)
        rows<T, pack_size<T>>(args);
      else
        rows<T, 1>(args);
    });
    add_row_losses(context_, args.state, static_cast<RowLoss*>(args.workspace), rows_);
  }
  void backward(const OpArgs&) override {}

 private:
  template <class T, int n>
  void rows(const OpArgs& args) const {
    const std::size_t bytes = std::size_t(classes_) * sizeof(float);
    const bool cached = bytes <= max_cached_bytes;
    T* diff = spec_.mode == Mode::train ? args.diff_src[0].as<T>() : nullptr;
    launch<max_threads, 2>(context_.stream, rows_, even_threads(classes_ / n, max_threads), cached ? bytes : 0,
                           CrossEntropyRow<T, n>{args.src[0].as<T>(), args.src[1].as<std::int32_t>(), diff,
                                                 static_cast<RowLoss*>(args.workspace), args.state, int(classes_),
                                                 cached, spec_.label_smoothing});
  }

  CrossEntropySpec spec_;
  LaunchContext context_;
  std::int64_t rows_, classes_;
};

}  // namespace

std::unique_ptr<Op> make_cross_entropy(const CrossEntropySpec& spec, const LaunchContext& context) {
  return std::make_unique<CrossEntropy>(spec, context);
}

}  // namespace millrace::cuda
