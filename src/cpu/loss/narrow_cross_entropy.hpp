// Cross-entropy of few classes, many rows at a time: one label at each pixel, for instance.
#pragma once
#include <cstdint>

#include "cpu/common/row_loss.hpp"

namespace millrace::cpu {

constexpr std::int64_t narrow_classes = 16, narrow_rows = 64;  // most of a call

// Losses, hits and gradients of rows without class weights, smoothing or mixed labels. logits: (rows, classes). diff:
// the same, or null; it gets (softmax - target) * scale, and zeros for labels that do not count.
void narrow_cross_entropy(const float* logits, const std::int32_t* labels, std::int64_t rows, std::int64_t classes,
                          double scale, RowLoss* losses, float* diff);

}  // namespace millrace::cpu
