// The kernels of the cross-entropy. With many classes each block handles one position in three passes: the maximum, the
// sum of the exponentials, and the gradient. Between the passes the logits stay in shared memory. If they are too many
// for it, they are read again, usually from the L2 cache.
#pragma once
#include <cmath>
#include <limits>

#include "cuda/block/half.hpp"
#include "cuda/kernels/cross_entropy_target.hpp"

namespace millrace::cuda {

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
  CrossEntropyArgs<T> args;
  bool cached;  // the row fits into shared memory

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const int classes = args.classes;
    const float smoothing = args.smoothing;
    const std::int64_t row = block.index(), base = row * classes;
    const RowLabels labels(args, row);
    const int label = labels.label;
    const T* const x = args.logits + base;
    const RowParts<n> parts(x, classes);
    float* const cache = block.template shared<float>();  // each thread reads only elements that it wrote itself

    if (!labels.valid(classes)) return skip_row(block, parts, row, label);

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
    if (args.confusion) count_prediction(block, parts, x, label, maximum);

    double sum = 0, total = 0;
    parts.each(block, [&](auto size, int first, int kept, int step) {
      float v[size.value];
      if (!cached) load(v, x + first);
      for (int k = 0; k < size.value; ++k) {
        if (cached) v[k] = cache[kept + k * step];
        if (smoothing > 0) total += args.weight_of(first + k) * double(v[k]);
        v[k] = expf(v[k] - maximum);
        sum += double(v[k]);
        if (cached) cache[kept + k * step] = v[k];
      }
    });
    sum = block.sum(sum);
    if (smoothing > 0) total = block.sum(total);
    if (block.thread() == 0) {
      const CrossEntropyTarget target(args, labels);
      RowLoss result;
      result.loss = target.sum * log(sum) - target.own * (double(own) - double(maximum));
      if (labels.other >= 0) result.loss -= target.second * (double(widen(x[labels.other])) - double(maximum));
      if (smoothing > 0) result.loss -= target.uniform * (total - double(maximum) * args.sum_of_weights);
      result.counted = 1;
      result.weight = target.weight;
      result.top1 = rank < 1 && own == own;
      result.top5 = rank < 5 && own == own;
      args.losses[row] = result;
    }
    if (args.diff) write_gradient(block, parts, base, labels, maximum, sum);
    if (args.scores)
      for (int c = block.thread(); c < classes; c += block.threads())
        count_score(args, c, label, widen(x[c]), maximum, sum);
  }

 private:
  // The prediction is the first class with the largest logit.
  template <class Block>
  MR_DEVICE_INLINE void count_prediction(Block& block, const RowParts<n>& parts, const T* x, int label,
                                         float maximum) const {
    const int classes = args.classes;
    int best = classes;
    parts.each(block, [&](auto size, int first, int, int) {
      float v[size.value];
      load(v, x + first);
      for (int k = 0; k < size.value; ++k)
        if (v[k] == maximum && first + k < best) best = first + k;
    });
    best = -block.max(-best);
    if (block.thread() == 0 && best < classes) atomic_add(args.confusion + std::int64_t(label) * classes + best, 1);
  }

  template <class Block>
  MR_DEVICE_INLINE void write_gradient(Block& block, const RowParts<n>& parts, std::int64_t base,
                                       const RowLabels& labels, float maximum, double sum) const {
    const CrossEntropyTarget target(args, labels);
    const double scale = args.gradient_scale();
    const float factor = float(scale * target.sum / sum), shift = float(scale * target.uniform);
    const T* const x = args.logits + base;
    T* const out = args.diff + base;
    const float* const cache = block.template shared<float>();
    parts.each(block, [&](auto size, int first, int kept, int step) {
      float v[size.value];
      if (!cached) load(v, x + first);
      for (int k = 0; k < size.value; ++k) {
        const float e = cached ? cache[kept + k * step] : expf(v[k] - maximum);
        const bool weighted = args.weights && args.smoothing > 0;
        const int c = first + k;
        v[k] = c == labels.label || c == labels.other
                   ? float(scale *
                           (double(e) * target.sum / sum - target.uniform * args.weight_of(c) - target.of(labels, c)))
                   : e * factor - (weighted ? shift * args.weights[c] : shift);
      }
      store(out + first, v);
    });
  }

  // A row without a class: its gradient is zero. A negative label means that the row does not count. Any other label
  // that is no class is an error in the data: the loss becomes NaN, and nothing is read out of bounds.
  template <class Block>
  MR_DEVICE_INLINE void skip_row(Block& block, const RowParts<n>& parts, std::int64_t row, int label) const {
    T* const out = args.diff + row * args.classes;
    if (args.diff)
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
      result.weight = 1;
    }
    args.losses[row] = result;
  }
};

