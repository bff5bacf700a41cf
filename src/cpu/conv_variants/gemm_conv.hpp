// A convolution, or the gradient of its source, as a product of matrices (im2col). Blocks of rows are gathered and
// multiplied, so that the gathered rows stay in a cache. Either each thread computes blocks of its own, or all threads
// gather and multiply each block together, which are then larger.
#pragma once
#include <optional>
#include <vector>

#include "cpu/common/conv_methods.hpp"
#include "cpu/common/conv_part.hpp"
#include "cpu/conv_variants/im2col.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

// gemm_alone or gemm_together, where it is faster than the other methods by measurements; nothing elsewhere.
std::optional<ConvMethod> gemm_by_rule(const ConvSpec&, ConvPass);

class GemmConv : public ConvPart {
 public:
  // Neither groups nor bias; the gradient of the source only if the source itself is the matrix (im2col.hpp).
  static bool supports(const ConvSpec&, Of);
  // Adds the memory for its copy of the weights to needs.packed_weights.
  GemmConv(const ConvSpec&, Of, bool together, MemoryRequirements& needs);

  std::size_t workspace() const override { return workspace_; }
  std::string implementation() const override;
  void repack(const OpArgs& args) override { weight_.repack(args); }
  void run(const OpArgs&) override;

 private:
  void run_block(const OpArgs&, std::int64_t begin, std::int64_t end);

  const Im2col matrix_;
  const bool forward_, together_, gathers_;
  const std::int64_t in_bytes_, out_bytes_;    // of a row
  std::int64_t block_;                         // rows
  std::vector<onednn::Call> products_, last_;  // of each thread: of a whole block, of the last one
  PackedWeight weight_;
  std::size_t rows_at_ = 0, thread_bytes_ = 0, workspace_ = 0;
};

// The gradient of the weights in the same way. With blocks of their own, threads add up sums of their own.
class GemmWeightGradient : public ConvPart {
 public:
  static bool supports(const ConvSpec& s) { return GemmConv::supports(s, Of::forward); }
  GemmWeightGradient(const ConvSpec&, bool together);

  std::size_t workspace() const override { return workspace_; }
  std::string implementation() const override;
  // Computes diff_weight[0] from src[0] and diff_dst, and writes or adds it.
  void run(const OpArgs&) override;

 private:
  struct Products {
    onednn::Call write, add;
  };
  void add_block(const OpArgs&, std::int64_t begin, std::int64_t end, bool add, float* to);
  void run_alone(const OpArgs&);

  const Im2col matrix_;
  const bool together_, gathers_;
  const std::int64_t out_, element_;
  std::int64_t block_, parts_;             // rows; ranges of blocks with sums of their own
  std::vector<Products> products_, last_;  // of each part: of a whole block, of the last one
  std::size_t rows_at_ = 0, part_bytes_ = 0, sums_at_ = 0, workspace_ = 0;
};

}  // namespace millrace::cpu
