// Attention with cuDNN's fused engines. They read the queries, keys and values where they lie in src, and write their
// gradients so.
//
// Backward has two graphs (AttentionProblem::accumulate). Where results must be the same in every run, it is the one
// with a product for the gradient of the queries. Its engines store a matrix of 16-bit scores for each head, S x S. So
// it takes as many rows of the batch at once as that leaves room for in the workspace. Otherwise the blocks add up the
// gradient, unless both were timed and the other graph is faster.
//
// Documents: cuDNN hides the keys before the start of a query's document, which it reads as a tensor. It does not skip
// blocks of them. (Its ragged tensors need a fixed number of documents, which differs from batch to batch.)
//
// Dropout: cuDNN draws the probabilities to keep, from a seed in device memory and their place in the tensor of all
// scores. A kernel writes the seeds in the forward pass, and the backward pass reads them again. So forward takes the
// same rows at once as backward, each with a seed of its own that follows from the id of its first row.
#include "cuda/dnn/attention.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cuda/dnn/attention_graph.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/runtime/workspace.hpp"

namespace millrace::cuda {
namespace {

using cudnn::AttentionProblem, cudnn::Call, cudnn::Cudnn;

constexpr std::int64_t max_head_size = 256;
// Versions before it are wrong for some numbers of positions without a mask, and add to sums that they do not zero.
constexpr std::size_t oldest_version = 91600;

bool supported_by_cudnn(const AttentionSpec& s) {
  return s.dtype != DType::f32 && s.head_size() % 8 == 0 && s.head_size() <= max_head_size && s.positions() > 1 &&
         s.window == 0;
}

std::size_t bytes_of_queries(const AttentionSpec& s) {
  return std::size_t(s.src[0] * s.heads * s.positions()) * sizeof(float);
}

// How many rows of the batch the graph without accumulation takes at once: all, or a part of them, so that the stored
// scores fit. 0: not even one. Tensors of floats, and of starts, are aligned to 16 bytes in each part.
std::int64_t rows_at_once(const AttentionSpec& s, std::size_t workspace_limit) {
  const auto rounded = [&](std::int64_t unit) { return (s.positions() + unit - 1) / unit * unit; };
  const std::int64_t of_row = s.heads * rounded(64) * rounded(128) * 2;
  for (std::int64_t rows = s.src[0]; rows > 0; --rows)
    if (s.src[0] % rows == 0 && std::size_t(rows * of_row) <= workspace_limit &&
        (rows == s.src[0] || rows * (s.documents ? 1 : s.heads) * s.positions() % 4 == 0))
      return rows;
  return 0;
}

struct Backward {
  AttentionProblem problem;  // of some rows of the batch
  std::shared_ptr<const cudnn::Plan> plan;
  double seconds = 0;  // of all rows; 0: not timed
};

// nullopt: cuDNN has no engine that obeys the rules.
std::optional<Backward> choose_backward(const AttentionSpec& s, Cudnn& library) {
  const cudnn::Options& options = library.options();
  std::optional<Backward> best;
  const auto consider = [&](bool accumulate, std::int64_t rows) {
    Backward b{{s, true, accumulate}, nullptr, 0};
    b.problem.spec.src[0] = rows;
    const auto choice = library.choose(b.problem);
    if (!choice) return;
    b.plan = choice->plan;
    b.seconds = choice->seconds * double(s.src[0] / rows);
    if (!best || (b.seconds > 0 && b.seconds < best->seconds)) best = std::move(b);
  };
  if (!options.rules.deterministic) consider(true, s.src[0]);
  // From 10.0, cuDNN's engines are deterministic with options only that its heuristics do not set.
  if (options.rules.deterministic && options.compute_capability >= 100) return best;
  const std::int64_t rows = rows_at_once(s, options.rules.workspace_limit);
  if (rows > 0 && (!best || best->seconds > 0)) consider(false, rows);
  return best;
}

// A plan for some rows of the batch, with its arguments for each part of them.
struct Parts {
  AttentionSpec of;
  std::vector<Call> calls;
  Parts() = default;
  Parts(const std::shared_ptr<const cudnn::Plan>& plan, const AttentionProblem& problem, std::int64_t rows)
      : of(problem.spec) {
    for (std::int64_t row = 0; row < rows; row += of.src[0]) calls.emplace_back(plan, problem);
  }
};

class CudnnAttention : public Op {
 public:
  // kernels: for backward if cuDNN does not compute it; otherwise null.
  CudnnAttention(const AttentionSpec& s, const LaunchContext& context, cudnnHandle_t handle, Parts forward,
                 const std::optional<Backward>& backward, std::unique_ptr<Op> kernels)
      : spec_(s), context_(context), handle_(handle), forward_(std::move(forward)), kernels_(std::move(kernels)) {
    std::size_t own = forward_.calls[0].workspace_bytes();
    needs_.saved = s.mode == Mode::train ? bytes_of_queries(s) : 0;
    seeds_at_ = align64(needs_.saved);
    if (s.drops()) needs_.saved = seeds_at_ + forward_.calls.size() * sizeof(AttentionSeed);
    if (backward) {
      accumulates_ = backward->problem.accumulate;
      backward_ = Parts(backward->plan, backward->problem, s.src[0]);
      own = std::max(own, backward_.calls[0].workspace_bytes());
    }
    of_queries_at_ = align64(own);
    query_sums_at_ = of_queries_at_ + align64(bytes_of_queries(s));
    needs_.workspace = query_sums_at_;
    if (accumulates_) needs_.workspace += std::size_t(s.dst().count()) * sizeof(float);
    if (kernels_) needs_.workspace = std::max(needs_.workspace, kernels_->memory_requirements().workspace);
  }

