// A linear layer at each position and the cross-entropy of its result, the logits, computed in chunks of rows. So the
// logits of all rows never exist at once: with large vocabularies they are the largest tensor of a language model.
//
//   src[0]      (N, positions..., in) in `dtype`
//   src[1]      labels, (N, positions...) int32, as of CrossEntropySpec
//   weight      as of LinearSpec
//
// In Mode::train, forward() also computes diff_src[0] and diff_weight, by the modes of args.mode; backward() does
// nothing. The loss is that of the two operations by themselves, but sums over rows are added in another order.
#pragma once
#include <memory>

#include "millrace/ops/linear.hpp"
#include "millrace/ops/loss.hpp"

namespace millrace {

struct LinearCrossEntropySpec {
  LinearSpec linear;            // over all positions; without an activation
  CrossEntropySpec loss;        // over all rows
  std::int64_t chunk_rows = 1;  // divides the rows

  double flops() const { return linear.flops(); }  // of the forward pass alone
  std::int64_t metric_count() const { return loss.metric_count(); }
  std::int64_t chunks() const { return loss.src[0] / chunk_rows; }
  LinearSpec chunk_linear() const;
  CrossEntropySpec chunk_loss() const;
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// The operation, made of those of one chunk.
std::unique_ptr<Op> make_linear_cross_entropy(const LinearCrossEntropySpec&, std::unique_ptr<Op> chunk_linear,
                                              std::unique_ptr<Op> chunk_loss);

}  // namespace millrace
