#include "cuda/dnn/matmul.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

struct Traits {
  const char* text;
  bool bias;
  Aux aux;
};

const Traits& traits(Epilogue e) {
  static const Traits all[] = {{"", false, Aux::none},
                               {", bias", true, Aux::none},
                               {", relu", false, Aux::none},
                               {", bias, relu", true, Aux::none},
                               {", relu and its bits", false, Aux::bits},
                               {", bias, relu and its bits", true, Aux::bits},
                               {", gelu", false, Aux::none},
                               {", bias, gelu", true, Aux::none},
                               {", gelu and its source", false, Aux::values},
                               {", bias, gelu and its source", true, Aux::values},
                               {", relu's gradient", false, Aux::bits},
                               {", relu's gradient, bias gradient", true, Aux::bits},
                               {", gelu's gradient", false, Aux::values},
                               {", gelu's gradient, bias gradient", true, Aux::values},
                               {", bias gradient", true, Aux::none}};
  return all[int(e)];
}

}  // namespace

bool has_bias(Epilogue e) { return traits(e).bias; }
Aux aux_of(Epilogue e) { return traits(e).aux; }

std::int64_t aux_stride(Epilogue e, std::int64_t rows) {
  return aux_of(e) == Aux::bits ? (rows + 127) / 128 * 128 : rows;
}

std::size_t aux_bytes(const MatmulSpec& s) {
  const std::size_t count = std::size_t(aux_stride(s.epilogue, s.m) * s.n);
  switch (aux_of(s.epilogue)) {
    case Aux::bits:
      return count / 8;
    case Aux::values:
      return count * size_of(s.output);
    case Aux::none:
      break;
  }
  return 0;
}

std::unique_ptr<Matmul> Cublas::make(const MatmulSpec& spec) {
  auto found = find(spec);
  if (!found)
    fail(Exit::config, "cuBLAS has no kernel for the matrix multiplication {}. try another run.precision", str(spec));
  return found;
}

std::string str(const MatmulSpec& s) {
  return fmt::format("{} x {} x {} {} -> {}{}{}{}{}{}", s.m, s.n, s.k, name_of(s.input), name_of(s.output),
                     s.transpose_a ? ", A transposed" : "", s.transpose_b ? ", B transposed" : "",
                     traits(s.epilogue).text, s.add ? ", added" : "",
                     s.batch > 1 ? fmt::format(", {} times", s.batch) : "");
}

namespace {

// A row-major matrix is the column-major transpose, and the transpose of A B is that of B times that of A.
MatmulSpec column_major_product(const BatchedMatmulSpec& s) {
  return {.m = s.n,
          .n = s.m,
          .k = s.k,
          .transpose_a = s.transpose_b,
          .transpose_b = s.transpose_a,
          .input = s.dtype,
          .output = s.dtype,
          .batch = s.batch};
}

class BatchedMatmul : public Op {
 public:
  BatchedMatmul(const BatchedMatmulSpec& s, const LaunchContext& context, Cublas& cublas)
      : context_(context), spec_(s), forward_(cublas.make(column_major_product(s))) {
    if (s.mode == Mode::infer) return;
    of_a_ = cublas.make(column_major_product(s.of_a()));
    of_b_ = cublas.make(column_major_product(s.of_b()));
  }
  MemoryRequirements memory_requirements() const override {
    std::size_t most = 0;
    for (const Matmul* m : {forward_.get(), of_a_.get(), of_b_.get()})
      if (m) most = std::max(most, m->workspace_bytes());
    return {most, 0, 0};
  }
  std::string implementation() const override {
    std::string text = forward_->name();
    if (of_a_) text += fmt::format(", backward {} and {}", of_a_->name(), of_b_->name());
    return text;
  }
  void forward(const OpArgs& args) override { run(*forward_, args.src[0], args.src[1], args.dst, args); }
  void backward(const OpArgs& args) override {
    const Tensor &a = args.src[0], &b = args.src[1], &dy = args.diff_dst;
    if (args.diff_src[0])
      spec_.transpose_a ? run(*of_a_, b, dy, args.diff_src[0], args) : run(*of_a_, dy, b, args.diff_src[0], args);
    if (args.diff_src[1])
      spec_.transpose_b ? run(*of_b_, dy, a, args.diff_src[1], args) : run(*of_b_, a, dy, args.diff_src[1], args);
  }

 private:
  void run(Matmul& product, const Tensor& a, const Tensor& b, const Tensor& to, const OpArgs& args) const {
    product.run(context_.stream, {.a = b.data, .b = a.data, .d = to.data, .workspace = args.workspace});
  }

  LaunchContext context_;
  BatchedMatmulSpec spec_;
  std::unique_ptr<Matmul> forward_, of_a_, of_b_;
};

}  // namespace

std::unique_ptr<Op> make_batched_matmul(const BatchedMatmulSpec& spec, const LaunchContext& context, Cublas& cublas) {
  if (spec.batch > INT32_MAX) fail(Exit::config, "matmul: {} products are more than cuBLAS can count", spec.batch);
  return std::make_unique<BatchedMatmul>(spec, context, cublas);
}

}  // namespace millrace::cuda
