// Products of matrices for each index of a batch, by onednn::matmul_call(). The batch is divided over the threads, or,
// if it is smaller than their number, each product is.
#include <fmt/core.h>

#include <optional>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {
namespace {

// One of the three products of the operation.
class BatchProduct {
 public:
  explicit BatchProduct(const BatchedMatmulSpec& spec) : spec_(spec), threads_(thread_count()) {
    by_batch_ = spec.batch >= threads_;
    std::optional<Alone> alone;  // oneDNN makes primitives for this number of threads
    if (by_batch_) alone.emplace();
    for (int thread = 0; thread < (by_batch_ ? threads_ : 1); ++thread)
      calls_.push_back(onednn::matmul_call(matrix(spec.m, spec.k, spec.transpose_a),
                                           matrix(spec.k, spec.n, spec.transpose_b), onednn::desc(),
                                           matrix(spec.m, spec.n, false)));
    scratch_ = align64(calls_[0].scratch_bytes());
  }
  std::size_t workspace() const { return scratch_ * calls_.size(); }
  std::string name() const { return calls_[0].full_name(); }

  void run(void* workspace, const Tensor& a, const Tensor& b, const Tensor& to) {
    if (!by_batch_) return run_part(calls_[0], workspace, {a, b, to}, 0, spec_.batch);
    parallel_ranges(spec_.batch, 1, [&](std::int64_t begin, std::int64_t end) {
      const auto thread = std::size_t(thread_number());
      run_part(calls_[thread], at(workspace, thread * scratch_), {a, b, to}, begin, end);
    });
  }

 private:
  struct Operands {
    const Tensor &a, &b, &to;
  };
  onednn::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed) const {
    return onednn::strided({rows, columns}, spec_.dtype, transposed ? onednn::dims{1, rows} : onednn::dims{columns, 1});
  }
  void run_part(onednn::Call& call, void* scratch, const Operands& of, std::int64_t begin, std::int64_t end) const {
    call.bind_scratch(scratch);
    for (std::int64_t i = begin; i < end; ++i) {
      call.bind(DNNL_ARG_SRC, element(of.a, i * spec_.m * spec_.k));
      call.bind(DNNL_ARG_WEIGHTS, element(of.b, i * spec_.k * spec_.n));
      call.bind(DNNL_ARG_DST, element(of.to, i * spec_.m * spec_.n));
      call.run();
    }
  }

  BatchedMatmulSpec spec_;
  int threads_;
  bool by_batch_ = false;
  std::vector<onednn::Call> calls_;  // by thread
  std::size_t scratch_ = 0;          // bytes of one thread
};

class BatchedMatmul : public Op {
 public:
  explicit BatchedMatmul(const BatchedMatmulSpec& spec) : spec_(spec), forward_(spec) {
    if (spec.mode == Mode::infer) return;
    of_a_.emplace(spec.of_a());
    of_b_.emplace(spec.of_b());
  }
  MemoryRequirements memory_requirements() const override {
    std::size_t most = forward_.workspace();
    for (const auto* product : {&of_a_, &of_b_})
      if (*product) most = std::max(most, (*product)->workspace());
    return {most, 0, 0};
  }
  std::string implementation() const override { return forward_.name(); }

  void forward(const OpArgs& args) override { forward_.run(args.workspace, args.src[0], args.src[1], args.dst); }
  void backward(const OpArgs& args) override {
    const Tensor &a = args.src[0], &b = args.src[1], &dy = args.diff_dst;
    if (args.diff_src[0])
      of_a_->run(args.workspace, spec_.transpose_a ? b : dy, spec_.transpose_a ? dy : b, args.diff_src[0]);
    if (args.diff_src[1])
      of_b_->run(args.workspace, spec_.transpose_b ? dy : a, spec_.transpose_b ? a : dy, args.diff_src[1]);
  }

 private:
  BatchedMatmulSpec spec_;
  BatchProduct forward_;
  std::optional<BatchProduct> of_a_, of_b_;
};

}  // namespace

std::unique_ptr<Op> make_batched_matmul(const BatchedMatmulSpec& spec) {
  const HalfTensors tensors{.src = {spec.batch * spec.m * spec.k, spec.batch * spec.k * spec.n},
                            .dst = spec.batch * spec.m * spec.n,
                            .keeps_src = true,
                            .infer = spec.mode == Mode::infer};
  return native_or_emulated<BatchedMatmul>(
      spec, fmt::format("matmul {} x {} x {} x {}", spec.batch, spec.m, spec.n, spec.k), tensors);
}

}  // namespace millrace::cpu
