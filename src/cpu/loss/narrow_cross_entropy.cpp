#include "cpu/loss/narrow_cross_entropy.hpp"

#include <cmath>
#include <limits>

#include "cpu/common/parallel.hpp"
#include "cpu/common/vector_math.hpp"

namespace millrace::cpu {
namespace {

// By class, then by row, so that loops over rows are vectorised.
struct alignas(64) Columns {
  float e[narrow_classes][narrow_rows];  // first the logits, then exp(logit - most)
  float most[narrow_rows], own[narrow_rows];
  std::int32_t rank[narrow_rows];  // how many classes come before that of the label
  double sum[narrow_rows];         // of the exponentials
};

MR_TARGET_CLONES void fill_columns(Columns& to, const float* __restrict logits, const std::int32_t* __restrict labels,
                                   std::int64_t classes) {
  const ExpBounds bounds;
  for (std::int64_t r = 0; r < narrow_rows; ++r) {
    to.most[r] = -std::numeric_limits<float>::infinity();
    to.own[r] = 0;
    to.rank[r] = 0;
    to.sum[r] = 0;
  }
  for (std::int64_t c = 0; c < classes; ++c)
    for (std::int64_t r = 0; r < narrow_rows; ++r) {
      const float x = logits[r * classes + c];
      to.e[c][r] = x;
      to.most[r] = x > to.most[r] ? x : to.most[r];
      to.own[r] = labels[r] == std::int32_t(c) ? x : to.own[r];
    }
  for (std::int64_t c = 0; c < classes; ++c)
    for (std::int64_t r = 0; r < narrow_rows; ++r) {
      const float x = to.e[c][r];
      const std::int32_t greater = x > to.own[r], before = std::int32_t(x == to.own[r]) & std::int32_t(c < labels[r]);
      to.rank[r] += greater + before;
      to.e[c][r] = fast_exp(x - to.most[r], bounds);
      to.sum[r] += double(to.e[c][r]);
    }
}

MR_TARGET_CLONES void write_gradients(float* __restrict diff, const Columns& from, const float* __restrict factor,
                                      std::int64_t rows, std::int64_t classes) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < classes; ++c) diff[r * classes + c] = from.e[c][r] * factor[r];
}

}  // namespace

void narrow_cross_entropy(const float* logits, const std::int32_t* labels, std::int64_t rows, std::int64_t classes,
                          double scale, RowLoss* losses, float* diff) {
  Columns columns;
  if (rows == narrow_rows) {
    fill_columns(columns, logits, labels, classes);
  } else {
    float padded[narrow_classes * narrow_rows] = {};
    std::int32_t padded_labels[narrow_rows] = {};
    std::copy_n(logits, rows * classes, padded);
    std::copy_n(labels, rows, padded_labels);
    fill_columns(columns, padded, padded_labels, classes);
  }
  float factor[narrow_rows];
  for (std::int64_t r = 0; r < rows; ++r) {
    RowLoss& to = losses[r];
    to = RowLoss{};
    const std::int32_t label = labels[r];
    const bool counts = label >= 0 && label < classes;
    factor[r] = counts ? float(scale / columns.sum[r]) : 0;
    if (label < 0) continue;
    to.weight = 1;
    to.counted = 1;
    to.loss = std::numeric_limits<double>::quiet_NaN();  // there is no such class
    if (!counts) continue;
    const float own = columns.own[r];
    to.loss = std::log(columns.sum[r]) - (double(own) - double(columns.most[r]));
    to.top1 = columns.rank[r] < 1 && !std::isnan(own);
    to.top5 = columns.rank[r] < 5 && !std::isnan(own);
  }
  if (!diff) return;
  write_gradients(diff, columns, factor, rows, classes);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int32_t label = labels[r];
    if (label < 0 || label >= classes) {
      std::fill_n(diff + r * classes, classes, 0.0f);  // a product of zero and NaN is NaN
      continue;
    }
    diff[r * classes + label] = float(scale * (double(columns.e[label][r]) / columns.sum[r] - 1));
  }
}

}  // namespace millrace::cpu