  MemoryRequirements memory_requirements() const override { return needs_; }
  std::string implementation() const override {
    std::string text = "cudnn " + forward_.calls[0].plan().engine();
    if (forward_.calls.size() > 1) text += fmt::format(" in {} parts", forward_.calls.size());
    if (kernels_) return text + ", backward " + kernels_->implementation();
    if (backward_.calls.empty()) return text;
    text += ", backward " + backward_.calls[0].plan().engine();
    if (backward_.calls.size() > 1) text += fmt::format(" in {} parts", backward_.calls.size());
    return text + (accumulates_ ? " adding up gradients of queries" : "");
  }

  void forward(const OpArgs& args) override {
    if (spec_.drops()) write_attention_seeds(context_, spec_, args, forward_.of.src[0], seeds(args));
    // cuDNN has no engine without the logarithms of the sums.
    void* const log_sums = spec_.mode == Mode::train ? args.saved : at(args.workspace, of_queries_at_);
    for (std::size_t i = 0; i < forward_.calls.size(); ++i) {
      std::vector<void*> pointers = in_src(args.src[0], forward_.of, i);
      pointers.push_back(at(args.dst.data, i * bytes_of_dst(forward_.of)));
      pointers.push_back(at(log_sums, i * bytes_of_queries(forward_.of)));
      add_extras(pointers, args, forward_.of, i);
      forward_.calls[i].run(handle_, std::move(pointers), args.workspace);
    }
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    if (kernels_) return kernels_->backward(args);
    for (std::size_t i = 0; i < backward_.calls.size(); ++i) {
      const std::size_t dst = i * bytes_of_dst(backward_.of), of_queries = i * bytes_of_queries(backward_.of);
      std::vector<void*> pointers = in_src(args.src[0], backward_.of, i);
      pointers.insert(pointers.end(),
                      {at(args.dst.data, dst), at(args.saved, of_queries), at(args.diff_dst.data, dst)});
      for (void* gradient : in_src(args.diff_src[0], backward_.of, i)) pointers.push_back(gradient);
      pointers.push_back(at(args.workspace, of_queries_at_ + of_queries));
      if (accumulates_) pointers.push_back(at(args.workspace, query_sums_at_));
      add_extras(pointers, args, backward_.of, i);
      backward_.calls[i].run(handle_, std::move(pointers), args.workspace);
    }
  }

