// Attention with cuDNN's fused engines. They read the queries, keys and values where they lie in src, and write their
// gradients so.
//
// Backward has two graphs (AttentionProblem::accumulate). The one whose blocks add the gradient of the queries up in
// float32 needs zeroed memory for it. It is used if it was timed and is faster in spite of that, and if results may
// differ from run to run.
#include "cuda/dnn/attention.hpp"

#include <cuda_runtime.h>
#include <fmt/core.h>

#include <algorithm>

#include "cuda/dnn/attention_graph.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "cuda/errors/check.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/runtime/workspace.hpp"

namespace millrace::cuda {
namespace {

using cudnn::AttentionProblem, cudnn::Call, cudnn::Choice, cudnn::Cudnn;

constexpr std::int64_t max_head_size = 256;

bool supported_by_cudnn(const AttentionSpec& s) {
  return s.dtype != DType::f32 && s.head_size() % 8 == 0 && s.head_size() <= max_head_size;
}

std::size_t query_sum_bytes(const AttentionSpec& s) { return std::size_t(s.dst().count()) * sizeof(float); }

struct Backward {
  AttentionProblem problem;
  std::optional<Choice> choice;  // nullopt: cuDNN has no engine
};

Backward choose_backward(const AttentionSpec& s, Cudnn& library) {
  Backward direct{{s, true, false}, {}}, accumulated{{s, true, true}, {}};
  direct.choice = library.choose(direct.problem);
  const double rate = library.options().copy_bytes_per_second;
  if (library.options().rules.deterministic || (direct.choice && direct.choice->seconds == 0)) return direct;
  accumulated.choice = library.choose(accumulated.problem);
  if (!direct.choice || !accumulated.choice) return direct.choice ? std::move(direct) : std::move(accumulated);
  const double zeroing = rate > 0 ? double(query_sum_bytes(s)) / rate : 0;
  const bool faster = accumulated.choice->seconds > 0 && accumulated.choice->seconds + zeroing < direct.choice->seconds;
  return faster ? std::move(accumulated) : std::move(direct);
}

class CudnnAttention : public Op {
 public:
  CudnnAttention(const AttentionSpec& s, const LaunchContext& context, cudnnHandle_t handle, Call forward)
      : spec_(s), stream_(context.stream), handle_(handle), forward_(std::move(forward)) {
    plan();
  }
  void set_backward(const Backward& b) {
    backward_ = Call(b.choice->plan, b.problem);
    accumulates_ = b.problem.accumulate;
    plan();
  }

  MemoryRequirements memory_requirements() const override { return needs_; }
  std::string implementation() const override {
    std::string text = "cudnn " + forward_.plan().engine();
    if (backward_) text += ", backward " + backward_.plan().engine();
    return text + (accumulates_ ? " adding up gradients of queries" : "");
  }

  void forward(const OpArgs& args) override {
    std::vector<void*> pointers = in_src(args.src[0]);
    // cuDNN has no engine without the logarithms of the sums.
    pointers.insert(pointers.end(),
                    {args.dst.data, spec_.mode == Mode::train ? args.saved : at(args.workspace, of_queries_at_)});
    forward_.run(handle_, std::move(pointers), args.workspace);
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    std::vector<void*> pointers = in_src(args.src[0]);
    pointers.insert(pointers.end(), {args.dst.data, args.saved, args.diff_dst.data});
    for (void* gradient : in_src(args.diff_src[0])) pointers.push_back(gradient);
    pointers.push_back(at(args.workspace, of_queries_at_));
    if (accumulates_) {
      void* const sums = at(args.workspace, query_sums_at_);
      MR_CUDA(cudaMemsetAsync(sums, 0, query_sum_bytes(spec_), stream_));
      pointers.push_back(sums);
    }
    backward_.run(handle_, std::move(pointers), args.workspace);
  }

 private:
  // Workspace: that of cuDNN, one float for each query, and the sums of the gradient of the queries.
  void plan() {
    const std::size_t of_queries = std::size_t(spec_.src[0] * spec_.heads * spec_.positions()) * sizeof(float);
    of_queries_at_ = align64(std::max(forward_.workspace_bytes(), backward_.workspace_bytes()));
    query_sums_at_ = of_queries_at_ + align64(of_queries);
    needs_.workspace = query_sums_at_ + (accumulates_ ? query_sum_bytes(spec_) : 0);
    needs_.saved = spec_.mode == Mode::train ? of_queries : 0;
  }
  // Queries, keys and values.
  std::vector<void*> in_src(const Tensor& src) const {
    const std::size_t head = std::size_t(spec_.head_size()) * size_of(spec_.dtype);
    return {src.data, at(src.data, std::size_t(spec_.heads) * head),
            at(src.data, std::size_t(spec_.heads + spec_.key_heads) * head)};
  }

  AttentionSpec spec_;
  StreamHandle stream_;
  cudnnHandle_t handle_;
  Call forward_, backward_;
  bool accumulates_ = false;
  std::size_t of_queries_at_ = 0, query_sums_at_ = 0;  // in the workspace
  MemoryRequirements needs_;
};

// Null if cuDNN has no engine.
std::unique_ptr<Op> make_with_cudnn(const AttentionSpec& s, const LaunchContext& context, Cudnn& library) {
  const AttentionProblem forward{s};
  const auto choice = library.choose(forward);
  if (!choice) return nullptr;
  auto op = std::make_unique<CudnnAttention>(s, context, library.handle(), Call(choice->plan, forward));
  if (s.mode == Mode::infer) return op;
  const Backward backward = choose_backward(s, library);
  if (!backward.choice) return nullptr;
  op->set_backward(backward);
  return op;
}

}  // namespace

std::unique_ptr<Op> make_attention(const AttentionSpec& spec, const LaunchContext& context, Cudnn& library) {
  spec.check();
  if (!supported_by_cudnn(spec)) return make_attention(spec, context);
  if (auto op = make_with_cudnn(spec, context, library)) return op;
  library.warn_once(
      fmt::format("cuDNN {} has no engine for attention with heads of {} in {} on this GPU. slower kernels are used",
                  cudnnGetVersion(), spec.head_size(), name_of(spec.dtype)));
  return make_attention(spec, context);
}

}  // namespace millrace::cuda
