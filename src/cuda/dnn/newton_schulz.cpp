// cuBLAS treats matrices as column-major, so the row-major matrix (rows, columns) is X^T, of columns x rows. A is
// symmetric. With at most as many rows as columns, A = X X^T, and X^T becomes a X^T + X^T (b A + c A A). With more
// rows, A = X^T X, and X^T becomes a X^T + (b A + c A A) X^T.
#include <algorithm>
#include <utility>

#include "cuda/dnn/matmul.hpp"
#include "millrace/ops/optimizer.hpp"

namespace millrace::cuda {
namespace {

class NewtonSchulzMatmuls : public Orthogonalizer {
 public:
  NewtonSchulzMatmuls(std::int64_t rows, std::int64_t columns, int steps, const LaunchContext& context, Cublas& cublas)
      : tall_(rows > columns), steps_(steps), context_(context) {
    const std::int64_t side = std::min(rows, columns);
    gram_ = cublas.make({side, side, std::max(rows, columns), !tall_, tall_});
    square_ = cublas.make({.m = side, .n = side, .k = side, .add = true});
    apply_ = cublas.make({.m = columns, .n = rows, .k = side, .add = true});
  }

  std::size_t workspace_bytes() const override {
    return std::max({gram_->workspace_bytes(), square_->workspace_bytes(), apply_->workspace_bytes()});
  }

  const float* run(const OrthogonalizerMemory& memory) override {
    float *x = memory.x, *to = memory.other;
    for (int step = 0; step < steps_; ++step) {
      gram_->run(context_.stream, {.a = x, .b = x, .d = memory.gram, .workspace = memory.workspace});
      square_->run(context_.stream, {.a = memory.gram,
                                     .b = memory.gram,
                                     .d = memory.polynomial,
                                     .workspace = memory.workspace,
                                     .alpha = NewtonSchulz::c,
                                     .beta = NewtonSchulz::b,
                                     .c = memory.gram});
      apply_->run(context_.stream, {.a = tall_ ? memory.polynomial : x,
                                    .b = tall_ ? x : memory.polynomial,
                                    .d = to,
                                    .workspace = memory.workspace,
                                    .beta = NewtonSchulz::a,
                                    .c = x});
      std::swap(x, to);
    }
    return x;
  }

 private:
  bool tall_;
  int steps_;
  LaunchContext context_;
  std::unique_ptr<Matmul> gram_, square_, apply_;
};

}  // namespace

std::unique_ptr<Orthogonalizer> make_newton_schulz(std::int64_t rows, std::int64_t columns, int steps,
                                                   const LaunchContext& context, Cublas& cublas) {
  return std::make_unique<NewtonSchulzMatmuls>(rows, columns, steps, context, cublas);
}

}  // namespace millrace::cuda
