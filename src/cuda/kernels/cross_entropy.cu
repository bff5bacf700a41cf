// Cross-entropy. Each block handles one row in three passes: the maximum, the sum of the exponentials, and the
// gradient. Between the passes the row stays in shared memory. A row that is too large for it is read again, usually
// from the L2 cache. Then one block adds up the losses of all rows.
#include <algorithm>
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

// A row need not begin at a 16-byte boundary. Packs of n elements cover its aligned middle. The elements before and
// after it, the edges, are handled one by one. With n = 1 there are no edges.
template <int n>
struct RowParts {
  int classes, head, packs, edges;

  template <class T>
  MR_DEVICE_INLINE RowParts(const T* row, int class_count) : classes(class_count) {
    const int beyond = int(reinterpret_cast<std::uintptr_t>(row) / sizeof(T) % n);
    head = beyond == 0 ? 0 : n - beyond;
    if (head > classes) head = classes;
    packs = (classes - head) / n;
    edges = classes - packs * n;
  }
  template <int m>
  struct Size {
    static constexpr int value = m;
  };
  // Calls use(Size<m>, first, kept, step) for the elements [first, first + m) of this thread, with m = n or 1. Element
  // first + k has the place kept + k * step in an array of as many elements as the row. Each call has the same thread
  // handle an element.
  template <class Block, class Use>
  MR_DEVICE_INLINE void each(const Block& block, const Use& use) const {
    for (int p = block.thread(); p < packs; p += block.threads()) use(Size<n>{}, head + p * n, p, packs);
    for (int e = block.thread(); e < edges; e += block.threads())
      use(Size<1>{}, e < head ? e : e + packs * n, packs * n + e, 1);
  }
};

template <class T, int n>
struct CrossEntropyRow {
  const T* logits;
  const std::int32_t* labels;
  T* diff;  // null: no gradient is needed; else as aligned as the logits
  RowLoss* rows;
  const StepState* state;
  int classes;
  bool cached;  // the row fits into shared memory
  float smoothing;
  double positions_of_row;  // each weighs row_weight / positions_of_row

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const std::int64_t row = block.index(), base = row * classes;
    const int label = labels[row];
    const T* const x = logits + base;
    const RowParts<n> parts(x, classes);
    float* const cache = block.template shared<float>();  // each thread reads only elements that it wrote itself

    if (label < 0 || label >= classes) return skip_row(block, parts, row, label);

    const float own = widen(x[label]);
    float maximum = -std::numeric_limits<float>::infinity();
    int rank = 0;  // classes ranked before the label: those with a larger logit, or an equal one and a smaller number
    parts.each(block, [&](auto size, int first, int kept, int step) {
      float v[size.value];
      load(v, x + first);
      for (int k = 0; k < size.value; ++k) {
        maximum = v[k] > maximum ? v[k] : maximum;
        rank += v[k] > own || (v[k] == own && first + k < label);
        if (cached) cache[kept + k * step] = v[k];
      }
    });
    maximum = block.max(maximum);
    rank = block.sum(rank);

    double sum = 0, total = 0;
    parts.each(block, [&](auto size, int first, int kept, int step) {
      float v[size.value];
      if (!cached) load(v, x + first);
      for (int k = 0; k < size.value; ++k) {
        if (cached) v[k] = cache[kept + k * step];
        if (smoothing > 0) total += double(v[k]);
        v[k] = expf(v[k] - maximum);
        sum += double(v[k]);
        if (cached) cache[kept + k * step] = v[k];
      }
    });
    sum = block.sum(sum);
    if (smoothing > 0) total = block.sum(total);
    const double kept_share = 1 - double(smoothing), uniform = double(smoothing) / double(classes);
    if (block.thread() == 0) {
      RowLoss result;
      result.loss = log(sum) - kept_share * (double(own) - double(maximum));
      if (smoothing > 0) result.loss -= uniform * (total - double(maximum) * double(classes));
      result.counted = 1;
      result.top1 = rank < 1 && own == own;
      result.top5 = rank < 5 && own == own;
      rows[row] = result;
    }
    if (diff) write_gradient(block, parts, base, label, maximum, sum);
  }

 private:
  template <class Block>
  MR_DEVICE_INLINE void write_gradient(Block& block, const RowParts<n>& parts, std::int64_t base, int label,
                                       float maximum, double sum) const {
    const double kept_share = 1 - double(smoothing), uniform = double(smoothing) / double(classes);
    const double scale = double(state->loss_scale) * double(state->row_weight) / positions_of_row,
                 target = uniform + kept_share;
    const float factor = float(scale / sum), shift = float(scale * uniform);
    const T* const x = logits + base;
    T* const out = diff + base;
    const float* const cache = block.template shared<float>();
    parts.each(block, [&](auto size, int first, int kept, int step) {
      float v[size.value];
      if (!cached) load(v, x + first);
      for (int k = 0; k < size.value; ++k) {
        const float e = cached ? cache[kept + k * step] : expf(v[k] - maximum);
        v[k] = first + k == label ? float(scale * (double(e) / sum - target)) : e * factor - shift;
      }
      store(out + first, v);
    });
  }

  // A row without a class: its gradient is zero. A negative label means that the row does not count. Any other label
  // that is no class is an error in the data: the loss becomes NaN, and nothing is read out of bounds.
  template <class Block>
  MR_DEVICE_INLINE void skip_row(Block& block, const RowParts<n>& parts, std::int64_t row, int label) const {
    T* const out = diff + row * classes;
    if (diff)
      parts.each(block, [&](auto size, int first, int, int) {
        float zeros[size.value];
        for (int k = 0; k < size.value; ++k) zeros[k] = 0;
        store(out + first, zeros);
      });
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
      : spec_(spec),
        context_(context),
        rows_(spec.src.count() / std::max<std::int64_t>(1, spec.classes())),
        classes_(spec.classes()) {
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
      // Loads and stores are aligned alike. The tensors of a program begin at 64-byte boundaries.
      const auto diff = spec_.mode == Mode::train ? reinterpret_cast<std::uintptr_t>(args.diff_src[0].data) : 0;
      if ((reinterpret_cast<std::uintptr_t>(args.src[0].data) - diff) % 16 == 0 || diff == 0)
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
    launch<max_threads, 2>(context_, rows_, even_threads(std::max<std::int64_t>(classes_ / n, 1), max_threads),
                           cached ? bytes : 0,
                           CrossEntropyRow<T, n>{args.src[0].as<T>(), args.src[1].as<std::int32_t>(), diff,
                                                 static_cast<RowLoss*>(args.workspace), args.state, int(classes_),
                                                 cached, spec_.label_smoothing, double(spec_.positions_of_row())});
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
