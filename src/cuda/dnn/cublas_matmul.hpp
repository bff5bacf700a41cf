// A matrix multiplication by cuBLASLt: its descriptors, and the algorithm that it runs with. An internal header: users
// include cuda/dnn/cublas.hpp.
#pragma once
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/dnn/cublas_library.hpp"
#include "cuda/dnn/matmul.hpp"
#include "cuda/errors/error_context.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {

inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(Exit::comm, error_context::describe_failure(call, fmt::format("{} ({})", cublasLtGetStatusName(status),
                                                                              cublasLtGetStatusString(status))));
}
#define MR_CUBLAS(call) ::millrace::cuda::check(call, #call)

// Owners of cuBLASLt's handles.
template <const auto& destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using CublasHandle = std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy<cublasLtDestroy>>;
using MatmulDescriptor =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy<cublasLtMatmulDescDestroy>>;
using MatrixLayout =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, Destroy<cublasLtMatrixLayoutDestroy>>;
using MatmulPreference =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, Destroy<cublasLtMatmulPreferenceDestroy>>;

// An algorithm of cuBLASLt for one multiplication.
struct MatmulAlgorithm {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;  // bytes
  double seconds = 0;         // of one run; 0: not timed. Of the chosen algorithm: as timed on rank 0
};

// As text that other ranks and later runs can read. An algorithm of cuBLASLt is plain data, valid for one version.
std::string serialize(const MatmulAlgorithm&);

class CublasMatmul : public Matmul {
 public:
  CublasMatmul(cublasLtHandle_t handle, const MatmulSpec&, bool tf32);

  std::size_t workspace_bytes() const override { return chosen_.workspace; }
  std::string name() const override;
  double seconds() const override { return chosen_.seconds; }
  void run(StreamHandle stream, const MatmulArgs& args) override { MR_CUBLAS(enqueue(stream, chosen_, args)); }
  cublasStatus_t enqueue(StreamHandle, const MatmulAlgorithm&, const MatmulArgs&);

  // What cuBLAS proposes, its best guess first; empty: it has no algorithm for this multiplication.
  std::vector<MatmulAlgorithm> candidates(std::size_t workspace_limit);
  // The algorithm that serialize() wrote; nullopt if cuBLAS cannot run it here, or needs more workspace than the text
  // says.
  std::optional<MatmulAlgorithm> parse(const std::string& text);
  void choose(const MatmulAlgorithm& algorithm) { chosen_ = algorithm; }
  const MatmulSpec& spec() const { return spec_; }

 private:
  void set_pointers(void* bias, void* aux);
  void set_aligned_pointers();
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, T value) {
    MR_CUBLAS(cublasLtMatmulDescSetAttribute(descriptor_.get(), what, &value, sizeof value));
  }
  cublasLtHandle_t handle_;
  MatmulSpec spec_;
  MatmulDescriptor descriptor_;
  MatrixLayout a_, b_, d_;
  MatmulAlgorithm chosen_;
};

// Times the candidates on random data and returns the fastest; candidates that fail are left out, nullopt: all fail.
// Returns the first candidate untimed if there is too little device memory.
std::optional<MatmulAlgorithm> fastest(const LaunchContext&, CublasMatmul&, std::vector<MatmulAlgorithm> candidates);

}  // namespace millrace::cuda
