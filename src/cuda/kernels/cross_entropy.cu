// Cross-entropy: a block for each row, which stays in shared memory between the maximum, the sum of exponentials and
// the gradient where it fits (else it is read again, from the second-level cache); then one block adds the rows up.
#include <cmath>
#include <limits>

#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/row_loss.hpp"
#include "cuda/runtime/dispatch_dtype.hpp"
#include "cuda/runtime/half.hpp"

namespace millrace::cuda {
namespace {

constexpr std::size_t most_cached_bytes = 40 << 10;  // several blocks at a time
constexpr int most_threads = 512;

template <class T, int n>
struct CrossEntropyRow {
  const T* logits;
  const std::int32_t* labels;
  T* diff;  // null: not wanted
  RowLoss* rows;
  const StepState* state;
  int classes;  // a multiple of n
  bool cached;
  float smoothing;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t row = block.index(), base = row * classes;
    const int label = labels[row], packs = classes / n;
    const T* const x = logits + base;
    // Element k of pack p is cache[k * packs + p]; a thread reads only what it wrote.
    float* const cache = block.template shared<float>();
    float v[n];

    // A label beyond the classes is a defect of the data: the loss says so by a NaN, without reading out of bounds.
    if (label < 0 || label >= classes) {
      for (int k = 0; k < n; ++k) v[k] = 0;
      for (int p = block.thread(); diff && p < packs; p += block.threads()) store(diff + base + p * n, v);
      RowLoss result;
      if (label >= 0) result.loss = std::numeric_limits<double>::quiet_NaN(), result.counted = 1;
      if (block.thread() == 0) rows[row] = result;
      return;
    }

    const float own = widen(x[label]);
    float most = -std::numeric_limits<float>::infinity();
    int rank = 0;  // classes before the label: greater, or equal and lower
    for (int p = block.thread(); p < packs; p += block.threads()) {
      load(v, x + p * n);
      for (int k = 0; k < n; ++k) {
        most = v[k] > most ? v[k] : most;
        rank += v[k] > own || (v[k] == own && p * n + k < label);
        if (cached) cache[k * packs + p] = v[k];
      }
    }
    most = block.max(most), rank = block.sum(rank);

    double sum = 0, total = 0;
    for (int p = block.thread(); p < packs; p += block.threads()) {
      if (!cached) load(v, x + p * n);
      for (int k = 0; k < n; ++k) {
        if (cached) v[k] = cache[k * packs + p];
        if (smoothing > 0) total += double(v[k]);
        v[k] = expf(v[k] - most);
        sum += double(v[k]);
        if (cached) cache[k * packs + p] = v[k];
      }
    }
    sum = block.sum(sum);
    if (smoothing > 0) total = block.sum(total);
    const double kept = 1 - double(smoothing), uniform = double(smoothing) / double(classes);
    if (block.thread() == 0) {
      RowLoss result;
      result.loss = log(sum) - kept * (double(own) - double(most));
      if (smoothing > 0) result.loss -= uniform * (total - double(most) * double(classes));
      result.counted = 1;
      result.top1 = rank < 1 && own == own, result.top5 = rank < 5 && own == own;
      rows[row] = result;
    }
    if (!diff) return;

    const double scale = double(state->loss_scale) * double(state->row_weight), target = uniform + kept;
    const float factor = float(scale / sum), shift = float(scale * uniform);
    for (int p = block.thread(); p < packs; p += block.threads()) {
      if (!cached) load(v, x + p * n);
      for (int k = 0; k < n; ++k) {
        const float e = cached ? cache[k * packs + p] : expf(v[k] - most);
        v[k] = p * n + k == label ? float(scale * (double(e) / sum - target)) : e * factor - shift;
      }
      store(diff + base + p * n, v);
    }
  }
};

class CrossEntropy : public Op {
 public:
  CrossEntropy(const CrossEntropySpec& spec, const LaunchContext& context)
      : spec_(spec), context_(context), rows_(spec.src[0]), classes_(spec.src.row_count()) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    if (classes_ < 1 || classes_ > std::numeric_limits<std::int32_t>::max())
      fail(Exit::config, "cross-entropy: input ", spec_.src.str(), " has no classes, or more than labels can name");
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
    const bool cached = bytes <= most_cached_bytes;
    T* diff = spec_.mode == Mode::train ? args.diff_src[0].as<T>() : nullptr;
    launch(context_.stream, rows_, even_threads(classes_ / n, most_threads), cached ? bytes : 0,
           CrossEntropyRow<T, n>{args.src[0].as<T>(), args.src[1].as<std::int32_t>(), diff,
                                 static_cast<RowLoss*>(args.workspace), args.state, int(classes_), cached,
                                 spec_.label_smoothing});
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
