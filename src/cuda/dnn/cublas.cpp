#include "cuda/dnn/cublas.hpp"

#include <fmt/core.h>

#include "cuda/dnn/cublas_matmul.hpp"
#include "millrace/base/log.hpp"

namespace millrace::cuda {
namespace {

class CublasLt : public Cublas {
 public:
  CublasLt(const LaunchContext& context, PlanSelector& selector, const CublasOptions& options)
      : context_(context), selector_(selector), options_(options) {
    cublasLtHandle_t handle = nullptr;
    MR_CUBLAS(cublasLtCreate(&handle));
    handle_.reset(handle);
  }

  double copy_bytes_per_second() const override { return options_.copy_bytes_per_second; }
  std::unique_ptr<Matmul> find(const MatmulSpec& spec) override {
    auto matmul = std::make_unique<CublasMatmul>(handle_.get(), spec, options_.tf32);
    const std::string key =
        fmt::format("{}, up to {}{}", str(spec), options_.workspace_bytes, options_.tf32 ? " tf32" : "");
    const PlanEntry entry = selector_.get(key, [&] { return select(*matmul); });
    if (entry.plan.empty()) return nullptr;
    if (auto algorithm = matmul->parse(entry.plan)) {
      algorithm->seconds = entry.seconds;
      matmul->choose(*algorithm);
      return matmul;
    }
    if (!warned_)
      log::local(
          "warning: a cached kernel for a matrix multiplication does not run on this GPU. cuBLAS's first proposal is "
          "used");
    warned_ = true;
    const auto candidates = matmul->candidates(options_.workspace_bytes);
    if (candidates.empty())
      fail(Exit::config,
           "cuBLAS has no kernel for the matrix multiplication {} on this rank, but it has one on rank 0. use equal "
           "GPUs",
           str(spec));
    MatmulAlgorithm first = candidates.front();
    first.seconds = entry.seconds;  // rank 0's time: all ranks must make the same decisions from it
    matmul->choose(first);
    return matmul;
  }

 private:
  PlanEntry select(CublasMatmul& matmul) {
    const auto candidates = matmul.candidates(options_.workspace_bytes);
    if (candidates.empty()) return {};
    const std::optional<MatmulAlgorithm> algorithm =
        selector_.timing_enabled() ? fastest(context_, matmul, candidates) : candidates.front();
    if (algorithm) return {serialize(*algorithm), algorithm->seconds};
    PlanEntry none;
    none.persistent = false;  // all candidates failed now, perhaps for lack of memory: a later run tries again
    return none;
  }
  LaunchContext context_;
  PlanSelector& selector_;
  CublasOptions options_;
  CublasHandle handle_;
  bool warned_ = false;
};

}  // namespace

std::unique_ptr<Cublas> make_cublas(const LaunchContext& context, PlanSelector& selector,
                                    const CublasOptions& options) {
  return std::make_unique<CublasLt>(context, selector, options);
}

std::size_t cublas_version() { return cublasLtGetVersion(); }

}  // namespace millrace::cuda