constexpr std::int64_t max_few_classes = 32, few_classes_part = 1024;  // positions of a part

// Few classes, often of pixels: each thread handles whole positions, and a block a part of all positions.
template <class T>
struct CrossEntropyOfFewClasses {
  CrossEntropyArgs<T> args;
  std::int64_t positions;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const int cells = args.classes * args.classes;
    std::uint64_t* const counts = args.confusion ? block.template shared<std::uint64_t>() : nullptr;
    if (counts)
      for (int i = block.thread(); i < cells; i += block.threads()) counts[i] = 0;
    block.sync();
    const std::int64_t begin = block.index() * few_classes_part,
                       end = begin + few_classes_part < positions ? begin + few_classes_part : positions;
    double loss = 0, weight = 0;
    int counted = 0, top1 = 0, top5 = 0;
    for (std::int64_t p = begin + block.thread(); p < end; p += block.threads()) {
      const RowLoss one = position(p, counts);
      loss += one.loss;
      weight += one.weight;
      counted += int(one.counted);
      top1 += one.top1;
      top5 += one.top5;
    }
    block.sync();
    if (counts)
      for (int i = block.thread(); i < cells; i += block.threads())
        if (counts[i] > 0) atomic_add(args.confusion + i, counts[i]);
    RowLoss result;
    result.loss = block.sum(loss);
    result.weight = block.sum(weight);
    result.counted = std::uint32_t(block.sum(counted));
    result.top1 = std::uint16_t(block.sum(top1));
    result.top5 = std::uint16_t(block.sum(top5));
    if (block.thread() == 0) args.losses[block.index()] = result;
  }

 private:
  // As CrossEntropyRow::skip_row().
  MR_DEVICE_INLINE RowLoss skip(std::int64_t p, int label) const {
    const float zero[1] = {0};
    for (int c = 0; args.diff && c < args.classes; ++c) store(args.diff + p * args.classes + c, zero);
    RowLoss result;
    if (label >= 0) result.loss = std::numeric_limits<double>::quiet_NaN();
    result.counted = label >= 0;
    result.weight = result.counted;
    return result;
  }

  MR_DEVICE_INLINE RowLoss position(std::int64_t p, std::uint64_t* counts) const {
    const RowLabels labels(args, p);
    const int label = labels.label, classes = args.classes;
    if (!labels.valid(classes)) return skip(p, label);
    const T* const x = args.logits + p * classes;
    const float own = widen(x[label]);
    float maximum = -std::numeric_limits<float>::infinity();
    int rank = 0, best = classes;
    for (int c = 0; c < classes; ++c) {
      const float v = widen(x[c]);
      if (v > maximum || (v == maximum && best == classes)) best = c;
      maximum = v > maximum ? v : maximum;
      rank += v > own || (v == own && c < label);
    }
    if (counts && best < classes) atomic_add(counts + label * classes + best, 1);
    double sum = 0, total = 0;
    for (int c = 0; c < classes; ++c) {
      const float v = widen(x[c]);
      sum += double(expf(v - maximum));
      if (args.smoothing > 0) total += args.weight_of(c) * (double(v) - double(maximum));
    }
    for (int c = 0; args.scores && c < classes; ++c) count_score(args, c, label, widen(x[c]), maximum, sum);
    const CrossEntropyTarget target(args, labels);
    RowLoss result;
    result.loss = target.sum * log(sum) - target.own * (double(own) - double(maximum));
    if (labels.other >= 0) result.loss -= target.second * (double(widen(x[labels.other])) - double(maximum));
    if (args.smoothing > 0) result.loss -= target.uniform * total;
    result.counted = 1;
    result.weight = target.weight;
    result.top1 = rank < 1 && own == own;
    result.top5 = rank < 5 && own == own;
    if (args.diff) write_gradient(p, labels, maximum, sum, target);
    return result;
  }

  MR_DEVICE_INLINE void write_gradient(std::int64_t p, const RowLabels& labels, float maximum, double sum,
                                       const CrossEntropyTarget& target) const {
    const double scale = args.gradient_scale(), factor = scale * target.sum / sum;
    for (int c = 0; c < args.classes; ++c) {
      const double e = double(expf(widen(args.logits[p * args.classes + c]) - maximum));
      const double compared = target.uniform * args.weight_of(c) + target.of(labels, c);
      const float v[1] = {float(e * factor - scale * compared)};
      store(args.diff + p * args.classes + c, v);
    }
  }
};

}  // namespace millrace::cuda
