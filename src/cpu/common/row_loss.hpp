// The loss and the hits of one row. Rows are added in their order, so the sums are the same for every number of
// threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/device/step_state.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cpu {

struct RowLoss {
  double loss = 0, weight = 0;
  std::uint32_t counted = 0, top1 = 0, top5 = 0;
  static std::size_t bytes(std::int64_t rows) { return std::size_t(rows) * sizeof(RowLoss); }
};

inline void add_row_losses(LossSums& to, const RowLoss* rows, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    to.sum += rows[i].loss;
    to.weight += rows[i].weight;
    to.counted += rows[i].counted;
    to.top1 += rows[i].top1;
    to.top5 += rows[i].top5;
  }
}

// What the losses have in common. rows: of a micro-batch. The gradient is written by forward().
class RowLossOp : public Op {
 public:
  explicit RowLossOp(std::int64_t rows) : rows_(rows) {}
  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    needs.workspace = RowLoss::bytes(rows_);
    return needs;
  }
  std::string implementation() const override { return "threads"; }
  void backward(const OpArgs&) override {}

 private:
  std::int64_t rows_;
};

}  // namespace millrace::cpu