 private:
  std::size_t bytes_of_dst(const AttentionSpec& part) const {
    return std::size_t(part.dst().count()) * size_of(spec_.dtype);
  }
  AttentionSeed* seeds(const OpArgs& args) const { return static_cast<AttentionSeed*>(at(args.saved, seeds_at_)); }
  void add_extras(std::vector<void*>& pointers, const OpArgs& args, const AttentionSpec& of_part,
                  std::size_t part) const {
    if (spec_.documents)
      pointers.push_back(
          at(args.src[2].data, part * std::size_t(of_part.src[0] * spec_.positions()) * sizeof(std::int32_t)));
    if (!spec_.drops()) return;
    AttentionSeed* const seed = seeds(args) + part;
    pointers.insert(pointers.end(), {&seed->seed, &seed->offset});
  }
  // Queries, keys and values of a part of the rows.
  std::vector<void*> in_src(const Tensor& src, const AttentionSpec& of_part, std::size_t part) const {
    const std::size_t head = std::size_t(spec_.head_size()) * size_of(spec_.dtype);
    void* const queries = at(src.data, part * std::size_t(of_part.src.count()) * size_of(spec_.dtype));
    return {queries, at(queries, std::size_t(spec_.heads) * head),
            at(queries, std::size_t(spec_.heads + spec_.key_heads) * head)};
  }

  AttentionSpec spec_;
  LaunchContext context_;
  cudnnHandle_t handle_;
  Parts forward_, backward_;
  std::unique_ptr<Op> kernels_;
  bool accumulates_ = false;
  // In the workspace, behind that of cuDNN: a float for each query, and the sums of the gradient of the queries.
  std::size_t of_queries_at_ = 0, query_sums_at_ = 0;
  std::size_t seeds_at_ = 0;  // in saved
  MemoryRequirements needs_;
};

void warn_about_backward(const AttentionSpec& s, Cudnn& library) {
  const cudnn::Options& options = library.options();
  const bool deterministic = options.rules.deterministic;
  library.warn_once(fmt::format(
      "cuDNN {} has no {}engine for the gradient of attention of {} with heads of {} in {} on this GPU with a "
      "workspace "
      "of {} MiB. slower kernels compute it{}{}{}",
      cudnnGetVersion(), deterministic ? "deterministic " : "", s.src.str(), s.head_size(), name_of(s.dtype),
      options.rules.workspace_limit >> 20, s.drops() ? ", and the forward pass" : "",
      deterministic ? ". set run.deterministic = off" : "",
      deterministic && options.compute_capability < 100 ? " or raise cuda.workspace" : ""));
}

}  // namespace

std::unique_ptr<Op> make_attention(const AttentionSpec& spec, const LaunchContext& context, Cudnn& library) {
  spec.check();
  if (spec.queries > 0) fail(Exit::internal, "internal error: attention of some positions has no kernel on GPUs");
  if (!supported_by_cudnn(spec)) return make_attention(spec, context);
  if (cudnnGetVersion() < oldest_version) {
    library.warn_once(
        fmt::format("cuDNN {} is older than 9.16, which attention needs. slower kernels are used", cudnnGetVersion()));
    return make_attention(spec, context);
  }
  AttentionProblem forward{spec};
  auto choice = library.choose(forward);
  if (!choice) {
    library.warn_once(
        fmt::format("cuDNN {} has no engine for attention with heads of {} in {} on this GPU. slower kernels are used",
                    cudnnGetVersion(), spec.head_size(), name_of(spec.dtype)));
    return make_attention(spec, context);
  }
  std::optional<Backward> backward;
  std::unique_ptr<Op> kernels;
  if (spec.mode == Mode::train && !(backward = choose_backward(spec, library))) {
    warn_about_backward(spec, library);
    kernels = make_attention(spec, context);
    if (spec.drops()) return kernels;  // they drop others than cuDNN
  }
  if (spec.drops() && backward->problem.spec.src[0] != spec.src[0]) {
    forward.spec.src[0] = backward->problem.spec.src[0];
    if (!(choice = library.choose(forward))) {
      warn_about_backward(spec, library);
      return make_attention(spec, context);
    }
  }
  return std::make_unique<CudnnAttention>(spec, context, library.handle(), Parts(choice->plan, forward, spec.src[0]),
                                          backward, std::move(kernels));
}

}  // namespace millrace::cuda
